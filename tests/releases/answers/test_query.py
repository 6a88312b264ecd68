"""Questions to a published folder: every fixed box is covered as often as is promised, and counts and cells are the tables'."""

import math
import re
import shutil
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.answers.query import AreaCounted, query_answer
from flows.api import open_release, release
from flows.console.release_view import show_query
from flows.trials.in_memory import public_table
from storage.database.connections import store
from storage.errors import StoreError, UsageError
from tasks.laws.gaussian import GAUSSIAN, gaussian_quantile
from tasks.laws.laplace import laplace_quantile
from tasks.laws.law import LevelNoise
from tasks.mechanisms import MECHANISMS
from tasks.released.boxes import (
    Children,
    areas_met,
    as_one,
    children_of,
    fewest_areas,
    level_of,
    lifted,
    lying_in,
    most_leaves,
    possible_cells,
)
from tasks.released.sums import box_intervals, leaf_sum_intervals, simultaneous_box_intervals
from tasks.uncertainty.intervals import NO_CAP, above_share, caps, intervals, margins_of, simultaneous_margins
from tests.support.boxes import box_of, met_cells, set_box, some_cells, table_of
from tests.support.folders import without_noisy_counts
from tests.support.laws import gaussians, sampler_of
from tests.support.passes import counts_of, tables
from tests.support.scales import try_scales
from tests.support.spec import SPEC as COUNTRY

EXAMPLES = settings(max_examples=40)  # each is a universe, and most a first pass over it

ONCE = MECHANISMS["inftda"]
CONFIDENCE = 0.9
RUNS = 400


def noisy_of(cells):
    """Return the noisy counts of the cells that a box meets."""
    return cells.noisy[cells.met.numbers == 0]


def with_none_dropped(cells):
    """Return cells as if each had a child."""
    children = cells.children and Children(cells.children.noisy, np.maximum(cells.children.cells, 1))
    return replace(cells, children=children)


def count_in(tree, level, areas, counts, box):
    """Return the sum of the counts of those nodes of a level, which is fine enough, that lie in a box."""
    return int(counts[lying_in(tree, level, areas_met(tree, level, box), areas)].sum())


def released_in(tree, frontier, box):
    """Return the released count of a box."""
    return count_in(tree, frontier.level, frontier.areas, frontier.counts, box)


def true_in(table, level, box):
    """Return the true count of a box, by a level that is fine enough."""
    return count_in(table.tree, level, table.levels[level].areas, table.levels[level].true_counts, box)


# --- geometry -------------------------------------------------------------------------------------------------------------


@st.composite
def boxes_of(draw, universe):
    """Draw a box of a universe, and the path of its area per axis."""
    paths = []
    for of_axis in universe.paths:
        path = draw(st.sampled_from(of_axis))
        paths.append(path[: draw(st.integers(0, len(path)))])
    return box_of(tuple(map(len, paths)), universe.areas(tuple(paths))), tuple(paths)


def is_inside(node, paths):
    """Return whether a node, of levels as fine or finer, lies in the areas with some paths."""
    return all(own[: len(path)] == path for own, path in zip(node, paths, strict=True))


@EXAMPLES
@given(st.data())
def test_a_box_meets_the_cells_that_share_a_leaf_with_it(universes, data):
    """Of every level it meets those cells, and of its own, the first such, it has them whole."""
    universe = data.draw(universes)
    box, paths = data.draw(boxes_of(universe))
    tree, inside = universe.tree, [leaf for leaf in universe.leaves() if is_inside(leaf, paths)]
    for level in range(tree.depth + 1):
        cells = {universe.areas(universe.node(leaf, level)) for leaf in inside}
        assert cells == set(product(*areas_met(tree, level, box)))
    own = level_of(tree.steps, box.levels)
    for level in range(tree.depth + 1):
        is_whole = all(reached >= asked for reached, asked in zip(tree.axis_levels(level), box.levels, strict=True))
        assert is_whole == (level >= own)
    cells = {universe.node(leaf, own) for leaf in inside}
    below = [sum(universe.node(leaf, own) == node for leaf in inside) for node in cells]
    assert max(below) <= most_leaves(tree, own, box)[0]
    assert (len(below) > 1) or most_leaves(tree, own, box)[0] == below[0]


