"""Published tables, in folders and in the store: the names of their columns, and their files, one or a folder of parts."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

COUNT = "count"  # after the codes
LOW, HIGH = "low", "high"  # after it: the interval that contains the truth of a cell, with the stated probability
INTERVAL = (LOW, HIGH)
# on request: the intervals that contain the truth of all cells at once
SIMULTANEOUS = ("simultaneous_low", "simultaneous_high")
BOUNDS = (*INTERVAL, *SIMULTANEOUS)
NUMBERS = (COUNT, *BOUNDS)
SIGNAL = "signal"  # last: whether the row stands out from the noise
REMAINDER = "remainder"  # last in tables of such rows: whether the row is what they leave of a count
NOISY, VARIANCE = "noisy_count", "variance"

# what an axis is in a release, beside a feature: an end of trips, or the regions or the sizes of groups
Role = Literal["origin", "destination", "region", "size"]
ENDS: tuple[Role, Role] = ("origin", "destination")
REGION: Role = "region"
SIZE: Role = "size"


def roles_of(axes: Iterable[str], spec: Mapping[str, Any], *, counts_groups: bool) -> dict[str, Role | None]:
    """Return the role of each axis; None for a feature. An axis with a role has its name.

    Args:
        spec: as it is published, which names the features.
        counts_groups: whether the release counts groups by region and size.
    """
    roles, named = (REGION, SIZE) if counts_groups else ENDS, features_of(spec)
    return {axis: next((role for role in roles if role == axis and axis not in named), None) for axis in axes}


def features_of(spec: Mapping[str, Any]) -> list[str]:
    """Return the features of a spec as it is published, in its order."""
    of_input = spec.get("input")
    features = of_input.get("features") if isinstance(of_input, dict) else None
    return [features] if isinstance(features, str) else features or []


def ends_of(roles: Sequence[Role | None]) -> tuple[int, int] | None:
    """Return the numbers of the axes on which trips begin and end; None where there are no such axes."""
    return (roles.index("origin"), roles.index("destination")) if set(ENDS) <= set(roles) else None


def column_name(axis: str, level: str, flat: Collection[str] = ()) -> str:
    """Return the name of a published column of codes: `<axis>_<level>`, or only the feature's name if it has one level.

    The levels that an ordered feature gets by halving have names such as `age_1` already, and its finest level its own name.
    """
    own = f"{axis}_"
    if axis in flat:
        return axis
    return level if own in flat and (level == axis or level.startswith(own)) else f"{own}{level}"


def interval_columns(*, simultaneous: bool) -> tuple[str, ...]:
    """Return the columns of intervals that the tables of a release have."""
    return INTERVAL + SIMULTANEOUS if simultaneous else INTERVAL


def flat_features(spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the features that have one level, from a spec as it is published, and the regions and sizes of groups; no end of trips.

    Of an ordered feature it is the beginning of the names of its levels, such as `age_`.
    """
    of_input, domains = spec.get("input"), domains_of(spec)
    has_groups = isinstance(of_input, dict) and of_input.get("group") is not None
    axes = (REGION, *features_of(spec), SIZE) if has_groups else features_of(spec)
    flat = {axis: domains[axis] for axis in axes if axis in domains and not _is_deep(domains[axis])}
    return frozenset(f"{axis}_" if is_ordered(domain) else axis for axis, domain in flat.items())


