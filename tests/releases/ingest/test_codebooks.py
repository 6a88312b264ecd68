"""Public look-ups as they are found: with areas that have no parent, levels in reverse, columns and files of other names."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from flows.api import open_release, release
from flows.forecast.check import check_answer
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from storage.errors import InputError, SpecError, TrellisError
from tests.support.spec import SPEC

# England has regions; Wales and Scotland have none.
LOOKUP = """country,region,district
E,E12,E0601
E,E12,E0602
E,E13,E0701
W,,W0601
W,,W0602
S,  ,S1201
"""
LEVELS = ["country", "region", "district"]


def plan(folder: Path, lookup: str = LOOKUP, **hierarchy: Any) -> Plan:
    """Plan a release of trips among the districts of a look-up."""
    (folder / "areas.csv").write_text(lookup)
    (folder / "trips.csv").write_text("home,work\nE0601,W0601\n")
    keys = SPEC | {"name": "trips", "input": {"table": "trips.csv", "origin": "home", "destination": "work"}}
    keys |= {"hierarchy": {"table": "areas.csv", "levels": LEVELS} | hierarchy}
    keys |= {"release": {"tree": "destination", "finest": "district"}}
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
    return make_plan(load_spec(folder / "spec.yaml"))


MANY = LOOKUP + "".join(f"N,,N{number}\n" for number in range(100))
REVERSED = "district,region\n" + "".join(f"D{number},R{number // 5}\n" for number in range(20))
TAKEN = "column region has a blank code, and another area there has the code that district"
OWN = {"blank": "own_area"}
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [  # look-up, keys of the hierarchy, what error and hint say
    (LOOKUP, {}, "column region has a blank code in 3 rows: 4, 5, 6, not counting the header.", "blank: own_area"),
    (MANY, {}, "in 103 rows: 4, 5, 6, 7, 8 and others, not counting the header", ""),
    (LOOKUP + "W,W9,\n", OWN, "column district has a blank code in 1 row: 7,", ""),  # the finest
    (LOOKUP + ",,\n", OWN, "column district has a blank code in 1 row: 7,", ""),
    (LOOKUP + "E,W0601,E9\n", OWN, TAKEN, ""),  # no two areas become one
    (
        REVERSED,
        {"levels": ["district", "region"]},
        *("hierarchy.levels must go from coarse to fine, and looks reversed", "Write levels: [region, district]."),
    ),
]


@pytest.mark.parametrize(("lookup", "hierarchy", "told", "hint"), REFUSED)
def test_what_is_no_hierarchy_is_refused(
    tmp_path: Path, lookup: str, hierarchy: dict[str, Any], told: str, hint: str
) -> None:
    """Blank parents are named by their rows, with the key that gives such areas a place; so are levels in reverse."""
    with pytest.raises(InputError) as refusal:
        plan(tmp_path, lookup, **hierarchy)
    assert told in str(refusal.value)
    assert hint in refusal.value.hint


def test_an_area_without_a_parent_stands_alone(tmp_path: Path) -> None:
    """At the level that it lacks it has its own code and one child, and it lies where its row says."""
    tree = plan(tmp_path, blank="own_area").tree
    axis = tree.axes[0]
    assert [codes.to_list() for codes in axis.codes] == [
        ["E", "S", "W"],
        ["E12", "E13", "S1201", "W0601", "W0602"],
        ["E0601", "E0602", "E0701", "S1201", "W0601", "W0602"],
    ]
    assert axis.parent[1].tolist() == [0, 0, 1, 2, 2]
    assert axis.parent[2].tolist() == [0, 0, 1, 2, 3, 4]


def test_several_blank_levels_take_the_code_below(tmp_path: Path) -> None:
    """A code is carried up as far as it must be."""
    axis = plan(tmp_path, LOOKUP + ",,X1\n", blank="own_area").tree.axes[0]
    assert [codes.to_list()[-1] for codes in axis.codes] == ["X1", "X1", "X1"]


def test_a_path_of_columns_needs_its_codes(tmp_path: Path) -> None:
    """Where records name every level, they lack the code that the codebook would get."""
    (tmp_path / "areas.csv").write_text(LOOKUP)
    keys = SPEC | {"name": "trips"}
    ends = {"origin": ["a", "b", "c"], "destination": ["d", "e", "f"]}
    keys |= {"input": {"table": "trips.csv"} | ends}
    keys |= {"hierarchy": {"table": "areas.csv", "levels": LEVELS, "blank": "own_area"}}
    keys |= {"release": {"tree": "destination", "finest": "district"}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(keys))
    with pytest.raises(SpecError, match=r"hierarchy\.blank must be refuse, since input\.origin names several columns"):
        load_spec(tmp_path / "spec.yaml")


@pytest.mark.parametrize(
    ("written", "wrong", "key", "meant"),
    [
        ("origin: home", "origin: hom", "table", "home"),
        ("mechanism: inftda", "mechanism: inftdda", "mechanism", "inftda"),
        ("finest: district", "fineest: district", "fineest", "finest"),
        ("neighbours: substitution", "neighbours: substituton", "neighbours", "substitution"),
        ("- district", "- distrikt", "table", "district"),
    ],
    ids=["column", "mechanism", "key", "value", "codebook"],
)
def test_lines_and_nearest_names_are_told(tmp_path: Path, written: str, wrong: str, key: str, meant: str) -> None:
    """Whatever is misspelt is told with the line of its key and the name that is nearest."""
    plan(tmp_path, blank="own_area")
    text = (tmp_path / "spec.yaml").read_text()
    assert written in text
    text = text.replace(written, wrong, 1)
    (tmp_path / "spec.yaml").write_text(text)
    hints = [problem.hint for problem in check_answer(tmp_path / "spec.yaml").problems]
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.strip().startswith(f"{key}:")]
    assert any(f"Line {line}. Did you mean {meant}?" in hint for hint in hints for line in lines), hints
    if "origin" not in written:  # the header of the confidential table is not opened by a plan
        with pytest.raises(TrellisError) as refusal:
            make_plan(load_spec(tmp_path / "spec.yaml"))
        assert refusal.value.hint in hints


def test_a_row_is_not_told_as_the_nearest_column(tmp_path: Path) -> None:
    """Where no column of the spec is in the first line, that line may be a record, and nothing of it is said."""
    plan(tmp_path, blank="own_area")
    (tmp_path / "trips.csv").write_text("homer,worker\nE0601,W0601\n")
    told = str(check_answer(tmp_path / "spec.yaml").problems)
    assert "has no column home" in told
    assert "homer" not in told
    (tmp_path / "trips.csv").write_text("homes,work\nE0601,W0601\n")
    assert "Did you mean homes?" in str(check_answer(tmp_path / "spec.yaml").problems)


def test_files_of_other_kinds_are_told_how_to_become_tables(tmp_path: Path) -> None:
    """An old spreadsheet and a map are not tables; the hint says how to make one."""
    told = {"areas.xls": "as CSV", "areas.geojson": "table of attributes as CSV", "areas.tsv": "commas"}
    for name, hint in told.items():
        (tmp_path / name).write_text("x")
        with pytest.raises(InputError, match=r"must end in \.csv") as refusal:
            plan(tmp_path, table=name)
        assert hint in refusal.value.hint


def test_a_release_counts_areas_that_stand_alone(tmp_path: Path) -> None:
    """The published tables have them at every level, and add up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
        plan(tmp_path, blank="own_area")
        rows = "".join(f"E0601,{'W0601' if number % 2 else 'S1201'}\n" for number in range(2_000))
        (tmp_path / "trips.csv").write_text("home,work\n" + rows)
        made = open_release(release(tmp_path / "spec.yaml").folder)
    finest = made.table(len(made.manifest.levels) - 1)
    wales = finest.filter(pl.col("destination_district") == "W0601")
    assert wales["destination_region"].unique().to_list() == ["W0601"]
    assert wales["destination_country"].unique().to_list() == ["W"]
