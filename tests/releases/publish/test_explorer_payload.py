"""The data of the explorer and the maps of a report: they say what queries say, of every kind of release, and `verify` holds pages to it."""

import functools
import itertools
import json
import re
import shutil

import numpy as np
import polars as pl
import pytest

from flows.api import open_release, release
from storage.database.connections import store
from tasks.folder.verify.folder import verify
from tasks.laws import samplers
from tasks.pages.explorer.payload import embedded, payload, payload_text
from tasks.released.boxes import Boxes
from tasks.released.families import estimate_of
from tasks.released.query import overview
from tasks.released.query.answers import answer
from tasks.released.query.areas import Area
from tasks.released.sources.folder import open_folder
from tasks.released.sources.published import FolderSource
from tasks.tree.order import Tree
from tasks.unbiased.variance import tree_variances
from tests.support.explored import DRAWN, asked, land_released
from tests.support.explored import SPEC as LAND
from tests.support.folders import without_noisy_counts
from tests.support.library import OF_HOMES, ROWS, TABLE
from tests.support.seeded_bits import SeededBits
from tests.support.spec import SPEC
from tests.support.town import Town

WITH_PAGES = True

TRIPS = SPEC | {"budget": SPEC["budget"] | {"epsilon": 2e3}, "noise": {"sampler": "table"}}
ADD_REMOVE = {"privacy": TRIPS["privacy"] | {"neighbours": "add_remove"}}
WITHOUT_ACCOUNTANT = {"privacy": {key: value for key, value in TRIPS["privacy"].items() if key != "accountant"}}

OWN = {  # of trips, by what differs from the spec above
    "unbiased": {"mechanism": "unbiased_tree", "release": TRIPS["release"] | {"tree": "origin"}} | ADD_REMOVE,
    "origin first": {"release": TRIPS["release"] | {"tree": "origin"}},
    "hierarchical": {"mechanism": "hierarchical"},
    "lenient": {"mechanism": "inftda_lenient"},
    "survivors": {"mechanism": "inftda_shrunk", "measure": "survivors"},
    "laplace": {"noise": {"law": "laplace", "sampler": "table"}} | WITHOUT_ACCOUNTANT,
}
LOUD = {"privacy": LAND["privacy"] | {"epsilon": 0.02}}
WITHOUT_NOISY = LOUD | {"release": LAND["release"] | {"noisy_counts": False}}
MAPPED = {  # of the land with a map; others are in the library
    "land, loud": LOUD,
    "land, without noisy counts": WITHOUT_NOISY,
    "land, views of inftda": WITHOUT_NOISY | {"mechanism": "inftda", "release": WITHOUT_NOISY["release"] | {"views": "margins"}},
    "land, views of cbdp": WITHOUT_NOISY | {"mechanism": "cbdp", "release": WITHOUT_NOISY["release"] | {"views": "margins"}},
    "land, with margins": LOUD | {"release": LAND["release"] | {"views": "margins"}},
    "land, settled together": LOUD | {"mechanism": "cbdp", "release": LAND["release"] | {"views": "margins"}},
    "land, leaves only": LOUD | {"mechanism": "gaussian"},
    "land, unbiased": {"dataset": "others", "mechanism": "unbiased_tree", "noise": {}, "privacy": LOUD["privacy"] | {"neighbours": "add_remove"}},
}  # fmt: skip
FEW = [
    *("trips", "trips of three", "trips shrunk", "trips calibrated", "trips settled together"),
    *("trips with a threshold", "trips of leaves", "unbiased"),
]
OTHERS = [*(name for name, row in ROWS.items() if row[TABLE] == "trips" and name not in FEW), *list(OWN)[1:]]
KINDS = [*FEW, *(pytest.param(kind, marks=pytest.mark.thorough) for kind in OTHERS)]