def domains_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the codes of each axis, from a spec as it is published; empty where one codebook holds for both ends of trips.

    The sizes of groups go from 1 to the largest, or from 0 where a public list also has the groups without a record.
    """
    hierarchy = spec.get("hierarchy")
    domains = dict(hierarchy) if isinstance(hierarchy, dict) else {}
    domains = {axis: _with_codes(domain) for axis, domain in domains.items()}
    of_release, of_input = spec.get("release"), spec.get("input")
    sizes = of_release.get("group_sizes") if isinstance(of_release, dict) else None
    if isinstance(sizes, dict):
        has_list = isinstance(of_input, dict) and of_input.get("groups") is not None
        domains[SIZE] = size_codes(sizes.get("largest", 1), has_list=has_list)
    return domains


def size_codes(largest: int, *, has_list: bool) -> dict[str, Any]:
    """Return the codes of the sizes of groups, as a spec would list those of an ordered feature of one level."""
    first = 0 if has_list else 1
    return {"ordered": {"first": first, "last": largest}, "branching": max(2, largest - first + 1)}


_TAKEN = {
    "hour": range(24),
    "weekday": range(1, 8),
    "week": range(1, 54),
    "month": range(1, 13),
    "quarter": range(1, 5),
}


def taken_codes(taken: Mapping[str, Any]) -> list[str]:
    """Return all codes, in their order, that a spec takes from a column as part of a time or bins of a number; none where they have no end."""
    return (
        bin_codes(taken["bins"]) if taken.get("bins") else [str(code) for code in _TAKEN.get(taken.get("take", ""), ())]
    )


def edges_of(bins: Sequence[float] | Mapping[str, Any]) -> list[Decimal]:
    """Return the smallest number of each bin, as a spec lists them or says them by `first`, `last` and `step`."""
    if isinstance(bins, Mapping):
        return [*numbers_between(bins["first"], bins["last"], bins.get("step") or 1)]
    return [Decimal(str(edge)) for edge in bins]


def bin_codes(bins: Sequence[float] | Mapping[str, Any]) -> list[str]:
    """Return the codes of bins: `0-17`, `18-64` and `65+` for 0, 18, 65; `0-0.5` and `0.5+`, if not all of them are whole."""
    edges = edges_of(bins)
    if all(edge == int(edge) for edge in edges):
        low = list(map(int, edges))
        codes = [f"{one}" if one + 1 == other else f"{one}-{other - 1}" for one, other in pairwise(low)]
        return [*codes, f"{low[-1]}+"]
    texts = [*map(code_of, edges)]
    return [*("-".join(pair) for pair in pairwise(texts)), f"{texts[-1]}+"]


def code_of(number: Decimal) -> str:
    """Return a number as it is written in codes: 0.25, 0.5, 1."""
    return f"{number.normalize():f}"


def numbers_between(first: float | str, last: float | str, step: float | str) -> Iterator[Decimal]:
    """Yield the numbers from a first to a last one, as they are written in decimals, with a step > 0 between them."""
    begin, end, stride = (Decimal(str(of)) for of in (first, last, step))
    yield from (begin + stride * place for place in range(int((end - begin) / stride) + 1 if end >= begin else 0))


def lists_codes(domain: Mapping[str, Any]) -> bool:
    """Return whether the keys of an axis list its codes themselves, or name a table; otherwise they are those that it takes from each record."""
    ordered = domain.get("ordered")
    if isinstance(ordered, Mapping):
        return any(ordered.get(key) is not None for key in ("codes", "first"))
    return not domain.keys().isdisjoint({"ordered", "values", "table", "levels"})


def with_codes(domain: Mapping[str, Any], codes: Sequence[str]) -> dict[str, Any]:
    """Return the keys of an axis that lists no codes, with these as its ordered codes; those beside the order stay."""
    ordered = domain.get("ordered")
    return {**domain, "ordered": {**ordered, "codes": codes} if ordered else codes}


def _with_codes(domain: Any) -> Any:
    """Return the codes of an axis as its spec lists them; where it lists none, those that it takes from each record, in their order."""
    taken = domain.get("from") if isinstance(domain, dict) else None
    if not isinstance(taken, dict) or lists_codes(domain):
        return domain
    return with_codes(domain, taken_codes(taken))


def is_ordered(domain: Any) -> bool:
    """Return whether the codes of a feature have an order, from the spec as it is published."""
    return isinstance(domain, dict) and "ordered" in domain


def _is_deep(domain: Any) -> bool:
    levels = domain.get("levels") if isinstance(domain, dict) else None
    return isinstance(levels, list) and len(levels) > 1


PART_ROWS = 250_000  # of a part, and of a level that is one file

COUNTS = "counts"  # the folder


def part_count(rows: int) -> int:
    """Return how many parts a level with `rows` rows has; 0 where it is one file."""
    return -(-rows // PART_ROWS) if rows > PART_ROWS else 0


def level_path(level: int, parts: int) -> str:
    """Return the path of a level in a published folder: that of its file, or of the folder of its parts."""
    return f"{COUNTS}/level_{level}" if parts else f"{COUNTS}/level_{level}.parquet"


def level_files(level: int, parts: int) -> list[str]:
    """Return the paths of the files of a level in a published folder, in the order of their rows, which is that of their names."""
    path = level_path(level, parts)
    digits = max(4, len(str(parts - 1)))
    return [f"{path}/part-{number:0{digits}}.parquet" for number in range(parts)] or [path]


def level_csv(level: int) -> str:
    """Return the path of a level as CSV in a published folder: one file, however large the level is."""
    return f"{COUNTS}/level_{level}.csv"


def files_there(folder: Path, level: int) -> list[Path]:
    """Return the files of a level that a complete published folder has, in the order of their rows."""
    parts = len(list((folder / level_path(level, 1)).glob("part-*.parquet")))
    return [folder / name for name in level_files(level, parts)]
