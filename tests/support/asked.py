"""Answers about many boxes, held to the answers about each of them."""

import itertools
from pathlib import Path

import numpy as np

from tasks.explore.areas import paths_of
from tasks.query.answers import answer
from tasks.query.areas import Area
from tasks.query.folder import open_folder
from tasks.tabulate.answers import absent_high, answers
from tasks.tabulate.tables import Boxes, Tables

Asked = tuple[int, int | None, int | None]


def check_boxes(folder: Path, kinds: int = 20, each: int = 20) -> None:
    """Assert that random boxes of random kinds are answered as each by itself."""
    chance, tables = np.random.default_rng(1), Tables(open_folder(folder))
    every = list(itertools.product(*(range(len(levels) + 1) for levels in tables.folder.axes.values())))
    for number in chance.choice(len(every), min(kinds, len(every)), replace=False).tolist():
        levels = every[number]
        sizes = [axis.areas(level) for axis, level in zip(tables.tree.axes, levels, strict=True)]
        areas = tuple(chance.integers(0, size, each) for size in sizes)
        check(tables, Boxes(levels, areas))


def check(tables: Tables, boxes: Boxes) -> None:
    """Assert that boxes are answered as each by itself."""
    found = answers(tables, boxes)
    ends = [of if of is not None else [None] * len(boxes) for of in found.ends().values()]
    got = list(zip(found.count.tolist(), *ends, strict=True))
    wanted = [answer(tables.folder, asked) for asked in _areas(tables, boxes)]
    assert got == [(of.count, of.low, of.high) for of in wanted], boxes.levels
    deviations = [of.deviation for of in wanted]
    assert (found.deviation is None) == (deviations[0] is None)
    if found.deviation is not None:
        np.testing.assert_allclose(found.deviation, np.array(deviations, dtype=float), rtol=1e-9)


def check_absent(folder: Path, most: int = 150) -> list[int | None]:
    """Assert that no cell of a level without a row reaches further than is stated of the level; return what is stated, by level."""
    tables, stated = Tables(open_folder(folder)), list[int | None]()
    for level in range(len(tables.folder.manifest.levels)):
        bound, rows = absent_high(tables, level, 500_000), tables.rows(level)
        there = set(zip(*(of.tolist() for of in rows.areas), strict=True))
        cells = [cell for cell in itertools.product(*map(range, tables.tree.sizes(level))) if cell not in there]
        places = np.random.default_rng(2).permutation(len(cells))[:most]
        chosen = [cells[number] for number in places.tolist()]
        columns = zip(*chosen, strict=True) if chosen else [[]] * len(rows.areas)
        boxes = Boxes(rows.levels, tuple(np.array(of, dtype=np.int64) for of in columns))
        highs = [answer(tables.folder, asked).high for asked in _areas(tables, boxes)]
        assert bound is None or all(high is not None and high <= bound for high in highs), level
        stated.append(bound)
    return stated


def _areas(tables: Tables, boxes: Boxes) -> list[list[Area]]:
    """Return the areas of boxes as a question names them."""
    paths = [
        paths_of(axis, level) if level else [()] for axis, level in zip(tables.tree.axes, boxes.levels, strict=True)
    ]
    return [
        [
            Area(level, paths[axis][number], number)
            for axis, (level, number) in enumerate(zip(boxes.levels, box, strict=True))
        ]
        for box in zip(*(of.tolist() for of in boxes.areas), strict=True)
    ]