@pytest.fixture(scope="module")
def made(tmp_path_factory, library, country):
    """Return what finds a release of trips: in the library, or of its own through a made-up country or a land with a map, once."""
    place = tmp_path_factory.mktemp("explored")
    shutil.copytree(country, place / "data")

    @functools.cache
    def of(kind):
        if kind in ROWS:
            return library[kind].folder
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRELLIS_HOME", str(place / "home"))
            if kind in MAPPED:
                return land_released(place / kind, DRAWN, **MAPPED[kind])
            patch.setattr(samplers, "system_words", SeededBits(list(OWN).index(kind)))
            patch.chdir(place)
            keys = {**TRIPS, **OWN[kind], "dataset": kind.replace(" ", "-")}
            with store():  # open all the time
                return release(keys, different_people=True).folder

    return of


def check_absent(folder, most):
    """Assert that no cell of a level without a row reaches further than is stated of the level."""
    estimate = estimate_of(FolderSource(open_folder(folder)))
    for level in range(len(estimate.folder.manifest.levels)):
        bound, rows = estimate.absent_high(level, 500_000), estimate.folder.level_table(level)
        there = set(zip(*(of.tolist() for of in rows.areas), strict=True))
        every = itertools.product(*map(range, estimate.folder.tree.sizes(level)))
        cells = [cell for cell in every if cell not in there]
        places = np.random.default_rng(2).permutation(len(cells))[:most]
        chosen = [cells[number] for number in places.tolist()]
        columns = zip(*chosen, strict=True) if chosen else [[]] * len(rows.areas)
        boxes = Boxes(rows.levels, tuple(np.array(of, dtype=np.int64) for of in columns))
        highs = [answer(estimate.folder.folder, asked).high for asked in _areas(estimate, boxes)]
        assert bound is None or all(high is not None and high <= bound for high in highs), level


def check_tables(folder, shown, most=20):
    """Assert that cells of tables, with a row and without, are shown as a query answers; return how many were asked about."""
    estimate, chance, many = estimate_of(FolderSource(open_folder(folder))), np.random.default_rng(3), 0
    for table in shown["tables"]:
        sizes = [axis.areas(level) for axis, level in zip(estimate.folder.tree.axes, table["at"], strict=True)]
        places = chance.permutation(len(table["count"]))[:most]
        cells = places if table["cells"] is None else np.array(table["cells"], dtype=np.int64)[places]
        boxes = Boxes(tuple(table["at"]), np.unravel_index(cells, sizes))
        answered = [answer(estimate.folder.folder, of) for of in _areas(estimate, boxes)]
        assert table["measured"] or table["ranges"] or table["why"] or shown["sums"]["least_squares"], table["at"]
        got = [tuple((table[name] or {place: None})[place] for name in ("count", "low", "high")) for place in places]
        assert got == [(of.count, of.low, of.high) for of in answered], table["at"]
        hows = [of.how for of in answered if re.search(r"level|view", of.how)]
        assert all(any(own in how for own in table["source"].split(", ")) for how in hows), (table["source"], hows)
        many += len(got)
    return many


def _areas(estimate, boxes):
    """Return the areas of boxes as a question names them."""
    own = zip(estimate.folder.tree.axes, boxes.levels, strict=True)
    paths = [axis.paths(level).rows() if level else [()] for axis, level in own]
    every = zip(*(of.tolist() for of in boxes.areas), strict=True)
    of_boxes = [enumerate(zip(boxes.levels, box, strict=True)) for box in every]
    return [[Area(level, paths[axis][number], number) for axis, (level, number) in of] for of in of_boxes]


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_shown_as_queries_answer(made, kind, tmp_path):
    """Pairs without a row, under dropped cells too, and pairs whose axis levels no level has are shown as a query answers them."""
    for folder in (made(kind), without_noisy_counts(made(kind), tmp_path / "bare")):
        check_absent(folder, most=20)
    shown = payload(open_folder(made(kind)))
    assert sorted(table["at"] for table in shown["tables"]) == [[one, other] for one in range(4) for other in range(4)]
    # a histogram knows no other areas than those of the leaves that it has kept
    assert check_tables(made(kind), shown) > 40


