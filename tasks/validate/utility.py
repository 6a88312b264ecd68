"""Errors of released counts and what these are good for: measures on data that may be seen, never beside a release.

A cell is discovered if its released count is above 0. A count below 0, which a few mechanisms release, is an error like any other
and no discovery (Boninsegna and Silvestri 2025).

`UTILITIES` names every measure that `trellis compare --utility` knows. A new measure is a function here and a line there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from tasks.tree.axis import Axis, FloatArray, IntArray
from tasks.tree.frontier import Frontier, joined, locate, sums_of_children
from tasks.tree.order import Tree
from tasks.validate.fleet import Demand, Service, busy_vehicles, flow_vehicles, pooled_vehicles


@dataclass(frozen=True, slots=True)
class LevelErrors:
    """How far the released counts of one level are from the truth.

    Attributes:
        max_absolute: the largest absolute error of any cell, records.
        mean_absolute: the mean absolute error over the cells with a true or a released count, records; 0 where there is none.
        l1: the sum of absolute errors, records.
        false_discovery: of the discovered cells, the share whose true count is zero; 0 where there is none.
        false_negative: of the cells with a true count, the share that is not discovered; 0 where there is none.
    """

    level: int
    max_absolute: int
    mean_absolute: float
    l1: int
    false_discovery: float
    false_negative: float


def level_errors(tree: Tree, truth: Frontier, released: Frontier) -> LevelErrors:
    """Return the errors of one level.

    Args:
        truth: the nodes with a true count; one with 0, as an empty root is, counts as none.
        released: those with a released count, which may be negative.
    """
    return cell_errors(released.level, *_side_by_side(tree, truth, released))


def violations(tree: Tree, nodes: Frontier, below: Frontier | None) -> int:
    """Return how many counts of a level are below 0, and of how many nodes the counts of the next level do not add up to theirs.

    Args:
        nodes: those of the level with a count.
        below: those of the next level, in any order; None for the finest level.
    """
    broken = int(np.count_nonzero(nodes.counts < 0))
    if below is None:
        return broken
    order = np.lexsort(tree.areas_above(below.level, below.areas))
    children = Frontier(below.level, tuple(of_axis[order] for of_axis in below.areas), below.counts[order])
    sums = joined(nodes.level, [nodes[:0], *sums_of_children(tree, nodes.level, [children])])
    one, other = _side_by_side(tree, sums, nodes)
    return broken + int(np.count_nonzero(one != other))


def _side_by_side(tree: Tree, truth: Frontier, released: Frontier) -> tuple[IntArray, IntArray]:
    """Return the counts of the cells that either of two tables of a level has, 0 where one has none."""
    row = locate(released.areas, truth.areas, tree.sizes(released.level))
    missed = truth.counts.copy()
    missed[row[row >= 0]] = 0
    true = np.concatenate((np.append(truth.counts, 0)[row], missed))
    return true, np.append(released.counts, np.zeros_like(missed))


def cell_errors(number: int, truth: IntArray, released: IntArray) -> LevelErrors:
    """Return the errors of a level or view, of which all cells with a count are listed.

    Args:
        truth: the true counts, int64, shape (cells,), records.
        released: the released counts, int64, shape (cells,), records.
    """
    absolute, is_true, is_discovered = np.abs(released - truth), truth != 0, released > 0
    l1, cells, with_records = int(absolute.sum()), int((is_true | (released != 0)).sum()), int(is_true.sum())
    discovered, true = int(is_discovered.sum()), int((is_discovered & is_true).sum())
    return LevelErrors(
        level=number,
        max_absolute=int(absolute.max(initial=0)),
        mean_absolute=l1 / max(cells, 1),
        l1=l1,
        false_discovery=(discovered - true) / max(discovered, 1),
        false_negative=(with_records - true) / max(with_records, 1),
    )


@dataclass(frozen=True, slots=True)
class UtilityTerms:
    """What a spec says of a measure, in its section `utility.<name>`.

    Attributes:
        keys: the keys of the section, but those that name a table.
        tables: the tables that the section names, by key; every column is text.
        listed: the codes of each axis whose codes the spec lists itself, in the order of the spec.
    """

    keys: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    listed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


# The tree, the true leaves, the released leaves, and the terms, to numbers by name; None where a number does not exist.
# It raises a ValueError, whose text begins with a key of the section, where the terms do not fit the tree.
Utility = Callable[[Tree, Frontier, Frontier, UtilityTerms], Mapping[str, float | None]]


def fleet(tree: Tree, true: Frontier, released: Frontier, terms: UtilityTerms) -> dict[str, float | None]:
    """Return how many vehicles the released trips need for each one that the true trips need.

    Args:
        tree: the axes and their order. The finest areas of the two ends are the stops.
        released: the released leaves, whose counts may be below 0.
        terms: the keys `period`, `origin` and `destination` name axes; `zone` names a level of each end; `minutes` is the
            length of a period and `capacity` the seats of a vehicle. The table `durations` has the minutes of each pair of stops.
    Returns:
        `busy`, `flow` and `pooled`, as in `tasks.validate.fleet`; None where the true trips need no vehicle.
    Raises:
        ValueError: the durations do not fit the stops, or the two ends have other zones.
    """
    number = {axis.name: place for place, axis in enumerate(tree.axes)}
    period, origin, destination = (number[terms.keys[key]] for key in ("period", "origin", "destination"))
    service, places = _service(tree, period, origin, destination, terms), _places(tree, period, terms)
    true_trips, released_trips = (
        Demand(places[leaves.areas[period]], leaves.areas[origin], leaves.areas[destination], leaves.counts)
        for leaves in (true, released)
    )
    ratios = dict[str, float | None]()
    for name, vehicles in (("busy", busy_vehicles), ("flow", flow_vehicles), ("pooled", pooled_vehicles)):
        needed = vehicles(true_trips, service)
        ratios[name] = vehicles(released_trips, service) / needed if needed else None
    return ratios


UTILITIES: dict[str, Utility] = {
    "fleet": fleet,
}


def _service(tree: Tree, period: int, origin: int, destination: int, terms: UtilityTerms) -> Service:
    """Return the stops with their zones and minutes, given the numbers of the axes."""
    finest = tree.axis_levels(tree.depth)
    zones = [
        _zones(tree.axes[axis], finest[axis], level)
        for axis, level in zip((origin, destination), terms.keys["zone"], strict=True)
    ]
    names = np.unique(zones[0])
    if not np.array_equal(names, np.unique(zones[1])):
        raise ValueError("zone must have the same codes at both ends, since vehicles go on from where they arrive.")
    return Service(
        minutes=_minutes(terms.tables["durations"], [_stops(tree, axis) for axis in (origin, destination)]),
        origin_zone=np.searchsorted(names, zones[0]),
        destination_zone=np.searchsorted(names, zones[1]),
        zones=len(names),
        periods=tree.axes[period].areas(finest[period]),
        period_minutes=terms.keys["minutes"],
        capacity=terms.keys["capacity"],
    )


def _zones(axis: Axis, finest: int, name: str) -> np.ndarray[Any, Any]:
    """Return the code of the zone of each stop."""
    level = axis.level_names.index(name) + 1
    return axis.codes[level - 1].to_numpy().astype(str)[axis.ancestors(np.arange(axis.areas(finest)), finest, level)]


def _stops(tree: Tree, axis: int) -> pl.Series:
    """Return the codes of the finest released areas of an axis, by its name."""
    return tree.axes[axis].codes[tree.axis_levels(tree.depth)[axis] - 1].alias(tree.axes[axis].name)


def _minutes(durations: pl.DataFrame, stops: list[pl.Series]) -> FloatArray:
    """Return the minutes of each pair of stops, float64, shape (origin stops, destination stops).

    Raises:
        ValueError: a column is missing, a code is unknown, a pair is missing or listed twice, or minutes are not finite and > 0.
    """
    for column in (*(of.name for of in stops), "minutes"):
        if column not in durations.columns:
            raise ValueError(f"durations must have a column {column}.")
    minutes = durations["minutes"].cast(pl.Float64, strict=False)
    if not (minutes.is_finite() & (minutes > 0)).fill_null(value=False).all():
        raise ValueError("durations must have finite minutes > 0 in every row.")
    numbers = list[IntArray]()
    for of in stops:
        known = pl.DataFrame({"code": of, "number": np.arange(len(of))})
        numbered = durations.select(code=of.name).join(known, on="code", how="left", maintain_order="left")
        if numbered["number"].null_count():
            unknown = numbered.filter(pl.col("number").is_null())["code"][0] or "a blank code"
            raise ValueError(f"durations must have only codes of {of.name} in that column; {unknown} is not one.")
        numbers.append(numbered["number"].to_numpy())
    size = len(stops[1])
    pair = numbers[0] * size + numbers[1]
    times = np.bincount(pair, minlength=len(stops[0]) * size)
    if (times != 1).any():
        wrong = int(np.flatnonzero(times != 1)[0])
        text = f"{stops[0][wrong // size]} to {stops[1][wrong % size]}"
        also = "" if times[wrong] else " Noise may give any pair a count, also that of a stop with itself."
        raise ValueError(f"durations must list each pair of stops once; {text} is there {times[wrong]} times.{also}")
    found_minutes: FloatArray = np.empty(len(times))
    found_minutes[pair] = minutes.to_numpy()
    return found_minutes.reshape(len(stops[0]), size)


def _places(tree: Tree, period: int, terms: UtilityTerms) -> IntArray:
    """Return the place of each period in time: as the spec lists them, or by number if all codes are numbers, or as text.

    The codes of an axis are numbered as text, in which 10 comes before 9.
    """
    axis = tree.axes[period]
    codes = axis.codes[tree.axis_levels(tree.depth)[period] - 1]
    listed = terms.listed.get(axis.name)
    if listed:
        order = pl.Series([listed.index(code) for code in codes])
    elif codes.str.contains(r"^[0-9]{1,18}$").all():
        order = codes.cast(pl.Int64)
    else:
        order = codes
    places = np.empty(len(codes), dtype=np.int64)
    places[order.arg_sort().to_numpy()] = np.arange(len(codes))
    return places
