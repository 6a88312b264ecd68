"""The kinds of releases, by the keys of a spec as written: trips, a matrix of trips, features, or group sizes."""

from collections.abc import Iterator, Mapping
from typing import Any

from flows.specification.rules import PerFeature, as_list
from storage.tables import REGION
from tasks.ingest.sources.locations import fault_of_matrix

_FOR_TRIPS = ("input.origin", "input.destination", "release.tree")
_FOR_FEATURES = ("input.features", "release.order")
_FOR_GROUPS = ("input.group", "release.group_sizes")
GRID = "release.grid"  # takes the place of release.order


def by_feature(keys: dict[str, Any]) -> dict[str, Any]:
    """Return a spec's keys; for features and group sizes, mark the values that hold one entry per axis."""
    domains, release = keys.get("hierarchy"), keys["release"]
    if keys["input"].get("features") is None and _given(keys).isdisjoint(_FOR_GROUPS):
        return keys
    if isinstance(domains, dict):
        keys = keys | {"hierarchy": PerFeature(domains)}
    if isinstance(release.get("finest"), dict):
        keys = keys | {"release": release | {"finest": PerFeature(release["finest"])}}
    return keys


def faults_of_kind(keys: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a spec that mixes kinds of releases, before each key is checked alone."""
    given = _given(keys)
    if "input.matrix" in given:
        yield from _faults_of_matrix(given)
        return
    table = keys["input"].get("table")
    if isinstance(table, str) and (fault := fault_of_matrix(table)):
        yield f"input.table {fault}"
        return
    if "input.table" not in given:
        yield "input.table must be given."
    if "input.zones" in given:
        yield "input.zones must be left out without input.matrix: it names the zones of a matrix."
    if not given.isdisjoint(_FOR_GROUPS):
        yield from _faults_of_groups(keys, given)
        return
    for key in ("input.region", "input.groups"):
        if key in given:
            yield f"{key} must be left out when input.group is not given: it is for group sizes."
    of_features = "input.features" in given
    if GRID in given and not of_features:
        yield f"{GRID} must be left out when input.features is not given: a release holds trips or features."
    if {GRID, "release.order"} <= given:
        yield f"release.order must be left out with {GRID}, which refines both features in turns."
    for key in _FOR_TRIPS if of_features else _FOR_FEATURES:
        if key in given:
            given_or_not = "is given" if of_features else "is not given"
            yield f"{key} must be left out when input.features {given_or_not}: a release holds trips or features."
    needed = () if GRID in given else ("release.order",)
    yield from _lacking(given, *(needed if of_features else (*_FOR_TRIPS, "release.finest")))
    if of_features:
        yield from _faults_of_features(keys)


def _given(keys: Mapping[str, Any]) -> set[str]:
    """Return the dotted keys of the sections `input` and `release` that have a value."""
    return {f"{part}.{key}" for part in ("input", "release") for key, value in keys[part].items() if value is not None}


def _lacking(given: set[str], *needed: str) -> Iterator[str]:
    return (f"{key} must be given." for key in needed if key not in given)


def _faults_of_matrix(given: set[str]) -> Iterator[str]:
    yield from _lacking(given, "release.tree", "release.finest")
    if "input.table" in given:
        yield "input.table must be left out with input.matrix, which replaces it."
    for key in ("input.origin", "input.destination", "input.count"):
        if key in given:
            yield f"{key} must be left out with input.matrix: rows are origins, columns are destinations, cells are counts."
    if "input.unit" in given:
        yield "input.unit must be left out with input.matrix: a matrix has counts, and no units."
    for key in (*_FOR_FEATURES, *_FOR_GROUPS, GRID, "input.region", "input.groups"):
        if key in given:
            yield f"{key} must be left out with input.matrix: a matrix holds trips."


def _faults_of_groups(keys: Mapping[str, Any], given: set[str]) -> Iterator[str]:
    yield from _lacking(given, *_FOR_GROUPS)
    for key in (*_FOR_TRIPS, *_FOR_FEATURES, "release.finest", "release.views"):
        if key in given:
            yield f"{key} must be left out for group sizes: input.group says what a group is, and release.group_sizes what is released."
    domains = keys.get("hierarchy")
    if not isinstance(domains, dict):
        return
    if REGION not in domains:
        yield f"hierarchy.{REGION} must be given: the public codebook of the regions."
    for name in domains:
        if name != REGION:
            yield f"hierarchy.{name} must be left out for group sizes, which have the regions alone."


def _faults_of_features(keys: Mapping[str, Any]) -> Iterator[str]:
    features, domains = as_list(keys["input"]["features"]), keys.get("hierarchy")
    if isinstance(features, list) and all(isinstance(name, str) for name in features) and isinstance(domains, dict):
        for name in features:
            if name not in domains:
                yield f"hierarchy.{name} must be given: every feature needs its codes."
        for name in domains if features else ():
            if name not in features:
                yield f"hierarchy.{name} must be left out: {name} is not one of input.features."
    finest = keys["release"].get("finest")
    if finest is not None and not isinstance(finest, dict):
        yield "release.finest must be {feature: level} when input.features is given."
