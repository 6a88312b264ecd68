"""What `utility` and `release.formats` come to: what is left out is filled in, and which levels have matrices."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import yaml

from flows.planning.plan import make_plan
from flows.specification.file import is_same_spec, parse_spec
from storage.errors import SpecError
from storage.tables import ENDS
from tasks.folder.export import matrices
from tasks.folder.export.formats import check_formats, too_many_zones
from tasks.folder.export.sdmx import sdmx_id
from tasks.tree.order import Tree
from tests.support.shapes import axis_by, complete
from tests.support.spec import SPEC

FLEET = {"period": "hour", "minutes": 60, "capacity": 8, "durations": "data/minutes.csv"}
STOPS = {"table": "stops.csv", "levels": ["zone", "district", "stop"]}
FEATURES = SPEC | {
    "input": {"table": "trips.csv", "features": ["from", "hour", "to"]},
    "hierarchy": {"from": STOPS, "to": STOPS, "hour": {"values": 24}},
    "release": {"order": ["hour", "from", "to"], "finest": {"from": "district"}},
}
PURPOSE = {
    "input": {"table": "trips.csv", "features": ["from", "hour", "to", "purpose"]},
    "hierarchy": FEATURES["hierarchy"] | {"purpose": {"values": 3}},
    "release": {"order": ["hour", "from", "to", "purpose"]},
}


@pytest.mark.parametrize(("given", "keys", "origin", "destination", "zone"), [
    ({}, {}, "from", "to", ("zone", "zone")),
    ({"origin": "to", "zone": "district"}, {}, "to", "from", ("district", "district")),
    ({"zone": ["district", "zone"]}, {}, "from", "to", ("district", "zone")),
    ({"origin": "from", "destination": "to"}, PURPOSE, "from", "to", ("zone", "zone")),
])  # fmt: skip
def test_what_is_left_out_of_a_fleet_is_filled_in(given, keys, origin, destination, zone):
    """The other two features are the ends, in their order, the coarsest level is the zone; and no release depends on it."""
    bare, text = (yaml.safe_dump(FEATURES | keys | of) for of in ({}, {"utility": {"fleet": FLEET | given}}))
    file = parse_spec(text, Path("spec.yaml"))
    found = file.spec.utility.fleet.terms(file.spec.released_levels)  # type: ignore[union-attr]
    assert (found["origin"], found["destination"], found["zone"]) == (origin, destination, zone)
    assert is_same_spec(bare, text)
    assert file.published() == parse_spec(bare, Path("spec.yaml")).published()


def planned(folder, finest):
    """Return the tree of a plan with matrices."""
    (folder / "data").mkdir()
    areas = [(f"r{n // 6}", f"p{n // 3}", f"m{n:02}") for n in range(12)]
    pl.DataFrame(areas, SPEC["hierarchy"]["levels"], orient="row").write_csv(folder / "data/codebook.csv")
    (folder / "data/trips.csv").write_text("home,work,people\nm00,m01,3\n")
    keys = SPEC | {"release": {"tree": "destination", "finest": finest, "formats": ["omx"]}}
    return make_plan(parse_spec(yaml.safe_dump(keys), folder / "spec.yaml")).tree


def test_matrices_are_for_levels_with_the_same_zones_at_both_ends(tmp_path):
    """A matrix is square: it takes levels where both ends have reached the same level, and every release of trips has one."""
    tree = planned(tmp_path, {"origin": "region", "destination": "municipality"})
    assert [axis.role for axis in tree.axes] == [*ENDS]
    assert [level for level in range(tree.depth + 1) if matrices.is_square(tree.level_names(level), ENDS)] == [2]
    assert not matrices.is_square({"origin": None, "destination": None}, ENDS)
    assert not matrices.is_square({"region": "a", "size": "a"}, ("region", "size"))
    assert not matrices.is_square({"origin": "a", "destination": "a"}, (None, None))  # two features of these names


def test_matrices_have_a_limit_of_zones(tmp_path, monkeypatch):
    """Levels with too many zones are left out, which the plan knows; where all have too many, omx is refused with their number."""
    tree = planned(tmp_path, "municipality")  # 2 regions, 4 provinces, 12 municipalities: levels 2, 4, 6
    monkeypatch.setattr(matrices, "MOST_ZONES", 4)
    assert (too_many_zones(["omx"], tree), too_many_zones(["xlsx"], tree)) == ([6], [])
    check_formats(["omx"], tree)
    monkeypatch.setattr(matrices, "MOST_ZONES", 1)
    with pytest.raises(SpecError, match=r"at most 1 zones, and the coarsest level .* has 2") as refused:
        check_formats(["omx"], tree)
    assert refused.value.field == "release.formats"


def test_matrices_of_attributes_have_a_limit_together(monkeypatch):
    """All matrices of a number, one for each code, have at most as many cells as the largest matrix without attributes."""
    axes = [replace(axis_by(complete(2, 2), end), role=end, level_names=("region", "place")) for end in ENDS]
    tree = Tree((*axes, axis_by([[3]], "mode")), (0, 1, 0, 1, 2))
    squares = [level for level in range(6) if matrices.is_square(tree.level_names(level), [*ENDS, None])]
    assert squares == [2, 4, 5]
    assert [matrices.cells_of_matrices(tree, level) for level in squares] == [(2, 1), (4, 1), (4, 3)]
    monkeypatch.setattr(matrices, "MOST_ZONES", 6)  # 36 cells; those of level 5 are 48
    assert too_many_zones(["omx"], tree) == [5]
    monkeypatch.setattr(matrices, "MOST_ZONES", 7)
    assert too_many_zones(["omx"], tree) == []


def test_identifiers_of_sdmx_are_valid_and_differ():
    """An identifier has only characters that SDMX allows, stays as it is where it can, and differs for different texts."""
    texts = ["007", "a b", "a_b", "a_x20_b", "a", "C_a", "1a", "C_1a", "é", "@", "OBS_VALUE", "C_OBS_VALUE", "", "_"]
    for begins in (False, True):
        found = [sdmx_id(text, begins_with_letter=begins) for text in texts]
        assert len(set(found)) == len(texts)
        assert all(re.fullmatch("[A-Za-z0-9_-]*", of) for of in found)
        assert not begins or all(of[0].isalpha() for of in found)
    assert [sdmx_id(text) for text in ("007", "a b")] == ["007", "a_x20_b"]
    assert sdmx_id("OBS_VALUE", begins_with_letter=True) == "C_OBS_VALUE"