def test_what_has_no_room_is_named(made, library):
    """Coarse levels come first; of those that do not fit a sentence says how many rows they have and where, and of tables why."""
    folder = made("trips")
    whole = payload(open_folder(folder))
    taken = [
        sum(map(bool, of["count"])) if of["source"] != "sum of leaves" else len(of["count"]) for of in whole["tables"]
    ]
    place = next(place for place, of in enumerate(whole["tables"]) if of["at"] == [3, 3])
    found, rows = payload(open_folder(folder), most_rows=sum(taken[: place + 1]) - 1), taken[place]
    assert [of["at"] for of in found["tables"]][:place] == [of["at"] for of in whole["tables"]][:place]
    assert (folder / "counts/level_6.csv").is_file()
    words = "origin municipality by destination municipality"
    assert f"Counts of {words} ({rows} rows) are not in this page; they are in counts/level_6.csv." in found["left_out"]
    found = payload(open_folder(library["walked"].folder), most_rows=31)
    assert sum(len(table["count"]) for table in found["tables"]) <= 31
    [told] = found["left_out"]
    assert told.startswith("Tables of zone by age, zone by age_3, zone by age_2 are left out")


def test_data_stand_in_a_page_as_one_line_that_ends_no_script(library):
    """The data that `verify` makes again are always the same, and hold no sign that a page would read as a tag."""
    opened = open_folder(library["trips"].folder)
    data, text = embedded(opened), payload_text(opened)
    assert "\n" not in text
    assert "<" not in data
    assert json.loads(data) == json.loads(text) == payload(opened)


@pytest.mark.parametrize("kind", ["unbiased tree", "grid"])
def test_the_scales_of_a_page_say_how_far_counts_are_off(library, kind):
    """The variance of a leaf is the product of those of the page's trees, and what rounding adds."""
    folder, variance = open_folder(library[kind].folder), 1.0
    shown, axes = payload(folder), folder.tree.axes
    for of in shown["sums"]["least_squares"]["trees"]:
        tree = Tree(axes, tuple(of["steps"]))
        own = tree_variances(tree, [scale**-2 for scale in of["scales"]])
        variance *= own.of_cells(tree.axis_levels(tree.depth), [np.zeros(1, dtype=np.int64)] * len(axes))[0]
    [leaves] = [table for table in shown["tables"] if table["at"] == [axis.depth for axis in axes]]
    assert leaves["sd"][0] ** 2 == pytest.approx(variance + shown["sums"]["least_squares"]["rounding"], rel=1e-4)


def test_a_page_has_what_the_variances_of_a_strategy_follow_from(library):
    """With what rounding adds, the variance of a code, and of a sum of codes that is no range, is that of a query."""
    folder = open_folder(library["ranges of three"].folder)
    shown = payload(folder)
    known, codes = shown["sums"]["least_squares"], folder.tree.axes[0].areas(4)
    [strategy] = known["strategies"]
    products = np.zeros((codes, codes))
    products[np.tril_indices(codes)] = np.concatenate(strategy["products"])
    covariance = strategy["scale"] ** 2 * np.linalg.inv(products + np.tril(products, -1).T)
    if shown["sums"]["total"] is not None:
        covariance -= np.outer(covariance.sum(axis=0), covariance.sum(axis=1)) / covariance.sum()
    [leaves] = [table for table in shown["tables"] if table["at"] == [4]]
    assert leaves["sd"][0] ** 2 == pytest.approx(covariance[0, 0] + known["rounding"], rel=1e-4)
    both = open_release(folder.path).query(age="3+7").row(0, named=True)
    assert both["sd"] ** 2 == pytest.approx(covariance[np.ix_([3, 7], [3, 7])].sum() + 2 * known["rounding"], rel=1e-4)


@pytest.fixture
def place(tmp_path, own_home):
    """Return a folder for a release of its own."""
    return tmp_path


