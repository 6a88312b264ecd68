"""The data of the explorer: it says what queries say, of every kind of release, always the same, and `verify` holds the page to it."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.answers.verify import verify_answer
from flows.api import release
from flows.mechanisms import MECHANISMS
from tasks.explore.areas import paths_of
from tasks.explore.check import explorer_failures
from tasks.explore.payload import VERSION, embedded, payload, payload_text
from tasks.laws import table_sampler
from tasks.query.answers import answer
from tasks.query.areas import Area
from tasks.query.folder import open_folder
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.tabulate.answers import absent_high, answers
from tasks.tabulate.tables import Boxes, Tables
from tests.support.ages import PRIVACY, people_released
from tests.support.folders import rewrite, with_sums
from tests.support.households import LISTED, homes_released
from tests.support.library import FAMILY, OF_HOMES, ROWS, TABLE, Library
from tests.support.seeded_bits import SeededBits
from tests.support.town import Town
from tests.support.wide import Wide, trips

Made = Callable[[str], Path]

TRIPS: dict[str, Any] = {
    "name": "asked",
    "dataset": "asked",
    "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "province", "municipality"]},
    "release": {"tree": "destination", "finest": "municipality"},
    "privacy": {"unit": "one commuter", "neighbours": "substitution", "max_records_per_unit": 1}
    | {"epsilon": 4.0, "delta": 1.0e-8, "accountant": "zcdp"},
    "budget": {"epsilon": 2e3, "delta": 1.0e-5},
    "noise": {"sampler": "table"},
    "output": "out",
}
ADD_REMOVE = {"privacy": TRIPS["privacy"] | {"neighbours": "add_remove"}}
WITHOUT_ACCOUNTANT = {"privacy": {key: value for key, value in TRIPS["privacy"].items() if key != "accountant"}}

OWN: dict[str, dict[str, Any]] = {  # of trips, by what differs from the spec above
    "unbiased": {"mechanism": "unbiased_tree", "release": TRIPS["release"] | {"tree": "origin"}} | ADD_REMOVE,
    "origin first": {"release": TRIPS["release"] | {"tree": "origin"}},
    "hierarchical": {"mechanism": "hierarchical"},
    "lenient": {"mechanism": "inftda_lenient"},
    "survivors": {"mechanism": "inftda_shrunk", "measure": "survivors"},
    "laplace": {"noise": {"law": "laplace", "sampler": "table"}} | WITHOUT_ACCOUNTANT,
}
FEW = [
    *("trips", "trips of three", "trips shrunk", "trips calibrated", "trips settled together"),
    *("trips with a threshold", "trips of leaves", "unbiased"),
]
OTHERS = [*(name for name, row in ROWS.items() if row[TABLE] == "trips" and name not in FEW), *list(OWN)[1:]]
KINDS = [*FEW, *(pytest.param(kind, marks=pytest.mark.thorough) for kind in OTHERS)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, library: Library) -> Made:
    """Return what finds a release of trips: in the library, or of its own through a small made-up country, once."""
    place = tmp_path_factory.mktemp("explored")
    country = draw_country(regions=2, provinces=4, municipalities=11, people=500, generator=np.random.default_rng(5))
    write_country(country, place / "data")
    folders = dict[str, Path]()

    def of(kind: str) -> Path:
        if kind in ROWS:
            return library[kind].folder
        if kind not in folders:
            name = kind.replace(" ", "-")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TRELLIS_HOME", str(place / "home"))
                patch.setattr(table_sampler, "system_words", SeededBits(list(OWN).index(kind)))
                patch.chdir(place)
                keys = {**TRIPS, **OWN[kind], "dataset": name, "name": name}
                folders[kind] = release(keys, different_people=True).folder
        return folders[kind]

    return of


def bare(folder: Path, copy: Path) -> Path:
    """Return a copy of a published folder without noisy counts."""
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "noisy_counts", ignore_errors=True)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest.pop("noisy_counts", None)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def check_boxes(folder: Path, kinds: int, each: int) -> None:
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


def check_absent(folder: Path, most: int) -> None:
    """Assert that no cell of a level without a row reaches further than is stated of the level."""
    tables = Tables(open_folder(folder))
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


def check_pairs(folder: Path, shown: dict[str, Any], most: int = 20) -> int:
    """Assert that pairs without a row, and pairs whose axis levels no level has, are shown as a query answers; return how many were asked.

    Args:
        folder: published, of trips.
        shown: what its explorer shows.
        most: of each kind.
    """
    tables, chance, asked = Tables(open_folder(folder)), np.random.default_rng(3), 0
    for part in [*shown["levels"], *shown["crossed"]]:
        sizes = [axis.areas(level) for axis, level in zip(tables.tree.axes, part["at"], strict=True)]
        cells = [cell for cell in itertools.product(*map(range, sizes)) if all(part["at"])]
        if "absent" in part:
            rows = set(zip(part["from"], part["to"], strict=True)) if all(part["at"]) else set()
            cells = [cell for cell in cells if cell not in rows]
            highs = part["absent"]
            got = (
                [(0, None if highs[place] is None else 0, highs[place]) for place in range(len(cells))] if highs else []
            )
        else:
            ends = [part[end] or [None] * len(cells) for end in ("low", "high")]
            got = list(zip(part["count"], *ends, strict=True))
        chosen = chance.permutation(len(got))[:most].tolist()
        areas = zip(*(cells[place] for place in chosen), strict=True) if chosen else [[], []]
        boxes = Boxes(tuple(part["at"]), tuple(np.array(of, dtype=np.int64) for of in areas))
        answered = [answer(tables.folder, of) for of in _areas(tables, boxes)]
        assert [got[place] for place in chosen] == [(of.count, of.low, of.high) for of in answered], part["at"]
        asked += len(chosen)
    return asked


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


@pytest.mark.parametrize("kind", KINDS)
def test_many_boxes_are_answered_as_each_by_itself(made: Made, kind: str, tmp_path: Path) -> None:
    """Whatever a release measures, and with or without noisy counts, every count and interval is what a query says."""
    for folder in (made(kind), bare(made(kind), tmp_path / "bare")):
        check_boxes(folder, kinds=8, each=10)
        check_absent(folder, most=20)


def with_page(folder: Path, data: str) -> Path:
    """Write a page with data into a published folder, as other code would have written it, and the checksums anew."""
    page = f'<!doctype html><title>x</title><script type="application/json" id="data">{data}</script><script>1</script>'
    (folder / "explorer.html").write_text(page, encoding="utf-8")
    rewrite(folder, lambda manifest: manifest.update(pages=None))
    with_sums(folder)
    return folder


def test_levels_are_their_tables_with_what_a_query_says_of_each_row(made: Made) -> None:
    """Every level has the rows of its table as numbers of areas, and the marks, ends and shares that are published of it."""
    folder = made("trips")
    found, manifest = payload(open_folder(folder)), open_folder(folder).manifest
    codes = {axis["name"]: [level["codes"] for level in axis["levels"]] for axis in found["axes"]}
    assert found["left_out"] == []
    for level, entry in zip(found["levels"], manifest.levels, strict=True):
        table = pl.read_parquet(folder / f"counts/level_{level['level']}.parquet")
        assert (len(level["count"]), level["exact"]) == (table.height, entry.sigma == 0)
        for name in ("count", "low", "high", "signal"):
            assert level[name] == table[name].cast(int).to_list()
        for axis, end, at in zip(codes, ("from", "to"), level["at"], strict=True):
            assert (end in level) == (at > 0)
            if at:
                column = f"{axis}_{TRIPS['hierarchy']['levels'][at - 1]}"
                assert [codes[axis][at - 1][number] for number in level[end]] == table[column].to_list()
        inside = zip(level["low"], level["asked_low"], level["count"], level["asked_high"], level["high"], strict=True)
        assert all(
            low <= asked_low <= count <= asked_high <= high for low, asked_low, count, asked_high, high in inside
        )
    for axis in found["axes"]:
        for above, level in zip(axis["levels"], axis["levels"][1:], strict=False):
            assert all(
                code.startswith(above["codes"][parent])
                for code, parent in zip(level["codes"], level["parent"], strict=True)
            )
    total = found["release"]["total"]
    assert total["count"] == total["low"] == total["high"] == sum(found["levels"][-1]["count"])
    assert (found["release"]["one"], found["release"]["many"]) == ("made-up commuter", "made-up commuters")


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_that_no_row_has_are_answered_as_a_query_answers(made: Made, kind: str) -> None:
    """So are pairs without a row, under dropped cells too, and pairs whose axis levels no level has."""
    folder = made(kind)
    shown = payload(open_folder(folder))
    own, crossed = ([part["at"] for part in shown[parts]] for parts in ("levels", "crossed"))
    pairs = [[one, other] for one in (1, 2, 3) for other in (1, 2, 3)]
    assert sorted([*(at for at in own if all(at)), *crossed]) == pairs
    # a histogram knows no other areas than those of the leaves that it has kept
    assert check_pairs(folder, shown) > (40 if kind == "trips with a threshold" else 80)


def test_totals_of_areas_add_up_to_everything(made: Made) -> None:
    """Each axis level has a total for every area, and together these are the count of everything."""
    found = payload(open_folder(made("trips")))
    assert [(of["axis"], of["level"]) for of in found["totals"]] == [
        (axis, level) for axis in (0, 1) for level in (1, 2, 3)
    ]
    for of in found["totals"]:
        assert len(of["count"]) == len(found["axes"][of["axis"]]["levels"][of["level"] - 1]["codes"])
        assert sum(of["count"]) == found["release"]["total"]["count"]


def test_levels_that_have_no_room_are_named_with_their_files(made: Made) -> None:
    """Coarse levels come first; those that do not fit are listed with their rows and files, and their areas are not."""
    folder = made("trips")
    whole = payload(open_folder(folder))
    rows = [len(level["count"]) for level in whole["levels"]]
    found = payload(open_folder(folder), most_rows=sum(rows[:5]))
    assert found["levels"] == whole["levels"][:5]
    assert [(of["level"], of["rows"], of["at"]) for of in found["left_out"]] == [
        (5, rows[5], [2, 3]),
        (6, rows[6], [3, 3]),
    ]
    assert all((folder / of["file"]).is_file() for of in found["left_out"])
    assert [len(axis["levels"][2]["codes"]) for axis in found["axes"]] == [0, 0]
    assert {(of["axis"], of["level"]) for of in found["totals"]} == {(0, 1), (0, 2), (1, 1), (1, 2)}


def test_tables_that_have_no_room_are_named(library: Library) -> None:
    """Tables of attributes are taken in as long as their cells fit, and a sentence names the others."""
    found = payload(open_folder(library["walked"].folder), most_rows=30)
    assert sum(len(table["count"]) for table in found["tables"]) <= 30
    assert found["tables_left_out"] == [
        "Tables of zone by age, zone by age_3, zone by age_2 are left out: they are too large for this page."
    ]


def test_the_same_folder_gives_the_same_text(made: Made) -> None:
    """The data is the same text each time, JSON in one line without anything that is no number."""
    folder = made("trips")
    text = payload_text(open_folder(folder))
    assert text == payload_text(open_folder(folder))
    assert "\n" not in text
    assert json.loads(text) == payload(open_folder(folder))


def test_a_page_that_shows_other_numbers_is_found(made: Made, tmp_path: Path) -> None:
    """`verify` makes the data again: a page with other data, or none, is named, and that with the same data passes."""
    folder = shutil.copytree(made("trips"), tmp_path / "copy")
    data = embedded(open_folder(folder))
    told = ["explorer.html does not show what the tables hold."]
    assert "<" not in data
    assert explorer_failures(with_page(folder, data)) == []
    assert explorer_failures(with_page(folder, "")) == told
    other = with_page(folder, data.replace('"signal_rate":0.1', '"signal_rate":0.2'))
    assert explorer_failures(other) == verify_answer(other).failures == told
    of_another_version = data.replace(f'"version":{VERSION}', f'"version":{VERSION + 1}')
    assert of_another_version != data
    found = verify_answer(with_page(folder, of_another_version))
    assert found.ok
    assert found.unread == [
        "explorer.html: only the checksum was compared, because another version of Trellis wrote its data."
    ]
    (folder / "explorer.html").write_text("<p>Nothing here")
    assert explorer_failures(folder) == told


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for a release of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return tmp_path


OF_PEOPLE: dict[str, dict[str, Any]] = {  # what the library does not have
    "wavelet": {"mechanism": "wavelet", "release": {"order": ["age", "zone"]}},
    "cascade on a grid": {
        "mechanism": "cascade",
        "hierarchy": {"zone": {"ordered": ["n", "e", "s"]}, "age": {"ordered": 10}},
        "release": {"grid": ["zone", "age"]},
    },
}


@pytest.mark.parametrize(
    "kind",
    [
        *("unbiased tree", "grid", "ages of three", "walked", "leaves"),
        "wavelet",
        pytest.param("cascade on a grid", marks=pytest.mark.thorough),
    ],
)
def test_sums_over_ordered_attributes_are_answered_as_each_by_itself(library: Library, place: Path, kind: str) -> None:
    """Counts, intervals and deviations of trees and grids of ordered attributes are what a query says, whatever is summed over."""
    if kind in ROWS:
        folder = library[kind].folder
    else:
        privacy = PRIVACY | {"neighbours": "substitution"}
        folder = people_released(place, privacy=privacy, **OF_PEOPLE[kind]).folder
    check_boxes(folder, kinds=20, each=8)
    check_absent(folder, most=20)
    found = payload(open_folder(folder))
    assert {tuple(table["axes"]) for table in found["tables"]} == {(0,), (1,), (0, 1)}
    is_unbiased = kind not in {"walked", "leaves"}
    assert all((table["sd"] is not None) == is_unbiased for table in found["tables"])


OF_SIZES = [name for name, recipe in MECHANISMS.items() if recipe.is_of_sizes]
IN_LIBRARY = {ROWS[name][FAMILY] for name in OF_HOMES}


@pytest.mark.parametrize(
    "kind",
    [*OF_HOMES, *(pytest.param(name, marks=pytest.mark.thorough) for name in OF_SIZES if name not in IN_LIBRARY)],
)
def test_numbers_of_groups_are_answered_as_each_by_itself(library: Library, place: Path, kind: str) -> None:
    """Whatever is measured of group sizes, with a public list of groups or without, regions and sizes are what a query says."""
    if kind in ROWS:
        folders = [library[kind].folder]
    else:
        lists: list[dict[str, Any]] = [{}, LISTED] if MECHANISMS[kind].takes_list else [{}]
        folders = [
            homes_released(place / str(number), mechanism=kind, dataset=f"homes-{number}", **keys).folder
            for number, keys in enumerate(lists)
        ]
    for number, folder in enumerate(folders):
        for of in (folder, bare(folder, place / f"bare-{number}")):
            check_boxes(of, kinds=9, each=8)
        found = payload(open_folder(folder))
        assert found["kind"] == "sizes"
        assert [table["at"] for table in found["tables"] if table["axes"] == [0, 1]] == [[2, 1], [1, 1]]


@pytest.mark.parametrize("mechanism", ["cbdp", pytest.param("inftda_reconciled", marks=pytest.mark.thorough)])
def test_attributes_with_views_are_answered_as_each_by_itself(place: Path, mechanism: str) -> None:
    """Where all was settled together, boxes are what a query says; a table that a view has is the view's, and others are summed."""
    folder = Town(place).release(mechanism=mechanism)
    for of in (folder, bare(folder, place / "bare")):
        check_boxes(of, kinds=9, each=8)
    found = payload(open_folder(folder))
    sources = {(tuple(table["axes"]), tuple(table["at"])): table["source"] for table in found["tables"]}
    assert sources[(0,), (2,)] == "view living"
    assert sources[(0, 1), (1, 1)] == "view pairs"
    assert sources[(0, 1), (2, 2)] == "level 4"
    assert sources[(0, 1), (2, 1)] == "level 3"
    assert sources[(0, 1), (1, 2)] == "sum of leaves"
    living = pl.read_parquet(folder / "views/living.parquet")
    [table] = [table for table in found["tables"] if table["source"] == "view living"]
    assert {name: table[name] for name in ("count", "low", "high")} == living.select("count", "low", "high").to_dict(
        as_series=False
    )
    assert [view["name"] for view in found["views"]] == ["total", "by_mode", "mode_from"]
    assert [column["title"] for column in found["views"][2]["columns"]] == ["from_district", "mode"]


