"""Levels of which every cell above holds one: they repeat the level above, and nothing else changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.mechanisms import MECHANISMS
from flows.trials.in_memory import SeenTable, seen_table, try_scales
from tests.support.passes import noise_of
from tests.support.universe import Path, Universe, universe_of

WALKING = ["inftda", "inftda_reconciled", "inftda_lenient", "inftda_shrunk", "tda_l2"]


def only_child(path: Path, at: int) -> Path:
    """Return a path with a level more, at which its area is the only one in the area above it."""
    return (*path[:at], "only", *path[at:])


@st.composite
def pairs(draw: st.DrawFn, universes: st.SearchStrategy[Universe]) -> tuple[Universe, Universe, list[int]]:
    """Draw a universe in which no level repeats another, the same with levels that do, and the numbers of these."""
    plain = draw(universes.filter(lambda of: all(of.tree.same_as(level) is None for level in range(of.tree.depth + 1))))
    paths, steps = [list(of_axis) for of_axis in plain.paths], list(plain.tree.steps)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(steps)))  # the new level comes after this one
        axis = draw(st.integers(0, len(paths) - 1))
        own = steps[:place].count(axis)
        paths[axis] = [only_child(path, own) for path in paths[axis]]
        steps.insert(place, axis)
    deep = universe_of(paths, steps)
    return plain, deep, [level for level in range(deep.tree.depth + 1) if deep.tree.same_as(level) is not None]


def table_of(universe: Universe, counts: list[int]) -> SeenTable:
    """Return a table over the leaves of a universe, in the order of their paths."""
    there = [(leaf, count) for leaf, count in zip(universe.leaves(), counts, strict=True) if count]
    areas = [universe.areas(leaf) for leaf, _ in there]
    columns = [np.array([of[axis] for of in areas], dtype=np.int64) for axis in range(len(universe.paths))]
    return seen_table(universe.tree, columns, np.array([count for _, count in there], dtype=np.int64))


@pytest.mark.parametrize(
    "mechanism",
    ["inftda_reconciled", "inftda_shrunk"]
    + [pytest.param(name, marks=pytest.mark.thorough) for name in ("inftda", "inftda_lenient", "tda_l2")],
)
@settings(max_examples=20)
@given(st.data())
def test_nothing_else_changes(universes: st.SearchStrategy[Universe], mechanism: str, data: Any) -> None:
    """The same noise gives the same counts with repeated levels and without; these have the counts of the level above."""
    plain, deep, repeated = data.draw(pairs(universes))
    counts = data.draw(st.lists(st.integers(0, 9), min_size=len(plain.leaves()), max_size=len(plain.leaves())))
    scale, seed = data.draw(st.sampled_from([0.7, 4.0])), data.draw(st.integers(0, 99))
    exact = data.draw(st.booleans())
    own = [level for level in range(deep.tree.depth + 1) if level not in repeated]
    assert len(own) == plain.tree.depth + 1
    scales = [0.0 if exact and not level else scale for level in range(plain.tree.depth + 1)]
    of_level = dict(zip(own, scales, strict=True))
    recipe, asked_plain, asked_deep = MECHANISMS[mechanism], list[int](), list[int]()
    without = try_scales(table_of(plain, counts), recipe, scales, noise_of(seed, asked_plain)).released
    with_them = try_scales(
        table_of(deep, counts),
        recipe,
        [of_level.get(level) for level in range(deep.tree.depth + 1)],
        noise_of(seed, asked_deep),
    ).released
    if without[0].counts[0]:  # a root that is released as 0 has no cell that could repeat it, so nothing below is drawn
        assert asked_deep == asked_plain
    for level, frontier in zip(own, without, strict=True):
        assert with_them[level].counts.tolist() == frontier.counts.tolist()
    for level in repeated:
        above = with_them[level - 1]
        kept = above.counts > 0 if level == 1 else slice(None)
        assert with_them[level].counts.tolist() == above.counts[kept].tolist()


def test_which_levels_repeat_is_a_matter_of_the_codebook(universe_of: Callable[..., Universe]) -> None:
    """One area at the top, one area in each at the bottom, and several levels in a row; the first of them is named.

    Codes that come from the records may not decide what is measured: what no codebook lists repeats nothing.
    """
    universe = universe_of([[("X", "a", "1", "1"), ("X", "b", "1", "1")], [("Y",)]], [0, 1, 0, 0, 0])
    assert [universe.tree.same_as(level) for level in range(6)] == [None, 0, 0, None, 3, 3]
    tree = universe_of([[("X", "a"), ("X", "b")]], [0, 0]).tree
    tree = replace(tree, axes=(replace(tree.axes[0], is_listed=False),))
    assert [tree.same_as(level) for level in range(3)] == [None, None, None]