def leaves_in(tree, box):
    """Return the leaves of a single box, by their areas."""
    of_axes = zip(tree.axes, box.levels, box.areas, strict=True)
    every = [(np.arange(axis.areas(axis.depth)), axis, own, areas) for axis, own, areas in of_axes]
    above = [(axis.ancestors(leaves, axis.depth, own), areas) for leaves, axis, own, areas in every]
    return set(product(*(np.flatnonzero(np.isin(of, areas)).tolist() for of, areas in above)))


@EXAMPLES
@given(st.data())
def test_a_set_meets_the_cells_that_share_a_leaf_with_it(universes, data):
    """Any areas of each axis: of every level the cells that hold one of its leaves, each once, and as many are possible."""
    tree = data.draw(universes).tree
    levels = [data.draw(st.integers(0, axis.depth)) for axis in tree.axes]
    sizes = [axis.areas(level) for axis, level in zip(tree.axes, levels, strict=True)]
    box = set_box(levels, [data.draw(st.sets(st.integers(0, size - 1), min_size=1)) for size in sizes])
    leaves = leaves_in(tree, box)
    for level in range(tree.depth + 1):
        reached = tree.axis_levels(level)
        above = lifted(tree, tuple(axis.depth for axis in tree.axes), np.array([*leaves]).T, reached)
        cells = set(zip(*(of.tolist() for of in above), strict=True))
        met = areas_met(tree, level, box)
        assert cells == set(product(*(of.tolist() for of in met)))
        assert possible_cells(tree, level, box).tolist() == [len(cells)]
        every = np.indices(tree.sizes(level)).reshape(len(sizes), -1)
        chosen = every[:, lying_in(tree, level, met, list(every))]
        assert cells == set(zip(*chosen.tolist(), strict=True))


@EXAMPLES
@given(st.data())
def test_the_parts_of_a_sum_are_the_same_sum_as_one(universes, data):
    """Areas of several levels of one axis, with all of another: the fewest areas have the same leaves as all at one level, each once."""
    tree = data.draw(universes).tree
    axis, others = tree.axes[0], [(of.depth, range(of.areas(of.depth))) for of in tree.axes[1:]]
    chosen = sorted(data.draw(st.sets(st.integers(0, axis.areas(axis.depth) - 1), min_size=1)))
    fewest = [(level, areas.tolist()) for level, areas in fewest_areas(axis, axis.depth, np.array(chosen))]
    parts = [set_box(*zip(side, *others, strict=True)) for side in fewest]
    leaves = [leaf for box in parts for leaf in leaves_in(tree, box)]
    assert len(leaves) == len(set(leaves))
    wanted = leaves_in(tree, set_box(*zip((axis.depth, chosen), *others, strict=True)))
    assert set(leaves) == wanted == leaves_in(tree, as_one(tree, parts))


@st.composite
def measured(draw, universes):
    """Draw a universe, a table, and a release of it in one pass in which much is dropped."""
    universe, _, table = draw(tables(universes))
    sigma = draw(st.sampled_from([0.0, 1.0, 6.0]))
    sigmas = [draw(st.sampled_from([0.0, sigma])), *[sigma] * universe.tree.depth]
    noise = sampler_of("gaussian", draw(st.integers(0, 2**32)))
    return universe, table, try_scales(table, ONCE, sigmas, noise), sigmas


@EXAMPLES
@given(st.data())
def test_what_was_not_measured_lies_in_one_dropped_cell(universes, data):
    """Each cell of a box's level is measured, or lies in exactly one cell above that was dropped and meets the box."""
    universe, table, trial, _ = data.draw(measured(universes))
    box, paths = data.draw(boxes_of(universe))
    tree, own, levels = table.tree, level_of(table.tree.steps, box.levels), trial.measured
    there = [set(zip(*(areas.tolist() for areas in level.cells.areas), strict=True)) for level in levels]
    dropped = []
    for level in range(own):
        nodes = [node for node in universe.nodes(level) if universe.areas(node) in there[level]]
        inside, cells = set(product(*areas_met(tree, level, box))), table_of(tree, levels[level])
        children = children_of(tree, level, cells, table_of(tree, levels[level + 1]))
        childless = set(zip(*(areas[children.cells == 0].tolist() for areas in cells.areas), strict=True))
        dropped += [node for node in nodes if universe.areas(node) in inside & childless]
    for node in universe.nodes(own):
        if is_inside(node, paths):
            holding = [above for above in dropped if is_inside(node, above)]
            assert len(holding) == (universe.areas(node) not in there[own])


