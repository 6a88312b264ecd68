"""Which keys of a spec have a meaning for the mechanism that it names, and which it cannot do without."""

from collections.abc import Iterator

from flows.mechanisms import MECHANISMS, Mechanism
from flows.spec.hierarchy import Hierarchy
from flows.spec.keys import Spec
from storage.errors import SpecError
from storage.releases.terms import COUNTS_POSITIVE


def mechanism_named(name: str) -> Mechanism:
    """Return the mechanism of a name.

    Raises:
        SpecError: there is none.
    """
    if name not in MECHANISMS:
        raise SpecError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name}.", field="mechanism")
    return MECHANISMS[name]


def incompatible_keys(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield keys that have no meaning for a mechanism, or lack one, with the reason."""
    for key, reason in mechanism.refused.items():
        if key in spec.privacy.model_fields_set and getattr(spec.privacy, key):
            yield SpecError(
                f"privacy.{key} must be left out with mechanism {mechanism.name}: {reason}.", field=f"privacy.{key}"
            )
    if spec.priority and spec.priority not in mechanism.optimisers:
        with_priorities = [recipe.name for recipe in MECHANISMS.values() if spec.priority in recipe.optimisers]
        yield SpecError(
            f"priority must be left out with mechanism {mechanism.name}, got {spec.priority}, which is for"
            f" {', '.join(with_priorities)}.",
            field="priority",
        )
    if spec.release.records and COUNTS_POSITIVE in mechanism.waived:
        yield SpecError(
            f"release.records must be left out with mechanism {mechanism.name}: a count below zero is no number of records.",
            field="release.records",
        )
    if spec.release.noisy_counts and mechanism.is_thresholded:
        yield SpecError(
            f"release.noisy_counts must be left out with mechanism {mechanism.name}: its counts are its noisy counts.",
            field="release.noisy_counts",
        )
    if spec.release.intervals.simultaneous and any(
        isinstance(hierarchy, Hierarchy) and hierarchy.table is None
        for _, hierarchy in map(spec.hierarchy_of, spec.axes)
    ):
        yield SpecError(
            "release.intervals.simultaneous must be left out where no codebook lists the codes: nobody knows of how many"
            " cells the intervals would have to hold at once.",
            field="release.intervals.simultaneous",
        )
    if spec.noise.sampler not in mechanism.noises:
        yield SpecError(
            f"noise.sampler must be {' or '.join(mechanism.noises)} with mechanism {mechanism.name}, got"
            f" {spec.noise.sampler}.",
            field="noise.sampler",
        )
    yield from _faults_of_listing(spec, mechanism)


def check_listed(spec: Spec, mechanism: Mechanism) -> None:
    """Refuse codes that no codebook lists, but for a mechanism that shows no code unless enough people have it."""
    for fault in _faults_of_listing(spec, mechanism):
        raise fault


def _faults_of_listing(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    for key, hierarchy in map(spec.hierarchy_of, spec.axes):
        if isinstance(hierarchy, Hierarchy) and hierarchy.table is None and not mechanism.is_thresholded:
            only = " or ".join(recipe.name for recipe in MECHANISMS.values() if recipe.is_thresholded)
            yield SpecError(
                f"{key}.table must be given with mechanism {mechanism.name}: it measures every area that there could be, and"
                " those that are known from the records alone would tell who is there.",
                field=f"{key}.table",
                hint=f"Name a public codebook of all areas, or mechanism {only}, which shows a code only where enough records"
                " have it.",
            )
