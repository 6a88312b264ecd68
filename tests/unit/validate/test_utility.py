"""The measure `fleet` on leaves of a tree: which axis is what, the order of periods, and tables that do not fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from tasks.tree.axis import axis_from_codebook
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree, in_sequence
from tasks.validate.utility import Terms, fleet

STOPS = pl.DataFrame({"zone": ["a", "a", "b"], "stop": ["a1", "a2", "b1"]})
KEYS = {"period": "when", "origin": "from", "destination": "to", "zone": ("zone", "zone"), "minutes": 30, "capacity": 1}
DURATIONS = pl.DataFrame(
    {"from": [one for one in STOPS["stop"] for _ in range(3)], "to": [*STOPS["stop"]] * 3, "minutes": ["20"] * 9}
)


def tree_of(periods: Sequence[str]) -> Tree:
    """Return the tree of some periods and three stops in two zones, at both ends; the period comes last."""
    axes = (
        axis_from_codebook("to", STOPS),
        axis_from_codebook("from", STOPS),
        axis_from_codebook("when", pl.DataFrame({"when": sorted(periods)})),
    )
    return Tree(axes, in_sequence([2, 2, 1], [(0, 2), (1, 2), (2, 1)]))


def leaves(tree: Tree, *rows: tuple[str, str, str, int]) -> Frontier:
    """Return leaves by their codes, from, to and when, and their counts."""
    finest = {axis.name: axis.codes[-1].to_list() for axis in tree.axes}
    columns = [
        np.array([finest[name].index(row[place]) for row in rows], dtype=np.int64)
        for name, place in (("to", 1), ("from", 0), ("when", 2))
    ]
    return Frontier(tree.depth, tuple(columns), np.array([row[3] for row in rows], dtype=np.int64))


def terms_of(durations: pl.DataFrame = DURATIONS, listed: Any = None, **keys: object) -> Terms:
    """Return terms with some keys or the table changed."""
    return Terms(KEYS | keys, {"durations": durations}, listed or {})


def test_vehicles_are_compared() -> None:
    """Three released trips of one period and pair need three times the vehicles of one; pooled in vehicles of four, as many."""
    tree = tree_of("012")
    true, released = leaves(tree, ("a1", "b1", "0", 1)), leaves(tree, ("a1", "b1", "0", 3))
    assert fleet(tree, true, released, terms_of()) == {"busy": 2.0, "flow": 3.0, "pooled": 3.0}
    assert fleet(tree, true, released, terms_of(capacity=4)) == {"busy": 1.0, "flow": 1.0, "pooled": 1.0}
    other = leaves(tree, ("a1", "b1", "0", 1), ("a2", "b1", "0", 1))
    assert fleet(tree, true, other, terms_of(capacity=4)) == {"busy": 2.0, "flow": 2.0, "pooled": 1.0}


def test_without_a_true_trip_there_is_no_ratio() -> None:
    """Where the true trips need no vehicle, every number is None; where the released ones need none, it is 0."""
    tree = tree_of("012")
    some, none = leaves(tree, ("a1", "b1", "0", 1)), leaves(tree)
    assert fleet(tree, none, some, terms_of()) == {"busy": None, "flow": None, "pooled": None}
    assert fleet(tree, none, none, terms_of()) == {"busy": None, "flow": None, "pooled": None}
    assert fleet(tree, some, none, terms_of()) == {"busy": 0.0, "flow": 0.0, "pooled": 0.0}


@pytest.mark.parametrize(
    ("periods", "listed", "first", "last"),
    [
        ([str(number) for number in range(12)], None, "9", "10"),  # as text, 10 comes before 9
        (["07:00", "07:30", "08:00"], None, "07:30", "08:00"),
        (["night", "day", "dusk"], ("dusk", "night", "day"), "night", "day"),  # as the spec has them
    ],
)
def test_periods_follow_one_another(periods: list[str], listed: Any, first: str, last: str) -> None:
    """The vehicle of one period drives in the next one too, and not the other way round."""
    tree = tree_of(periods)
    once = leaves(tree, ("a1", "a2", first, 1))
    terms = terms_of(listed={"when": listed} if listed else {})
    onward = leaves(tree, ("a1", "b1", first, 1), ("b1", "a1", last, 1))
    assert fleet(tree, once, onward, terms)["flow"] == 1
    back = leaves(tree, ("a1", "b1", last, 1), ("b1", "a1", first, 1))
    assert fleet(tree, once, back, terms)["flow"] == 1  # begins at b, where it is needed first
    late = DURATIONS.with_columns(pl.lit("31").alias("minutes"))
    assert fleet(tree, once, onward, terms_of(late, terms.listed))["flow"] == 2


def test_a_third_axis_is_summed_over() -> None:
    """Trips that differ only in another feature share vehicles, as if the table did not have it."""
    tree = tree_of("012")
    purpose = axis_from_codebook("why", pl.DataFrame({"why": ["job", "leisure"]}))
    with_purpose = Tree((*tree.axes, purpose), (*tree.steps, 3))
    zero = np.zeros(2, dtype=np.int64)
    both = Frontier(6, (zero, zero, zero, np.arange(2)), np.ones(2, dtype=np.int64))
    one = Frontier(6, tuple(areas[:1] for areas in both.areas), np.ones(1, dtype=np.int64))
    assert fleet(with_purpose, one, both, terms_of(capacity=2)) == {"busy": 1.0, "flow": 1.0, "pooled": 1.0}


@pytest.mark.parametrize(
    ("durations", "told"),
    [
        (DURATIONS.drop("minutes"), "durations must have a column minutes"),
        (DURATIONS.rename({"from": "origin"}), "durations must have a column from"),
        (DURATIONS[:8], "b1 to b1 is there 0 times"),
        (DURATIONS[:0], "a1 to a1 is there 0 times"),
        (pl.concat((DURATIONS, DURATIONS[4:5])), "a2 to a2 is there 2 times"),
        (pl.concat((DURATIONS, DURATIONS[:1].with_columns(to=pl.lit("c9")))), "only codes of to in that column; c9"),
        (pl.concat((DURATIONS, DURATIONS[:1].with_columns(to=pl.lit(None, pl.String)))), "a blank code"),
        *(
            (DURATIONS.with_columns(minutes=pl.lit(wrong, pl.String)), "finite minutes > 0")
            for wrong in ("0", "-1", "nan", "inf", "soon", None)
        ),
    ],
)
def test_durations_that_do_not_fit_are_refused(durations: pl.DataFrame, told: str) -> None:
    """A column or a pair that is missing, a pair that is there twice, an unknown code, and minutes that are none are refused."""
    tree = tree_of("012")
    with pytest.raises(ValueError, match=f"^durations .*{told.removeprefix('durations ')}"):
        fleet(tree, leaves(tree), leaves(tree), terms_of(durations))


def test_zones_that_only_one_end_has_are_refused() -> None:
    """Where the two ends have other zones, a vehicle could not go on from where it arrives."""
    tree = tree_of("012")
    with pytest.raises(ValueError, match=r"^zone must have the same codes at both ends"):
        fleet(tree, leaves(tree), leaves(tree), terms_of(zone=("zone", "stop")))