# --- intervals ------------------------------------------------------------------------------------------------------------


@EXAMPLES
@given(st.data())
def test_a_box_of_one_cell_has_the_interval_of_the_tables(universes, data):
    """For every cell that was measured it is that of `intervals` with the margins and caps of tables, of both kinds."""
    _, table, trial, sigmas = data.draw(measured(universes))
    tree, levels = table.tree, trial.measured
    own = data.draw(st.sampled_from([level.cells.level for level in levels if len(level.cells)]))
    possible = [tree.possible_cells(level) for level in range(tree.depth + 1)]
    cells = levels[own].cells
    row = data.draw(st.integers(0, len(cells) - 1))
    box = box_of(tree.axis_levels(own), tuple(int(areas[row]) for areas in cells.areas))
    areas = tuple(int(of[0]) for of in box.areas)
    inside, count = met_cells(tree, levels, box, own), counts_of(trial.released[own]).get(areas, 0)
    found = box_intervals(inside, gaussians(sigmas), CONFIDENCE, np.array([count]))
    at_all = simultaneous_margins(gaussians(sigmas), possible, CONFIDENCE)
    at_once = simultaneous_box_intervals(inside, at_all, np.array([count]))
    kinds = (margins_of(gaussians(sigmas), CONFIDENCE), found), (at_all, at_once)
    for margins, stated in kinds:
        above = np.array([NO_CAP])
        for level in range(own):
            above = caps(noisy_of(inside[level]), margins[level].cap, above)
        low, high = intervals(noisy_of(inside[own]), margins[own].own, above, np.array([count]))
        assert (stated.low, stated.high) == (int(low[0]), int(high[0]))
        assert stated.measured == 1
        assert stated.dropped_under == stated.cap == 0


def flat(universe_of, areas, steps):
    """Return the tree of axes with one level each."""
    return universe_of([[(f"{area:02d}",) for area in range(of_axis)] for of_axis in areas], steps).tree


def covered(table, sigmas, *parts, seed, but):
    """Return how often intervals of boxes cover their truth together, over all noise, and how often those do that see what `but` makes of cells and laws."""
    tree, owns = table.tree, [level_of(table.tree.steps, box.levels) for box in parts]
    true_count, hits = sum(true_in(table, own, box) for own, box in zip(owns, parts, strict=True)), [0, 0]
    noise = sampler_of("gaussian", seed)
    for _ in range(RUNS):
        trial = try_scales(table, ONCE, sigmas, noise)
        for number, changed in enumerate([None, but]):
            low = high = 0
            for own, box in zip(owns, parts, strict=True):
                given = met_cells(tree, trial.measured, box, own), gaussians(sigmas)
                count = np.array([released_in(tree, trial.released[own], box)])
                confidence = 1 - (1 - CONFIDENCE) / len(parts)
                found = box_intervals(*(changed(*given) if changed else given), confidence, count)
                low, high = low + int(found.low[0]), high + int(found.high[0])
            hits[number] += low <= true_count <= high
    return hits[0] / RUNS, hits[1] / RUNS


LEAST = CONFIDENCE - 4.75 * math.sqrt(0.09 / RUNS)  # which 0.9 misses once in a million times


MUCH_ABOVE = [0.0, 12.0, 1.0]  # σ: half of the cells above are dropped, and what is measured below is nearly exact


def none_dropped(cells, laws):
    """Return cells as if none under them were dropped."""
    return [with_none_dropped(of) for of in cells], laws