@pytest.mark.parametrize("kind", ["unbiased tree", "grid", "ages of three", "walked", "leaves"])
def test_no_cell_without_a_row_reaches_beyond_its_bound(library, kind):
    """Of ordered attributes too, where counts have deviations and where they have none."""
    check_absent(library[kind].folder, most=20)


@pytest.mark.parametrize("kind", OF_HOMES)
def test_numbers_of_groups_are_shown_by_region_and_size(library, kind):
    """Whatever is measured of group sizes, with a public list of groups or without."""
    found = payload(open_folder(library[kind].folder))
    assert found["ends"] is None
    others = [1] * (len(found["axes"]) - 2)  # attributes
    assert [table["at"] for table in found["tables"] if all(table["at"])] == [[2, *others, 1], [1, *others, 1]]


def test_tables_of_views_are_shown(place):
    """A table that a view has is the view's; others name all that their cells follow from, several levels where an area is an only child."""
    folder = Town(place).release()
    found = payload(open_folder(folder))
    sources = {tuple(table["at"]): table["source"] for table in found["tables"]}
    others = [0] * (len(found["axes"]) - 2)
    found_in = [sources[*at, *others] for at in ((2, 0), (1, 1), (2, 2), (2, 1), (1, 2))]
    assert found_in == ["view living", "view pairs", "level 4", "level 4", "level 2, level 4"]
    living = pl.read_parquet(folder / "views/living.parquet").select("count", "low", "high").to_dict(as_series=False)
    [table] = [table for table in found["tables"] if table["source"] == "view living"]
    assert {name: table[name] for name in living} == living
    assert [view["name"] for view in found["views"]] == ["total", "by_mode", "mode_from"]


def test_a_release_without_rows_has_a_bound_for_what_is_not_there(place, monkeypatch):
    """Where nothing is left and no codebook is published, there is no area and no row, and leaves still have a bound."""
    monkeypatch.chdir(place)
    (place / "data").mkdir()
    (place / "data/codebook.csv").write_text("region,town\nA,1\nB,2\n")
    (place / "data/trips.csv").write_text("home,work,people\n1,2,1\n")
    keys = {"hierarchy": {"table": "data/codebook.csv", "levels": ["region", "town"]}, "noise": {}} | WITHOUT_ACCOUNTANT
    keys |= {"release": {"tree": "destination", "finest": "town"}, "mechanism": "stability_histogram"}
    found = payload(open_folder(release({**TRIPS, **keys}).folder))
    total, *others = found["tables"]
    assert [table["count"] for table in others] == [[]] * 8
    assert [len(level["codes"]) for axis in found["axes"] for level in axis["levels"]] == [0] * 4
    assert (total["count"], total["low"], total["high"], total["exact"]) == ([0], None, None, False)


# the maps of a report --------------------------------------------------------------------------------------------------

SHADES = {"n": "noise", "z": "none"}
ENDS = {"Where trips begin": "origin", "Where trips end": "destination"}


def maps(folder):
    """Return the maps of a report by axis: all of each, the rows of the table behind it, and how areas are drawn, by codes."""
    page, found = (folder / "report.html").read_text(), {}
    for title, figure in re.findall(r"<figure><h3>(Where trips \w+)</h3>(.*?)</figure>", page, re.DOTALL):
        rows = re.findall(r'<tr><th scope="row">[^<]*\((\w+)\)</th>(.*?)</tr>', figure)
        numbers = {code: re.findall(r"<td>([^<]*)</td>", cells) for code, cells in rows}
        drawn = re.findall(r'<path class="(\w+)"[^>]*><title>[^<]*\((\w+)\): -?[\d,]+</title>', figure)
        found[ENDS[title]] = figure, numbers, {code: SHADES.get(shade, "signal") for shade, code in drawn}
    return found


def kind_of(count, low):
    """Return how the explorer draws an area."""
    return "none" if count == 0 else "signal" if count > 0 and (low is None or low > 0) else "noise"


