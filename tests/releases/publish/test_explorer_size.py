"""The size of an explorer: that of Rhode Island's tracts, with names and maps, can be mailed."""

from pathlib import Path

import pytest

from flows.api import release
from tasks.explore.page import EXPLORER
from tests.support.user import REPOSITORY

DATA = REPOSITORY.parent / "shared" / "data" / "lodes_ri_2019"
SPEC = {
    "name": "rhode-island",
    "dataset": "rhode-island",
    "input": {"table": str(DATA / "ri_od_main_JT00_2019.csv.gz"), "origin": "h_geocode", "destination": "w_geocode"}
    | {"count": "S000"},
    "hierarchy": {
        "table": str(DATA / "ri_xwalk.csv.gz"),
        "levels": ["cty", "trct", "bgrp", "tabblk2010"],
        "labels": {"cty": "ctyname", "trct": "trctname"},
        "boundaries": str(DATA / "ri_tracts.geojson"),
    },
    "release": {"tree": "destination", "finest": "trct"},
    "privacy": {"unit": "one job", "neighbours": "substitution", "max_records_per_unit": 1, "epsilon": 4.0}
    | {"delta": 1.0e-8, "accountant": "zcdp"},
    "budget": {"epsilon": 1000.0, "delta": 1.0e-5},
    "noise": {"sampler": "table"},
}


@pytest.mark.thorough
@pytest.mark.skipif(not DATA.is_dir(), reason="no data: ../shared/data/lodes_ri_2019 is absent")
def test_the_page_of_rhode_island_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At tract level, with every level, every name and every shape in it, it has less than a quarter of eight megabytes."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    page = (release(SPEC | {"output": str(tmp_path / "out")}).folder / EXPLORER).read_text(encoding="utf-8")
    assert len(page.encode()) < 2_000_000
    assert '"left_out":[]' in page
    assert page.count("Providence County, RI") == 2  # once for either end
