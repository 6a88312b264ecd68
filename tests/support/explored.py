"""A made-up land of named, drawn towns, whose trips are released with an explorer, and what a query of them answers."""

import json

import numpy as np
import polars as pl
from shapely.geometry import box, mapping

from flows.answers.query import query_answer
from flows.api import release
from storage.database.connections import store
from tests.support.spec import spec_in

ROWS, COLUMNS = 3, 5  # counties, and towns in each
COUNTIES = ["Ashford", "Bergen", "Çorlu"]
TOWNS = [f"{county + 1:02}{town + 1:02}" for county in range(ROWS) for town in range(COLUMNS)]
NAMES = {
    town: f"{'Mill' if number % 4 == 0 else 'Port'} {COUNTIES[number // COLUMNS]} {number % COLUMNS + 1}"
    for number, town in enumerate(TOWNS)
}

SPEC = {
    "name": "land",
    "dataset": "land",
    "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
    "hierarchy": {"table": "areas.csv", "levels": ["county", "town"]},
    "release": {"tree": "destination", "finest": "town", "csv": "every_level"},
    "privacy": {"unit": "one made-up commuter", "neighbours": "substitution", "max_records_per_unit": 1, "epsilon": 1.5}
    | {"delta": 1e-8, "accountant": "zcdp"},
    "budget": {"epsilon": 1000.0, "delta": 1e-5},
    "noise": {"sampler": "table"},
}
DRAWN = {"labels": {"county": "county_name", "town": "town_name"}, "boundaries": "towns.geojson"}
BY_MODE = {  # what makes these trips ones by mode and hour
    "input": SPEC["input"] | {"features": ["mode", "hour"]},
    "hierarchy": dict.fromkeys(["origin", "destination"], SPEC["hierarchy"] | DRAWN)
    | {"mode": ["car", "bus", "walk"], "hour": {"ordered": 12}},
    "release": {"csv": False},
    "dataset": "by-mode",
    "expected_total": 6000,
}


def land_released(folder, of_areas, /, **keys):
    """Release the trips of the land with further keys of the hierarchy and the spec; TRELLIS_HOME must be set. Return the published folder."""
    folder.mkdir(parents=True, exist_ok=True)
    areas = [(town[:2], COUNTIES[int(town[:2]) - 1], town, NAMES[town]) for town in TOWNS]
    pl.DataFrame(areas, ["county", "county_name", "town", "town_name"], orient="row").write_csv(folder / "areas.csv")
    squares = [box(n % COLUMNS, 50 - n // COLUMNS, n % COLUMNS + 1, 51 - n // COLUMNS) for n in range(len(TOWNS))]
    drawn = zip(TOWNS, squares, strict=True)
    features = [{"type": "Feature", "properties": {"code": town}, "geometry": mapping(of)} for town, of in drawn]
    (folder / "towns.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    chance = np.random.default_rng(7)
    shares = chance.pareto(0.7, len(TOWNS) ** 2)
    pairs = chance.choice(len(TOWNS) ** 2, 6000, p=shares / shares.sum())
    homes, works = ([TOWNS[place] for place in of.tolist()] for of in divmod(pairs, len(TOWNS)))
    modes, hours = chance.choice(["car", "bus", "walk"], 6000, p=[0.6, 0.3, 0.1]), chance.binomial(11, 0.4, 6000)
    pl.DataFrame({"home": homes, "work": works, "mode": modes, "hour": hours}).write_csv(folder / "trips.csv")
    spec = SPEC | {"hierarchy": SPEC["hierarchy"] | of_areas} | keys
    with store():  # open all the time
        return release(spec_in(folder, spec), different_people=True).folder


def asked(folder, where):
    """Return what `trellis query` answers."""
    return query_answer(folder, None, None, [f"{axis}={area}" for axis, area in where.items()], simultaneous=False)
