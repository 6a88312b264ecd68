"""The data of the explorer: it says what queries say, of every kind of release, always the same, and `verify` holds the page to it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.answers.verify import verify_answer
from flows.api import release
from flows.mechanisms import MECHANISMS
from tasks.explore.payload import VERSION, embedded, payload, payload_text
from tasks.query.folder import open_folder
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.tabulate.tables import Boxes, Tables
from tests.support.ages import PRIVACY, people_released
from tests.support.asked import check, check_absent, check_boxes, check_pairs
from tests.support.folders import rewrite, with_sums
from tests.support.households import LISTED, homes_released
from tests.support.town import Town
from tests.support.wide import Wide, trips

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
GRID = {
    "hierarchy": {"zone": {"ordered": ["n", "e", "s"]}, "age": {"ordered": 10}},
    "release": {"grid": ["zone", "age"]},
}

KINDS: dict[str, dict[str, Any]] = {  # of trips, by what differs from the spec above
    "default": {},
    "origin first": {"release": TRIPS["release"] | {"tree": "origin"}},
    "a measured total": ADD_REMOVE | {"mechanism": "inftda_reconciled"},
    "laplace noise": {"noise": {"law": "laplace", "sampler": "opendp"}} | WITHOUT_ACCOUNTANT,
    "inftda": {"mechanism": "inftda"},
    "lenient": {"mechanism": "inftda_lenient"},
    "shrunk": {"mechanism": "inftda_shrunk", "measure": "all"},
    "shrunk survivors": {"mechanism": "inftda_shrunk", "measure": "survivors"},
    "euclidean": {"mechanism": "tda_l2"},
    "leaves only": {"mechanism": "gaussian"},
    "thresholded": {"mechanism": "stability_histogram", "noise": {}} | WITHOUT_ACCOUNTANT,
    "settled together": {"mechanism": "cbdp", "release": TRIPS["release"] | {"views": "margins"}},
    "levels with margins": {"release": TRIPS["release"] | {"views": "margins"}},
    "hierarchical": {"mechanism": "hierarchical", "noise": {}},
    "unbiased": {"mechanism": "unbiased_tree", "noise": {}} | ADD_REMOVE,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return what releases a kind of trips through a small made-up country, once."""
    place = tmp_path_factory.mktemp("explored")
    country = draw_country(regions=2, provinces=4, municipalities=11, people=500, generator=np.random.default_rng(5))
    write_country(country, place / "data")
    folders = dict[str, Path]()

    def of(kind: str) -> Path:
        if kind not in folders:
            keys = {**TRIPS, **KINDS[kind], "dataset": kind.replace(" ", "-"), "name": kind.replace(" ", "-")}
            folders[kind] = release(keys, different_people=True).folder
        return folders[kind]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        patch.chdir(place)
        yield of


def bare(folder: Path, copy: Path) -> Path:
    """Return a copy of a published folder without noisy counts."""
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "noisy_counts", ignore_errors=True)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest.pop("noisy_counts", None)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_many_boxes_are_answered_as_each_by_itself(made: Callable[[str], Path], kind: str, tmp_path: Path) -> None:
    """Whatever a release measures, and with or without noisy counts, every count and interval is what a query says."""
    for folder in (made(kind), bare(made(kind), tmp_path / "bare")):
        check_boxes(folder, kinds=10, each=12)
        check_absent(folder, most=40)


def with_page(folder: Path, data: str) -> Path:
    """Write a page with data into a published folder, as other code would have written it, and the checksums anew."""
    page = f'<!doctype html><title>x</title><script type="application/json" id="data">{data}</script><script>1</script>'
    (folder / "explorer.html").write_text(page, encoding="utf-8")
    rewrite(folder, lambda manifest: manifest.update(pages=None))
    with_sums(folder)
    return folder


def test_levels_are_their_tables_with_what_a_query_says_of_each_row(made: Callable[[str], Path]) -> None:
    """Every level has the rows of its table as numbers of areas, and the marks, ends and shares that are published of it."""
    folder = made("default")
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
    assert (found["release"]["one"], found["release"]["many"]) == ("commuter", "commuters")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_pairs_that_no_row_has_are_answered_as_a_query_answers(made: Callable[[str], Path], kind: str) -> None:
    """So are pairs without a row, under dropped cells too, and pairs whose axis levels no level has."""
    folder = made(kind)
    shown = payload(open_folder(folder))
    own, crossed = ([part["at"] for part in shown[parts]] for parts in ("levels", "crossed"))
    pairs = [[one, other] for one in (1, 2, 3) for other in (1, 2, 3)]
    assert sorted([*(at for at in own if all(at)), *crossed]) == pairs
    # a histogram knows no other areas than those of the leaves that it has kept
    assert check_pairs(folder, shown) > (40 if kind == "thresholded" else 100)