@pytest.mark.parametrize("parts", [
    [box_of((0, 1), (0, 1))],
    pytest.param([set_box((1, 1), [[0, 2, 3, 6, 7], [0]])], marks=pytest.mark.thorough),
    pytest.param([set_box((0, 1), [[0], [1]]), set_box((1, 1), [[0, 2, 5], [0]])], marks=pytest.mark.thorough),  # of two levels
])  # fmt: skip
def test_a_fixed_sum_is_covered_although_much_of_it_was_dropped(universe_of, parts):
    """A sum over cells of which half lie under dropped ones is covered with the stated probability, and not if the caps of these are left out."""
    first, second = np.divmod(np.arange(16), 2)
    sparse = public_table(flat(universe_of, (8, 2), (0, 1)), [first, second], np.full(16, 3))
    found, wrong = covered(sparse, MUCH_ABOVE, *parts, seed=1, but=none_dropped)
    assert found >= LEAST
    assert wrong < LEAST - 0.05


def test_what_was_dropped_together_is_covered(universe_of):
    """Where the sums over what was measured, less what stayed, are below all caps, a box of it all is covered, and not without the noise of these sums."""
    areas = np.arange(40)
    table = public_table(flat(universe_of, (40, 2), (0, 1)), [areas, np.ones_like(areas)], np.full(40, 5))
    sigmas = [0.0, 8.0, 1.0]

    def of_one(sigma, log_tail, terms=1):
        return gaussian_quantile(sigma, log_tail) if terms == 1 else 0

    without = [replace(of, law=replace(GAUSSIAN, quantile=of_one)) if of else of for of in gaussians(sigmas)]
    found, wrong = covered(table, sigmas, box_of((0, 1), (0, 1)), seed=3, but=lambda cells, _: (cells, without))
    assert found >= LEAST
    assert wrong < LEAST - 0.1


def test_alpha_is_shared_by_what_could_be_met():
    """A level above takes δ: one cell all of it, m cells half of it, and two sums a quarter each; n cells keep the rest."""
    sigmas = [0.0, 4.0, 4.0, 4.0]
    delta = above_share(gaussians(sigmas), CONFIDENCE)
    cap = gaussian_quantile(4.0, math.log(delta / 2 / 5))
    root, own = some_cells(1, [9000], children=3), some_cells(20, [500, 600, 700])
    z = gaussian_quantile(4.0, math.log((0.1 - delta) / 2), 3)
    few = [root, some_cells(5, [2000, 30, 5000], [1], below=6950, children=8), own]
    found = box_intervals(few, gaussians(sigmas), CONFIDENCE, np.array([1800]))
    assert (found.low, found.high) == (1800 - z, 1800 + z + 30 + cap)
    assert (found.measured, found.dropped_under, found.cap, found.level_above) == (3, 1, 30 + cap, -1)
    whole, parts = (gaussian_quantile(4.0, math.log(delta / 4), cells) for cells in (3, 8))
    together = [root, some_cells(5, [2000, 30, 5000], [1], below=7030, children=8), own]
    assert box_intervals(together, gaussians(sigmas), CONFIDENCE, np.array([1800])).cap == min(30 + cap, whole + parts)
    many = [root, some_cells(90, [2000, *[30] * 80], range(1, 81), below=2000, children=8), own]
    whole = gaussian_quantile(4.0, math.log(delta / 4), 81)
    assert box_intervals(many, gaussians(sigmas), CONFIDENCE, np.array([1800])).cap == 4400 + whole - (2000 - parts)
    little = [root, some_cells(1, [3], children=8), some_cells(9, [40] * 8)]
    bounded = box_intervals(little, gaussians(sigmas), CONFIDENCE, np.array([4]))
    assert bounded.level_above == 1  # which counts less than the noise of eight
    assert bounded.high == 3 + gaussian_quantile(4.0, math.log(delta))


def ends(total, leaves, sigma, cells=1):
    """Return low and high of a sum of leaves."""
    noise = LevelNoise(GAUSSIAN, sigma)
    low, high = leaf_sum_intervals(np.array([total]), np.array([leaves]), noise, math.log(0.05), cells)
    return int(low[0]), int(high[0])


