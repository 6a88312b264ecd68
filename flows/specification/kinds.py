"""The kinds of releases, by the keys of a spec as written: trips, a matrix of trips, features, trips with features, or group sizes."""

from collections.abc import Iterator, Mapping
from typing import Any

from flows.specification.rules import PerAxis, as_list
from storage.tables import ENDS, REGION, SIZE
from tasks.ingest.sources.locations import fault_of_matrix

_ENDS = tuple(f"input.{end}" for end in ENDS)
_TREE, _ORDER, _FEATURES = "release.tree", "release.order", "input.features"
_FOR_GROUPS = ("input.group", "release.group_sizes")
GRID = "release.grid"  # takes the place of release.order
_OF_CODEBOOKS = {"table", "levels"}  # stand in place of entries by axis where there is one codebook


def by_axis(keys: dict[str, Any]) -> dict[str, Any]:
    """Return a spec's keys; a hierarchy that holds one entry per axis, not one codebook for both ends of trips, is marked.

    Entries of no axis are left out of it: `faults_of_kind` refuses them, but for names that are no text.
    """
    domains, given = keys.get("hierarchy"), _given(keys)
    if not isinstance(domains, dict) or given.isdisjoint({_FEATURES, *_FOR_GROUPS}):
        return keys
    axes = (_axes_of(keys, given) or []) if _FEATURES in given else [*domains]
    return keys | {
        "hierarchy": PerAxis({name: of for name, of in domains.items() if name in axes or not isinstance(name, str)})
    }


def faults_of_kind(keys: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a spec that mixes kinds of releases, before each key is checked alone."""
    given = _given(keys)
    if "input.matrix" in given:
        yield from _faults_of_matrix(given)
        yield from _faults_by_axis(keys, given)
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
    yield from _faults_of_order(given)
    yield from _faults_by_axis(keys, given)


def _given(keys: Mapping[str, Any]) -> set[str]:
    """Return the dotted keys of the sections `input` and `release` that have a value."""
    return {f"{part}.{key}" for part in ("input", "release") for key, value in keys[part].items() if value is not None}


def _axes_of(keys: Mapping[str, Any], given: set[str]) -> list[str] | None:
    """Return the axes that a spec names, ends of trips or regions before features; None where `input.features` is no list of names."""
    features = as_list(keys["input"].get("features") or [])
    if not isinstance(features, list) or not all(isinstance(name, str) for name in features):
        return None
    has_groups = not given.isdisjoint(_FOR_GROUPS)
    return [*((REGION,) if has_groups else ENDS if _has_ends(given) else ()), *features]


def _has_ends(given: set[str]) -> bool:
    return not given.isdisjoint({"input.matrix", *_ENDS})


def _lacking(given: set[str], *needed: str) -> Iterator[str]:
    return (f"{key} must be given." for key in needed if key not in given)


def _faults_of_order(given: set[str]) -> Iterator[str]:
    """Yield what is wrong with the ends and with the keys that order the axes."""
    has_features, has_ends = _FEATURES in given, not given.isdisjoint(_ENDS)
    if has_ends or not has_features:
        yield from _lacking(given, *_ENDS)
    if {GRID, _ORDER} <= given:
        yield f"{_ORDER} must be left out with {GRID}, which refines all axes in turns."
    for key in (_ORDER, GRID):
        if {_TREE, key} <= given:
            yield f"{_TREE} must be left out with {key}, which says what is refined first."
            return
    if _TREE in given and has_features and not has_ends:
        yield f"{_TREE} must be left out when input.origin is not given: it says which end of trips is refined first."
    if has_features:
        yield from _lacking(given, *(() if has_ends or GRID in given else (_ORDER,)))
    else:
        yield from _lacking(given, *(() if given & {_ORDER, GRID} else (_TREE,)), "release.finest")


def _faults_of_matrix(given: set[str]) -> Iterator[str]:
    yield from _lacking(given, *(() if _ORDER in given else (_TREE,)), "release.finest")
    if {_TREE, _ORDER} <= given:
        yield f"{_TREE} must be left out with {_ORDER}, which says what is refined first."
    if "input.table" in given:
        yield "input.table must be left out with input.matrix, which replaces it."
    for key in (*_ENDS, "input.count"):
        if key in given:
            yield f"{key} must be left out with input.matrix: rows are origins, columns are destinations, cells are counts."
    if "input.unit" in given:
        yield "input.unit must be left out with input.matrix: a matrix has counts, and no units."
    for key in (_FEATURES, *_FOR_GROUPS, GRID, "input.region", "input.groups"):
        if key in given:
            yield f"{key} must be left out with input.matrix: a matrix holds trips alone."


def _faults_of_groups(keys: Mapping[str, Any], given: set[str]) -> Iterator[str]:
    yield from _lacking(given, *_FOR_GROUPS)
    for key in (*_ENDS, _TREE, GRID, "release.finest"):
        if key in given:
            yield f"{key} must be left out for group sizes: input.group says what a group is, and release.group_sizes what is released."
    if _ORDER in given and _FEATURES not in given:
        yield f"{_ORDER} must be left out for group sizes without {_FEATURES}: regions alone are refined, coarse to fine."
    axes, domains = _axes_of(keys, given), keys.get("hierarchy")
    if not isinstance(domains, dict) or axes is None:
        return
    for role in (REGION, SIZE):
        if role in axes[1:]:
            yield f"{_FEATURES} must not name {role}: an axis of group sizes has this name."
    if REGION not in domains:
        yield f"hierarchy.{REGION} must be given: the public codebook of the regions."
    for name in axes[1:]:
        if name not in domains:
            yield f"hierarchy.{name} must be given: every attribute of a group needs its codes."
    for name in domains:
        if name not in axes:
            yield f"hierarchy.{name} must be left out: it is neither {REGION} nor one of {_FEATURES}."


def _faults_by_axis(keys: Mapping[str, Any], given: set[str]) -> Iterator[str]:
    """Yield the entries per axis that `hierarchy` and `release.finest` lack or have too many, and features named like ends."""
    axes, domains, finest = _axes_of(keys, given), keys.get("hierarchy"), keys["release"].get("finest")
    if axes is None:
        return  # what is no list of features is refused by itself
    has_ends = _has_ends(given)
    features = axes[len(ENDS) :] if has_ends else axes
    if has_ends:
        for name in ENDS:
            if name in features:
                yield f"{_FEATURES} must not name {name} beside input.{name}: an end of trips has this name."
    if finest is not None and not isinstance(finest, dict) and features and not has_ends:
        yield "release.finest must be {feature: level} when input.features is given."
    for end in ENDS if isinstance(finest, dict) and not features else ():
        if end not in finest:
            yield f"release.finest.{end} must be given."
    if not isinstance(domains, dict) or not (features or not set(ENDS).isdisjoint(domains)):
        return  # one codebook for both ends
    missing = [name for name in axes if name not in map(str, domains)]
    stray = [name for name in domains if name not in axes and isinstance(name, str)]
    if missing and stray:
        below = "" if _OF_CODEBOOKS.isdisjoint(stray) else f" Write {axes[0]}: {{table: …, levels: […]}}, and so on."
        yield f"hierarchy must have an entry for each axis ({', '.join(axes)}), got {', '.join(map(str, domains))}.{below}"
        return
    for axis in missing:
        needs = "every feature needs its codes" if axis in features else "each end of trips needs its codebook"
        yield f"hierarchy.{axis} must be given: {needs}."
    for other in stray if axes else ():
        rule = f"{other} is not one of input.features" if features else "it is no end of trips"
        yield f"hierarchy.{other} must be left out: {rule}."