def test_totals_of_areas_add_up_to_everything(made: Callable[[str], Path]) -> None:
    """Each axis level has a total for every area, and together these are the count of everything."""
    found = payload(open_folder(made("inftda")))
    assert [(of["axis"], of["level"]) for of in found["totals"]] == [
        (axis, level) for axis in (0, 1) for level in (1, 2, 3)
    ]
    for of in found["totals"]:
        assert len(of["count"]) == len(found["axes"][of["axis"]]["levels"][of["level"] - 1]["codes"])
        assert sum(of["count"]) == found["release"]["total"]["count"]


def test_levels_that_have_no_room_are_named_with_their_files(made: Callable[[str], Path]) -> None:
    """Coarse levels come first; those that do not fit are listed with their rows and files, and their areas are not."""
    folder = made("default")
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


def test_tables_that_have_no_room_are_named(place: Path) -> None:
    """Tables of attributes are taken in as long as their cells fit, and a sentence names the others."""
    folder = people_released(place, mechanism="inftda").folder
    found = payload(open_folder(folder), most_rows=30)
    assert sum(len(table["count"]) for table in found["tables"]) <= 30
    assert found["tables_left_out"] == [
        "Tables of zone by age, zone by age_3, zone by age_2 are left out: they are too large for this page."
    ]


def test_the_same_folder_gives_the_same_text(made: Callable[[str], Path]) -> None:
    """The data is the same text each time, JSON in one line without anything that is no number."""
    folder = made("default")
    text = payload_text(open_folder(folder))
    assert text == payload_text(open_folder(folder))
    assert "\n" not in text
    assert json.loads(text) == payload(open_folder(folder))


def failures(folder: Path) -> list[str]:
    """Return what `trellis verify` says of a folder."""
    return list(verify_answer(folder).failures)


def test_a_page_that_shows_other_numbers_is_found(made: Callable[[str], Path], tmp_path: Path) -> None:
    """`verify` makes the data again: a page with other data, or none, is named, and that with the same data passes."""
    folder = shutil.copytree(made("default"), tmp_path / "copy")
    data = embedded(open_folder(folder))
    told = "explorer.html does not show what the tables hold."
    assert "<" not in data
    assert failures(with_page(folder, data)) == []
    assert failures(with_page(folder, data.replace('"signal_rate":0.1', '"signal_rate":0.2'))) == [told]
    assert failures(with_page(folder, "")) == [told]
    of_another_version = data.replace(f'"version":{VERSION}', f'"version":{VERSION + 1}')
    assert of_another_version != data
    found = verify_answer(with_page(folder, of_another_version))
    assert found.ok
    assert found.unread == [
        "explorer.html: only the checksum was compared, because another version of Trellis wrote its data."
    ]
    (folder / "explorer.html").write_text("<p>Nothing here")
    with_sums(folder)
    assert failures(folder) == [told]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for a release of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    "keys",
    [
        {"mechanism": "unbiased_tree"},
        {
            "mechanism": "wavelet",
            "privacy": PRIVACY | {"neighbours": "substitution"},
            "release": {"order": ["age", "zone"]},
        },
        {"mechanism": "unbiased_tree", **GRID},
        {"mechanism": "cascade", "privacy": PRIVACY | {"neighbours": "substitution"}, **GRID},
        {"mechanism": "inftda"},
        {"mechanism": "gaussian"},
    ],
)
def test_sums_over_ordered_attributes_are_answered_as_each_by_itself(place: Path, keys: dict[str, Any]) -> None:
    """Counts, intervals and deviations of trees and grids of ordered attributes are what a query says, whatever is summed over."""
    folder = people_released(place, **keys).folder
    check_boxes(folder, kinds=30, each=8)
    check_absent(folder, most=30)
    found = payload(open_folder(folder))
    assert {tuple(table["axes"]) for table in found["tables"]} == {(0,), (1,), (0, 1)}
    is_unbiased = keys["mechanism"] not in {"inftda", "gaussian"}
    assert all((table["sd"] is not None) == is_unbiased for table in found["tables"])


@pytest.mark.parametrize("mechanism", [name for name, recipe in MECHANISMS.items() if recipe.is_of_sizes])
def test_numbers_of_groups_are_answered_as_each_by_itself(place: Path, mechanism: str) -> None:
    """Whatever is measured of group sizes, with a public list of groups or without, regions and sizes are what a query says."""
    for number, keys in enumerate([{}, LISTED] if MECHANISMS[mechanism].takes_list else [{}]):
        folder = homes_released(place / str(number), mechanism=mechanism, dataset=f"homes-{number}", **keys).folder
        for of in (folder, bare(folder, place / f"bare-{number}")):
            check_boxes(of, kinds=9, each=8)
        found = payload(open_folder(folder))
        assert found["kind"] == "sizes"
        assert [table["at"] for table in found["tables"] if table["axes"] == [0, 1]] == [[2, 1], [1, 1]]


@pytest.mark.parametrize("mechanism", ["cbdp", "inftda_reconciled"])
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