def test_sums_of_leaves_have_the_noise_of_all_of_them():
    """n leaves go as far as n discrete Gaussians; several cells that hold at once add up their margins."""
    log_tail = math.log(0.05)
    z = gaussian_quantile(3.0, log_tail, 40)
    assert ends(1000, 40, 3.0) == (1000 - z, 1000 + z)
    assert ends(-2 * z, 40, 3.0) == (0, 0)  # no interval is below 0
    assert ends(1000, 40, 3.0, cells=5) == (1000 - 5 * z, 1000 + 5 * z)


# --- folders --------------------------------------------------------------------------------------------------------------

RELEASE = {"tree": "destination", "finest": "municipality", "intervals": {"simultaneous": True}}
SPEC = COUNTRY | {"name": "asked", "dataset": "asked", "release": RELEASE}
LEVELS = ("region", "province", "municipality")


@pytest.fixture(scope="module")
def make(tmp_path_factory, country):
    """Return what releases a small made-up country with some keys of the spec changed, from keys, in this process."""
    place = tmp_path_factory.mktemp("asked")
    shutil.copytree(country, place / "data")

    def made(**changed):
        name = str(changed.get("name", SPEC["name"]))
        return release({**SPEC, **changed, "dataset": name}, different_people=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        patch.chdir(place)
        with store():  # open all the time
            yield made


@pytest.fixture(scope="module")
def released(make):
    """Return a release by the default mechanism, with both kinds of intervals."""
    return make()


def areas_in(released, row):
    """Return the codes in a row of a table, by axis and level."""
    return {
        axis: {level: row[of] for level in levels for of in (level, f"{axis}_{level}") if of in row}
        for axis, levels in released.published.axes.items()
    }


def bare_of(released, folder):
    """Return a release without its noisy counts."""
    return open_release(without_noisy_counts(released.folder, folder))


def test_a_cell_without_a_row_is_at_most_its_cap(released):
    """A pair that has no row counts 0, and its interval ends where a cell above, or its own noisy count, lets it."""
    codebook = pl.read_parquet(released.folder / "noisy_counts/codebook.parquet")
    codes = sorted(set(codebook.filter(level="municipality")["code"]))
    there = set(released.table(6).select("origin_municipality", "destination_municipality").iter_rows())
    absent = [pair for pair in product(codes, codes) if pair not in there]
    answers = [released.query(origin=one, destination=other).row(0, named=True) for one, other in absent]
    most = released.table(1)["high"].max()
    assert all((found["count"], found["low"]) == (0, 0) and 0 <= found["high"] <= most for found in answers)
    assert any("dropped" in found["how"] for found in answers)


def test_frames_have_a_row_per_combination(released):
    """Lists of areas are combined; areas are named by code, by level and code, by path, or by a mapping."""
    rows = released.query(origin=["01", None], destination=["region=02", {"region": "01", "province": "0101"}, "all"])
    assert rows.columns == ["origin", "destination", "count", "low", "high", "level", "how"]
    assert rows["origin"].to_list() == ["01"] * 3 + ["all"] * 3
    assert rows["destination"].to_list() == ["region=02", "region=01,province=0101", "all"] * 2
    assert rows["level"].to_list() == [2, 3, 2, 1, 3, 0]
    assert rows.schema["low"] == pl.Int64
    assert released.query({"origin": "01"})["count"].to_list() == released.query(origin="region=01")["count"].to_list()
    reached = [None, "region", "region", "province", "province", *LEVELS[2:] * 2]
    assert released.levels["destination"].to_list() == reached


SEVERAL = "`all` means everything"


@pytest.mark.parametrize(("where", "told", "hint"), [
    ({"origin": "99"}, "origin: no level has an area 99.", "region (such as region=01)"),
    ({"origin": "province=0103x"}, "origin: there is no area province=0103x.", "municipality (such as"),
    ({"origin": {"town": "1"}}, "origin: has no level town.", "region, province, municipality"),
    ({"origin": 1}, "origin: no level has an area 1.", "Did you mean region=01?"),
    ({"origin": ""}, "origin must name an area, got nothing.", "For everything, leave origin out."),
    ({"origin": 1.5}, "origin: a code must be text, got 1.5.", "in quotes"),
    ({"origin": pl.DataFrame({"a": ["01", "02"]})}, "origin: a code must be text, got a Series.", "in quotes"),
    ({"origin": "region=01,province=0201"}, "origin: there is no area region=01,province=0201.", SEVERAL),
    ({"origin": "region=01,region=02"}, "origin: region=01,region=02 names a level twice.", ""),
    ({"home": "01"}, "The release has no axis home.", "origin, destination"),
    ({"region": "01"}, "The release has no axis region.", "It is a level of origin and destination."),
    (["origin"], "--where must have the form NAME=AREA, got origin.", ""),
    (["origin=01"], "origin=01 is named twice.", ""),
])  # fmt: skip
def test_areas_and_conditions_that_cannot_be_read_are_named(released, where, told, hint):
    """An error names the axis, what was asked for, and which levels, codes or axes there are."""
    by_command = partial(query_answer, released.folder, "01", None, simultaneous=False)
    with pytest.raises(UsageError) as refusal:
        (released.query if isinstance(where, dict) else by_command)(where)
    assert str(refusal.value).startswith(told)
    assert hint in refusal.value.hint


PATHS = [("A", "1"), ("A", "2"), ("B", "1"), ("C", "A")]


@pytest.fixture(scope="module")
def leaves(make, tmp_path_factory):
    """Return a release in which every leaf is measured, and codes are those of several areas."""
    folder = tmp_path_factory.mktemp("paths")
    trips = [(*one, *other, 40) for one in PATHS for other in PATHS]
    pl.DataFrame(PATHS, schema=["region", "town"], orient="row").write_csv(folder / "codebook.csv")
    pl.DataFrame(trips, schema=["r", "t", "s", "u", "n"], orient="row").write_csv(folder / "trips.csv")
    return make(
        name="leaves",
        mechanism="gaussian",
        input={"table": str(folder / "trips.csv"), "origin": ["r", "t"], "destination": ["s", "u"], "count": "n"},
        hierarchy={"table": str(folder / "codebook.csv"), "levels": ["region", "town"]},
        release={"tree": "destination", "finest": "town", "intervals": {"simultaneous": True}},
    )


# a zone that is alone, one called all, and codes that people misspell
CITY = [
    ("Manhattan", "Harlem"),
    ("Manhattan", "Manhattanville"),
    ("Zürich", "Altstadt"),
    ("Zürich", "all"),
    ("Staten", "N101"),
]


@pytest.fixture(scope="module", params=["inftda", "gaussian", "inftda_reconciled"])
def city(make, tmp_path_factory, request):
    """Return a release of a few zones, by mechanisms that measure all levels or the leaves alone."""
    folder = tmp_path_factory.mktemp("city")
    pl.DataFrame(CITY, schema=["borough", "zone"], orient="row").write_csv(folder / "codebook.csv")
    zones = [zone for _, zone in CITY]
    trips = [(one, other, 9 + 7 * number) for number, (one, other) in enumerate(product(zones, zones))]
    pl.DataFrame(trips, schema=["home", "work", "n"], orient="row").write_csv(folder / "trips.csv")
    return make(
        name=f"city-{request.param.replace('_', '-')}",
        mechanism=request.param,
        input={"table": str(folder / "trips.csv"), "origin": "home", "destination": "work", "count": "n"},
        hierarchy={"table": str(folder / "codebook.csv"), "levels": ["borough", "zone"]},
        release={"tree": "destination", "finest": "zone"},
    )


NEAREST = [
    ({"origin": "MANHATTAN"}, "borough=Manhattan"),
    ({"origin": "Zurich"}, "borough=Zürich"),
    ({"origin": "zone=n101"}, "zone=N101"),
    ({"origin": "zone=Staten"}, "borough=Staten"),
    ({"orgin": "Harlem"}, "origin"),
    ({"origin": {"Zone": "Harlem"}}, "zone"),
]


def test_the_nearest_code_axis_or_level_is_offered(city):
    """Whatever its case and accents, with one wrong letter, or at another level."""
    for where, meant in NEAREST:
        with pytest.raises(UsageError) as refusal:
            city.query(where)
        assert re.match(rf"Did you mean {meant}(\?| or )", refusal.value.hint), where


def test_an_area_that_is_called_all_can_be_asked_for(city):
    """By its level; `all` alone is refused where it could mean two things, and leaving the axis out means everything."""
    (row,) = city.query(origin="zone=all", destination={"zone": "all"}).to_dicts()
    released = city.table(4).filter(origin_zone="all", destination_zone="all")["count"].sum()
    assert row["count"] == released
    with pytest.raises(UsageError, match="an area is called all") as refusal:
        city.query(origin="all")
    assert refusal.value.hint == "Write zone=all for the area. For everything, leave origin out."
    assert city.query(origin=None)["count"].to_list() == city.query()["count"].to_list()


def test_an_only_child_is_answered_as_its_parent_unless_it_is_a_row(city):
    """With its count, its interval and its level; the answer says why, and still names the area that was asked for."""
    told = ("count", "low", "high", "level")
    for destination in ("Harlem", "N101", "Manhattan", None):
        child, parent = city.query(origin=["N101", "Staten"], destination=destination).to_dicts()
        assert child["count"] == parent["count"]
        row = city.table(4).filter(origin_zone="N101", destination_zone=destination).select("low", "high").rows()
        assert row in ([], [(child["low"], child["high"])])
        assert row or [child[key] for key in told] == [parent[key] for key in told]
        assert row or "origin N101 is the only zone of borough Staten, so it has the same count" in child["how"]
    answer = query_answer(city.folder, "N101", None, [], simultaneous=False)
    assert answer.where["origin"] == AreaCounted("zone", ["Staten", "N101"])


@pytest.mark.parametrize("has_codebook", [True, False])
def test_a_code_of_several_areas_must_be_told_apart(leaves, tmp_path, has_codebook):
    """Where levels, or areas of a level, share a code, the error says how each is named, and so it is found."""
    found = leaves if has_codebook else bare_of(leaves, tmp_path / "bare")
    with pytest.raises(UsageError, match="A is a code at the levels region and town") as refusal:
        found.query(origin="A")
    assert refusal.value.hint == "Write region=A or town=A."
    with pytest.raises(UsageError, match="several areas of the level town have the code 1") as refusal:
        found.query(origin="1")
    assert refusal.value.hint == "Write region=A,town=1 or region=B,town=1."
    towns = found.query(origin=["region=A,town=1", "region=B,town=1", "region=A,town=2"], destination="region=C")
    asked, to_c = (("A", "1"), ("B", "1"), ("A", "2")), leaves.table(4).filter(destination_region="C")
    rows = [to_c.filter(origin_region=region, origin_town=town) for region, town in asked]
    assert towns["count"].to_list() == [of["count"].sum() for of in rows]
    assert towns["count"][0] + towns["count"][2] == found.query(origin="region=A", destination="town=A")["count"][0]


def test_without_noisy_counts_little_is_known_of_sums(released, tmp_path):
    """What has no row is at most the total, and codes without a row look unknown."""
    bare = bare_of(released, tmp_path / "bare")
    total = released.table(0)["high"][0]
    code = released.table(6)["origin_municipality"][0]
    for simultaneous in (False, True):
        found = bare.query(origin=code, simultaneous=simultaneous).row(0, named=True)
        assert found["count"] == released.query(origin=code)["count"][0]
        assert (found["low"], found["high"]) == (0, total)
        assert "the noisy counts are not published" in found["how"]
    with pytest.raises(UsageError, match="an area without a released count looks like one that does not exist"):
        bare.query(origin="99")


def test_features_are_asked_by_their_names(library, tmp_path):
    """A flat feature is asked by its code, a deep one by level too; what has no row is at most the root's noisy count and its margin as a cap."""
    people = library["walked"].found
    told = query_answer(people.folder, None, None, ["zone=n", "age=age_1=0..4"], simultaneous=False)
    assert told.where["age"] == AreaCounted("age_1", ["0..4"])
    assert told.where["zone"].path == ["n"]
    assert told.count == people.table(5).filter(pl.col("age").is_in(list("01234")), zone="n")["count"].sum()
    bare = bare_of(people, tmp_path / "bare")
    root, row = people.manifest.levels[0], people.table(0).row(0, named=True)
    assert root.cap_margin > root.half_width > 0
    assert bare.query(age="5")["high"][0] == row["high"] + root.cap_margin - root.half_width


def test_sums_of_leaves_are_answered_from_their_number(leaves, tmp_path):
    """Where every leaf is measured, a sum bears the noise of as many leaves as it has."""
    sigma, tail = leaves.manifest.levels[-1].sigma, math.log(0.05)
    row = leaves.query(destination="town=2").row(0, named=True)
    assert (row["low"], row["high"]) == ends(row["count"], 4, sigma)
    at_once = leaves.query(origin="town=2", simultaneous=True).row(0, named=True)
    z = gaussian_quantile(sigma, tail - math.log(5 * 16))
    assert (at_once["low"], at_once["high"]) == (max(0, at_once["count"] - 4 * z), at_once["count"] + 4 * z)
    bare = bare_of(leaves, tmp_path / "bare")
    row = bare.query(destination="town=2").row(0, named=True)
    assert (row["low"], row["high"]) == ends(row["count"], 16, sigma)  # the noise of all
    assert bare.query(destination="town=2", simultaneous=True)["low"].to_list() == [None]


def test_leaves_below_a_threshold_have_an_interval_and_sums_none(library):
    """A leaf without a row is below the threshold but for noise; of a sum it is not known what is missing."""
    found = library["trips with a threshold"].found
    finest, rows = found.manifest.levels[-1], found.table(6)
    for row in rows.sample(min(40, rows.height), seed=1).iter_rows(named=True):
        told = found.query(areas_in(found, row)).row(0, named=True)
        assert (told["count"], told["low"], told["high"]) == (row["count"], row["low"], row["high"])
    there = set(rows.select("origin_municipality", "destination_municipality").iter_rows())
    pairs = product(*(rows[f"{axis}_municipality"].unique().sort() for axis in ("origin", "destination")))
    one, other = next(pair for pair in pairs if pair not in there)
    absent = found.query(origin=one, destination=other).row(0, named=True)
    z = laplace_quantile(finest.scale, math.log(0.05))
    assert (absent["count"], absent["low"], absent["high"]) == (0, 0, finest.threshold - 1 + z)
    total = found.query().row(0, named=True)
    assert (total["count"], total["low"], total["high"]) == (rows["count"].sum(), None, None)
    assert "missing from it" in total["how"]


def test_a_folder_that_was_altered_is_named(released, library, tmp_path):
    """A folder that is none, or lacks a table, is told as such, with the command that says what is wrong with it."""
    with pytest.raises(UsageError, match="is not a published folder"):
        open_release(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="level must be 0 to 6, got 7"):
        released.table(7)
    copy = library["trips"].copied(tmp_path)
    (copy / "noisy_counts" / "level_3.parquet").write_bytes(b"not Parquet")
    (copy / "counts" / "level_0.parquet").unlink()
    for where in ({"origin": "01", "destination": "0101"}, {}):
        with pytest.raises(StoreError, match="differs from what was published") as fault:
            open_release(copy).query(where)
        assert "trellis verify" in fault.value.hint


def test_people_are_told_what_they_asked_and_what_holds(released, capsys):
    """An answer has its areas as they are written, and says what its interval holds together with, or why there is none."""
    answer = query_answer(released.folder, "01", None, [], simultaneous=True)
    held = f"interval: {answer.low:,} to {answer.high:,}; with 90% probability, over all noise, it and the intervals of"
    for shown, told in [
        (answer, held),
        (replace(answer, low=None, high=None, confidence=None), "interval: none can be stated"),
        (replace(answer, high=answer.low, exact=True), "interval: none, because the count is published exactly"),
    ]:
        show_query(shown)
        lines = capsys.readouterr().out.splitlines()
        assert lines[:2] == ["origin 01 (region)", f"count: {answer.count:,}"]
        assert lines[2].startswith(told)
