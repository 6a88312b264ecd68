"""Checks which keys of a spec its mechanism does not use, and which it needs."""

from collections.abc import Iterator

from flows.mechanisms import MECHANISMS, Mechanism
from flows.spec.hierarchy import Hierarchy
from flows.spec.keys import Spec
from storage.errors import SpecError
from storage.releases.terms import COUNTS_POSITIVE


def mechanism_named(name: str) -> Mechanism:
    """Return the mechanism with a name.

    Raises:
        SpecError: no mechanism has this name.
    """
    if name not in MECHANISMS:
        raise SpecError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name}.", field="mechanism")
    return MECHANISMS[name]


def incompatible_keys(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    """Yield an error for each key that a mechanism does not use, or needs and does not have."""
    for key, reason in mechanism.refused.items():
        if key in spec.privacy.model_fields_set and getattr(spec.privacy, key):
            yield SpecError(
                f"privacy.{key} must be left out with mechanism {mechanism.name}: {reason}.", field=f"privacy.{key}"
            )
    if spec.priority and spec.priority not in mechanism.repair:
        with_priorities = [recipe.name for recipe in MECHANISMS.values() if spec.priority in recipe.repair]
        yield SpecError(
            f"priority must be left out with mechanism {mechanism.name}, got {spec.priority}, which only"
            f" {', '.join(with_priorities)} can use.",
            field="priority",
        )
    if spec.release.records and COUNTS_POSITIVE in mechanism.waived:
        yield SpecError(
            f"release.records must be left out with mechanism {mechanism.name}: its counts may be below zero.",
            field="release.records",
        )
    if spec.release.noisy_counts and mechanism.shows_codes:
        yield SpecError(
            f"release.noisy_counts must be left out with mechanism {mechanism.name}: its released counts are its noisy counts.",
            field="release.noisy_counts",
        )
    if spec.release.intervals.simultaneous and any(
        isinstance(hierarchy, Hierarchy) and hierarchy.table is None
        for _, hierarchy in map(spec.hierarchy_of, spec.axes)
    ):
        yield SpecError(
            "release.intervals.simultaneous must be left out without a codebook: the number of cells for which the"
            " intervals must hold at once is unknown.",
            field="release.intervals.simultaneous",
        )
    if spec.noise.sampler not in mechanism.law.samplers:
        yield SpecError(
            f"noise.sampler must be {' or '.join(mechanism.law.samplers)} with mechanism {mechanism.name}, got"
            f" {spec.noise.sampler}.",
            field="noise.sampler",
        )
    yield from _faults_of_listing(spec, mechanism)


def check_listed(spec: Spec, mechanism: Mechanism) -> None:
    """Refuse an axis without a codebook, unless the mechanism shows a code only where enough records have it."""
    for fault in _faults_of_listing(spec, mechanism):
        raise fault


def _faults_of_listing(spec: Spec, mechanism: Mechanism) -> Iterator[SpecError]:
    for key, hierarchy in map(spec.hierarchy_of, spec.axes):
        if isinstance(hierarchy, Hierarchy) and hierarchy.table is None and not mechanism.shows_codes:
            only = " or ".join(recipe.name for recipe in MECHANISMS.values() if recipe.shows_codes)
            yield SpecError(
                f"{key}.table must be given with mechanism {mechanism.name}, which measures every possible area: areas"
                " known only from the records would reveal who is in them.",
                field=f"{key}.table",
                hint=f"Give a public codebook of all areas, or choose mechanism {only}, which shows a code only where enough"
                " records have it.",
            )