@pytest.mark.thorough
@pytest.mark.heavy("there are 10,240,000 pairs of zones")
def test_margins_answer_where_levels_are_only_calibrated_to_them(place: Path) -> None:
    """Totals of one end follow from the margin that is measured by itself, as in a query; pairs follow from the levels."""
    folder = Wide(place, trips()).release(noise={"sampler": "table"})
    tables = Tables(open_folder(folder))
    zones = np.unique(tables.rows(4).areas[0])[:30]
    nothing = np.zeros_like(zones)
    for levels, areas in [((2, 0), (zones, nothing)), ((0, 2), (nothing, zones)), ((1, 0), (zones // 200, nothing))]:
        check(tables, Boxes(levels, areas))
    for level in range(5):
        rows = tables.rows(level)
        check(tables, Boxes(rows.levels, tuple(of[:20] for of in rows.areas)))
    left_out = payload(open_folder(folder), most_rows=5_000)["left_out"]  # there are 6,400 zones
    assert [entry["at"] for entry in left_out] == [[2, 2]]


def test_a_release_without_rows_has_a_bound_for_what_is_not_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is left and no codebook is published, there is no area and no row, and leaves still have a bound."""
    monkeypatch.chdir(place)
    (place / "data").mkdir()
    pl.DataFrame({"region": ["A", "B"], "town": ["1", "2"]}).write_csv(place / "data/codebook.csv")
    pl.DataFrame({"home": ["1"], "work": ["2"], "people": [1]}).write_csv(place / "data/trips.csv")
    keys = {"hierarchy": {"table": "data/codebook.csv", "levels": ["region", "town"]}, "noise": {}} | WITHOUT_ACCOUNTANT
    changed = {"release": {"tree": "destination", "finest": "town"}, "mechanism": "stability_histogram"}
    folder = release({**TRIPS, **keys, **changed}, different_people=True).folder
    found = payload(open_folder(folder))
    assert [level["count"] for level in found["levels"]][1:] == [[]] * 4
    assert [len(level["codes"]) for axis in found["axes"] for level in axis["levels"]] == [0] * 4
    assert found["levels"][-1]["absent_high"] > 0
    assert [total["count"] for total in found["totals"]] == [[]] * 4
    assert found["release"]["total"] == {"count": 0, "low": None, "high": None, "exact": False}
