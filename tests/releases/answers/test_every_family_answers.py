"""What every family of releases says of any box: its count is a sum of rows, its interval holds it, and it is the same wherever it is shown."""

import itertools
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tasks.pages.explorer.payload import payload
from tasks.released.boxes import Boxes, Met, coarsest_boxes
from tasks.released.families import estimate_of
from tasks.released.query.answers import answer
from tasks.released.query.areas import Area
from tasks.released.query.sets import areas_in, set_of
from tasks.released.sources.folder import open_folder
from tasks.released.sources.published import FolderSource
from tests.support.folders import without_noisy_counts
from tests.support.library import FAMILIES, ROWS, TABLE

TRIPS = [name for name, row in ROWS.items() if row[TABLE] == "trips"]
FEW = 6  # boxes of a kind


@pytest.fixture(params=[*FAMILIES, *TRIPS, "sizes by tenure"])
def folder(request, library):
    """Return a published folder of each family."""
    return library[request.param].folder


def estimate_in(folder):
    """Return what a folder says."""
    return estimate_of(FolderSource(open_folder(folder)))


def some_boxes(estimate, levels, chance):
    """Return some boxes of some axis levels."""
    sizes = [axis.areas(level) for axis, level in zip(estimate.source.tree.axes, levels, strict=True)]
    return Boxes(levels, tuple(chance.integers(0, size, FEW if min(sizes) else 0) for size in sizes))


def areas_of(estimate, boxes, box):
    """Return the areas of a box as a question names them."""
    axes = estimate.source.tree.axes
    paths = [axis.paths(level).rows() if level else [()] for axis, level in zip(axes, boxes.levels, strict=True)]
    numbers = [int(of[box]) for of in boxes.areas]
    named = zip(boxes.levels, paths, numbers, strict=True)
    return [Area(level, of_axis[number], number) for level, of_axis, number in named]


def check_alike(found, box, asked):
    """Check that one of many answers is the answer to the question, and holds its count."""
    stated = (int(found.low[box]), int(found.high[box])) if found.stated[box] else (None, None)
    assert (int(found.count[box]), *stated) == (asked.count, asked.low, asked.high)
    assert found.how(box) == asked.how
    assert (found.deviation is None) == (asked.deviation is None)
    if found.deviation is not None:
        assert found.deviation[box] == pytest.approx(asked.deviation, rel=1e-9)
    if asked.low is not None and asked.high is not None:
        assert 0 <= asked.low <= max(asked.count, 0) <= asked.high


@pytest.mark.parametrize("has_noisy", [True, False])
def test_any_box_is_the_sum_of_its_rows_and_is_answered_alike(folder, tmp_path, has_noisy):
    """Whether it is asked about by itself or with others, simultaneously or not, with noisy counts published or without."""
    where = folder if has_noisy else without_noisy_counts(folder, tmp_path / "bare")
    estimate, chance = estimate_in(where), np.random.default_rng(1)
    source = estimate.folder
    every = [*itertools.product(*(range(len(names) + 1) for names in source.folder.axes.values()))]
    for levels in [every[0], every[-1], *(every[number] for number in chance.choice(len(every), 3).tolist())]:
        boxes = some_boxes(estimate, levels, chance)
        found, level = estimate.answers(boxes), source.level_of(boxes)
        at_once = estimate.answers(boxes, simultaneous=True)
        if not source.manifest.own_views:  # which say how far they are from sums of rows
            rows = Met.of(source.tree, source.level_table(level), boxes)
            assert found.count.tolist() == rows.sums("count").tolist()
        for box in range(min(len(boxes), 2)):
            areas = areas_of(estimate, boxes, box)
            check_alike(found, box, answer(source.folder, areas))
            check_alike(at_once, box, answer(source.folder, areas, simultaneous=True))


@pytest.mark.parametrize("has_noisy", [True, False])
def test_a_row_has_one_interval(folder, tmp_path, has_noisy):
    """A row is answered with the interval of its table, also alone; it holds that of the question, so that this covers as often as it promises."""
    estimate = estimate_in(folder if has_noisy else without_noisy_counts(folder, tmp_path / "bare"))
    source, confidence = estimate.folder, estimate.folder.manifest.intervals.confidence
    for level in range(len(source.levels)):
        table = source.level_table(level)
        boxes = Boxes(table.levels, table.areas)
        found, question = estimate.answers(boxes), estimate.answers(boxes, confidence=confidence)
        assert (table.columns["low"].drop_nulls() >= 0).all()
        if source.manifest.own_views or table.columns["low"].null_count():
            continue
        assert found.count.tolist() == table.column("count").tolist()
        only_children = [place for chosen, _ in coarsest_boxes(source.tree, boxes) for place in chosen]
        inside = (found.low <= question.low) & (question.high <= found.high) | ~question.stated
        assert np.delete(inside, np.array(only_children, dtype=np.int64)).all(), (
            level
        )  # which a question takes as their parents
        if estimate.has_rows_of(boxes):
            assert found.ends() == {end: table.column(end).tolist() for end in ("low", "high")}
            alone = answer(source.folder, areas_of(estimate, boxes, 0))
            assert [[alone.low], [alone.high]] == [of[:1].tolist() for of in (found.low, found.high)]


