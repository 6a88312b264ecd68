"""The list of formats in a spec: what it asks for, and what of it does not fit the rest of the spec."""

import copy
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from flows.planning.plan import make_plan
from flows.spec.file import SpecFile, load_spec
from storage.errors import SpecError
from tasks.export import matrices
from tasks.export.formats import check_formats, too_many_zones
from tasks.export.sdmx import identifier
from tests.support.ages import SPEC as AGES
from tests.support.households import SPEC as HOMES
from tests.support.spec import SPEC

Keys = dict[str, Any]


def load(folder: Path, keys: Keys, **release: Any) -> SpecFile:
    """Write a spec with other keys under `release`, and load it."""
    keys = copy.deepcopy(keys)
    keys["release"] |= release
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys))
    return load_spec(folder / "spec.yaml")


@pytest.mark.parametrize(
    ("release", "csv", "more"),
    [
        ({}, None, ()),
        ({"csv": True}, True, ()),
        ({"formats": []}, None, ()),
        ({"formats": ["parquet"]}, False, ()),
        ({"formats": ["xlsx"]}, False, ("xlsx",)),
        ({"formats": ["csv", "parquet", "omx"]}, True, ("omx",)),
        ({"formats": ["csv"], "csv": "every_level"}, "every_level", ()),
        ({"formats": ["xlsx"], "csv": "every_level"}, "every_level", ("xlsx",)),
        ({"formats": ["xlsx"], "csv": False}, False, ("xlsx",)),
    ],
)
def test_a_list_of_formats_says_whether_there_is_csv(
    tmp_path: Path, release: Keys, csv: Any, more: tuple[str, ...]
) -> None:
    """With a list, there is CSV where it lists csv or release.csv asks for it; without a list, release.csv decides."""
    found = load(tmp_path, SPEC, **release).spec.release
    assert found.as_csv == csv
    assert found.more_formats == more


TWO_ENDS = SPEC | {
    "hierarchy": {end: {"table": f"{end}.csv", "levels": ["region"]} for end in ("origin", "destination")}
}
GEOMETRY = AGES | {
    "input": {"table": "people.csv", "features": ["Geometry", "area"]},
    "hierarchy": {
        "Geometry": {"values": 2},
        "area": {"table": "areas.csv", "levels": ["county", "town"], "boundaries": "towns.geojson"},
    },
}


@pytest.mark.parametrize(
    ("keys", "release", "said"),
    [
        (SPEC, {"formats": ["xlsx", "xlsx"]}, "must list each format once"),
        (SPEC, {"formats": ["pdf"]}, "must be parquet, csv"),
        (SPEC, {"formats": ["csv"], "csv": False}, "must not list csv where release.csv is false"),
        (AGES, {"formats": ["omx"]}, "must not list omx without input.origin and input.destination"),
        (HOMES, {"formats": ["omx"]}, "must not list omx without input.origin and input.destination"),
        (
            TWO_ENDS,
            {"formats": ["omx"], "finest": "region"},
            "must not list omx unless both ends have one hierarchy.table",
        ),
        (SPEC, {"formats": ["geoparquet"]}, "must not list geoparquet without hierarchy.boundaries"),
        (AGES, {"formats": ["geoparquet"]}, "must not list geoparquet without hierarchy.boundaries"),
        (
            GEOMETRY,
            {"order": ["Geometry", "area"], "formats": ["geoparquet"]},  # whose shapes are in a column of that name
            "two columns of a published file the name geometry",
        ),
    ],
)
def test_formats_that_do_not_fit_are_refused(tmp_path: Path, keys: Keys, release: Keys, said: str) -> None:
    """What is listed twice, is unknown, contradicts release.csv or needs what the spec does not have is refused by the key release.formats."""
    with pytest.raises(SpecError) as refused:
        load(tmp_path, keys, **release)
    assert refused.value.field.startswith("release.formats")
    assert said in str(refused.value)


def planned(folder: Path, finest: Any, **keys: Any) -> Any:
    """Return the tree of a plan with matrices."""
    (folder / "data").mkdir(exist_ok=True)
    areas = [(f"r{n // 6}", f"p{n // 3}", f"m{n:02}") for n in range(12)]
    pl.DataFrame(areas, ["region", "province", "municipality"], orient="row").write_csv(folder / "data/codebook.csv")
    pl.DataFrame({"home": ["m00"], "work": ["m01"], "people": [3]}).write_csv(folder / "data/trips.csv")
    return make_plan(load(folder, SPEC | keys, finest=finest, formats=["omx"])).tree


def test_matrices_are_for_levels_with_the_same_zones_at_both_ends(tmp_path: Path) -> None:
    """A matrix is square: it takes levels where both ends have reached the same level, and every release of trips has one."""
    tree = planned(tmp_path, {"origin": "region", "destination": "municipality"})
    square = [level for level in range(tree.depth + 1) if matrices.is_square(tree.level_names(level))]
    assert square == [2]
    for axes in ({"origin": None, "destination": None}, {"origin": "region", "destination": "province"}):
        assert not matrices.is_square(axes)
    assert not matrices.is_square({"region": "a", "size": "a"})


def test_matrices_have_a_limit_of_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels with too many zones are left out, which the plan knows; where all have too many, omx is refused with their number."""
    tree = planned(tmp_path, "municipality")  # 2 regions, 4 provinces, 12 municipalities: levels 2, 4, 6
    monkeypatch.setattr(matrices, "MOST_ZONES", 4)
    assert too_many_zones(["omx"], tree) == [6]
    assert too_many_zones(["xlsx"], tree) == []
    check_formats(["omx"], tree)
    monkeypatch.setattr(matrices, "MOST_ZONES", 1)
    with pytest.raises(SpecError, match=r"at most 1 zones, and the coarsest level .* has 2") as refused:
        check_formats(["omx"], tree)
    assert refused.value.field == "release.formats"


def test_identifiers_of_sdmx_are_valid_and_differ() -> None:
    """An identifier has only characters that SDMX allows, stays as it is where it can, and differs for different texts."""
    texts = ["007", "a b", "a_b", "a_x20_b", "a", "C_a", "1a", "C_1a", "é", "@", "OBS_VALUE", "C_OBS_VALUE", "", "_"]
    for begins in (False, True):
        found = [identifier(text, begins_with_letter=begins) for text in texts]
        assert len(set(found)) == len(texts)
        assert all(set(of) <= {*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"} for of in found)
        assert not begins or all(of[0].isalpha() for of in found)
    assert identifier("007") == "007"
    assert identifier("a b") == "a_x20_b"
    assert identifier("OBS_VALUE", begins_with_letter=True) == "C_OBS_VALUE"