@pytest.mark.parametrize("kind", [
    *("land, loud", "trips", "trips shrunk", "trips settled together"),
    *(pytest.param(kind, marks=pytest.mark.thorough) for kind in list(MAPPED)[4:]),
])  # fmt: skip
def test_maps_say_what_queries_and_the_explorer_say(made, kind):
    """Behind each map are the answers of queries; what it hatches, the explorer hatches, and its words fit what is hatched."""
    folder = made(kind)
    data, found = payload(open_folder(folder)), maps(folder)
    assert found.keys() == {"origin", "destination"}
    for number, (axis, (figure, rows, drawn)) in enumerate(found.items()):
        levels = data["axes"][number]["levels"]
        (level,) = (place for place, of in enumerate(levels, 1) if {*rows} <= {*of["codes"]})
        for code, cells in rows.items():
            answer = asked(folder, {axis: f"{levels[level - 1]['name']}={code}"})
            assert cells == [f"{value:,}" for value in (answer.count, answer.low, answer.high)]
        of_axis = next(of for of in data["tables"] if of["at"] == [level if axis == number else 0 for axis in range(2)])
        shown = zip(levels[level - 1]["codes"], of_axis["count"], of_axis["low"], strict=True)
        assert drawn == {code: kind_of(count, low) for code, count, low in shown}
        assert ("the 90% intervals of their totals reach 0." in figure) == ("noise" in drawn.values())
        assert (">counts 0<" in figure) == ("none" in drawn.values())
    assert verify(folder) == []


def test_a_map_states_no_noise_that_it_does_not_know(made):
    """Where leaves are missing nothing says how far a total is off: the map states no interval, and hatches nothing."""
    found = maps(made("trips with a threshold"))
    assert found.keys() == {"origin", "destination"}
    for figure, rows, drawn in found.values():
        assert "No interval is stated here for these totals." in figure
        assert "twice the noise" not in figure
        assert "noise" not in drawn.values()
        assert {len(cells) for cells in rows.values()} == {1}


@pytest.mark.thorough
def test_without_noisy_counts_a_map_goes_by_the_noise_of_a_sum(made):
    """Intervals of sums follow from noisy counts. Where these are not published, a total is held to twice the noise of its cells."""
    for axis, (figure, rows, _) in maps(made("land, without noisy counts")).items():
        assert f"added up from level {({'origin': 2, 'destination': 1})[axis]}." in figure
        told = re.search(r"(?:at most|above) ([\d,.]+), twice the noise", figure)
        limit = float(told[1].replace(",", "")) if told else 0.0
        for count, is_above, *_ in rows.values():
            assert is_above == ("yes" if int(count.replace(",", "")) > limit else "no")


@pytest.mark.parametrize("mechanism", [pytest.param("cbdp", marks=pytest.mark.thorough), "inftda"])
def test_a_map_takes_the_intervals_of_a_view(made, mechanism):
    """A margin that is published has its own intervals, also where noisy counts are not published, and σ of the level says less."""
    folder = made(f"land, views of {mechanism}")
    _, rows, drawn = maps(folder)["origin"]
    names = ("origin_county", "count", "low", "high")
    cells = pl.read_parquet(folder / "views/origin_county.parquet").select(names).rows()
    assert rows == {code: [f"{value:,}" for value in values] for code, *values in cells}
    assert drawn == {code: kind_of(count, low) for code, count, low, _ in cells}


@pytest.mark.thorough
def test_a_map_of_many_cells_goes_by_the_noise(tmp_path, monkeypatch):
    """Where a map would add up more cells than the page is worth, it does without intervals."""
    monkeypatch.setattr(overview, "MOST_CELLS", 5)
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    folder = land_released(tmp_path / "land", DRAWN, **LOUD, mechanism="inftda_reconciled")
    found = maps(folder)
    assert "judged by itself" in found["destination"][0]  # by county, which are three cells
    assert "twice the noise of such a sum" in found["origin"][0]  # by county, which takes nine