def test_rows_are_shown_everywhere_as_their_tables_have_them(folder):
    """The explorer, and CSV where there is one, show of each row the count, the interval and the mark of its table."""
    estimate, shown = estimate_in(folder), payload(open_folder(folder))
    numbers = ["count", "low", "high"]
    for table in shown["tables"]:
        if not table["source"].startswith("level "):
            continue
        rows = [place for place, count in enumerate(table["count"]) if count]
        if table["rows"]:
            of_level = estimate.folder.level_table(table["rows"]["level"]).columns
            assert [table["count"][place] for place in rows] == of_level["count"].to_list()
            if table["rows"]["promise"] == "rows":
                assert all([table[end][place] for place in rows] == of_level[end].to_list() for end in ("low", "high"))
            marks = of_level["signal"].cast(int).to_list()
            assert table["signal"] is None or [table["signal"][place] for place in rows] == marks
        places = zip(shown["axes"], table["at"], strict=True)
        sizes = [len(axis["levels"][at - 1]["codes"]) if at else 1 for axis, at in places]
        found = estimate.answers(Boxes(tuple(table["at"]), np.unravel_index(np.arange(len(table["count"])), sizes)))
        assert table["count"] == found.count.tolist()
        assert {end: table[end] for end in ("low", "high")} == found.ends()
        assert (table["sd"] is None) == (found.deviation is None)
    if (folder / "counts.csv").exists():
        finest = pl.read_csv(folder / "counts.csv", infer_schema=False).select(numbers)
        table = estimate.folder.level_table(len(estimate.folder.levels) - 1).columns.select(numbers)
        assert finest.rows() == table.cast(pl.String).rows()


@pytest.mark.parametrize("has_noisy", [True, False])
def test_a_sum_of_areas_is_the_sum_of_its_rows(folder, tmp_path, has_noisy):
    """Any areas of each axis, on any level: the count is that of the rows inside, and an interval holds it; where there is none, it says why."""
    published = open_folder(folder if has_noisy else without_noisy_counts(folder, tmp_path / "bare"))
    source, chance = FolderSource(published), np.random.default_rng(3)
    finest = source.level_table(len(source.levels) - 1)
    for _ in range(8):
        asked, inside = [], np.ones(len(finest), dtype=bool)
        for axis, own, areas in zip(source.tree.axes, finest.levels, finest.areas, strict=True):
            level = int(chance.integers(0, own + 1)) if axis.areas(own) else 0
            size = axis.areas(level)
            some = np.sort(chance.choice(size, min(size, int(chance.integers(1, 5))), replace=False)) if level else [0]
            asked.append(set_of(published, axis.name, areas_in(axis, level, np.array(some)), "some"))
            inside &= np.isin(axis.ancestors(areas, own, level), some)
        for simultaneous in (False, True):
            found = answer(published, asked, simultaneous=simultaneous)
            if not source.manifest.own_views:
                assert found.count == finest.column("count")[inside].sum()
            if found.low is not None and found.high is not None:
                assert 0 <= found.low <= max(found.count, 0) <= found.high
            else:
                assert any(why in found.how for why in ("not published", "missing from it", "no simultaneous interval"))


def test_a_set_that_is_one_area_is_answered_as_the_area(folder):
    """Children that are all of a family are their parent, and all areas are everything: count, interval and explanation are the same."""
    published, chance = open_folder(folder), np.random.default_rng(4)
    axes = published.tree.axes if published.has_tree else ()
    for number, axis in enumerate(axes):
        for level in range(axis.depth):
            area = int(chance.integers(0, axis.areas(level)))
            children = areas_in(axis, level + 1, np.arange(*axis.first_child[level][area : area + 2]))
            family = set_of(published, axis.name, children, "all of it")
            [piece] = family.pieces
            assert piece.level <= level
            alone = [[of if of_axis is axis else Area(0, ()) for of_axis in axes] for of in (family, piece)]
            found = [answer(published, of) for of in alone]
            of_area, of_set = (replace(of, cells={}, areas=()) for of in found)
            assert of_area == of_set, number
