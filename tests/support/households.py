"""A made-up table of people at addresses in counties and states, with its spec, and its true numbers of households by size."""

import numpy as np
import polars as pl

from flows.api import release
from storage.database.connections import store
from tests.support.ages import PRIVACY as OF_PEOPLE
from tests.support.spec import spec_in

PRIVACY = {key: of for key, of in OF_PEOPLE.items() if key != "accountant"} | {"split": {"finest": 4}}
EXACT = {"privacy": PRIVACY | {"epsilon": 240.0, "split": "uniform"}}  # no noise, but for one draw in 10**30

COUNTIES = [("A", "A1"), ("A", "A2"), ("B", "B1"), ("B", "B2"), ("B", "B3")]
LARGEST = 6
BANDS = dict(zip("123456", ["one", "few", "few", "few", "many", "few"], strict=True))  # by size

SPEC = {
    "name": "households",
    "dataset": "made-up-people",
    "input": {"table": "people.csv", "group": "address"},
    "hierarchy": {"region": {"table": "counties.csv", "levels": ["state", "county"]}},
    "release": {"group_sizes": {"region": "county", "largest": LARGEST}},
    "privacy": PRIVACY,
    "budget": {"epsilon": 2.0e3, "delta": 1.0e-5},
}
ATTRIBUTES = {"hierarchy": SPEC["hierarchy"] | {"tenure": ["own", "rent"]}}
TENURE = ATTRIBUTES | {"input": SPEC["input"] | {"features": ["tenure"]}}
VIEWS = TENURE | {
    "derived": {"band": {"table": "bands.csv", "of": ["size"]}},
    "release": SPEC["release"]
    | {
        "views": {
            "tenures": {"tenure": "tenure"},
            "counties": {"region": "county"},
            "bands": {"region": "county", "band": "band"},
        }
    },
}
LISTED = {"input": SPEC["input"] | {"groups": {"table": "addresses.csv", "levels": "county"}}}


LISTED_TENURE = ATTRIBUTES | {"input": LISTED["input"] | {"features": ["tenure"]}}


def draw_homes(homes=500):
    """Return homes with a county and a number of people from 1 to 9; county B3 has none."""
    generator = np.random.default_rng(19)
    counties = generator.choice(["A1", "A2", "B1", "B2"], homes, p=[0.4, 0.1, 0.3, 0.2])
    people = np.minimum(generator.geometric(0.4, homes), 9)
    columns = {"address": [f"home {n}" for n in range(homes)], "county": counties.tolist(), "people": people}
    return pl.DataFrame(columns, schema={"address": pl.String, "county": pl.String, "people": pl.Int64})


def with_tenure(homes):
    """Return homes with their tenure: the third of each three, and all but one of county A2, are rented."""
    rented = (pl.int_range(pl.len()) % 3 == 2) | ((pl.col("county") == "A2") & (pl.int_range(pl.len()) > 9))
    return homes.with_columns(tenure=pl.when(rented).then(pl.lit("rent")).otherwise(pl.lit("own")))


def people_of(homes):
    """Return a row per person."""
    return homes.select(pl.exclude("people").repeat_by("people").explode())


def write_tables(folder, homes, empty=20):
    """Write the tables of the spec, and a list of all addresses, with empty ones in county B3."""
    folder.mkdir(parents=True, exist_ok=True)
    homes = with_tenure(homes)
    people_of(homes).write_csv(folder / "people.csv")
    homes.write_csv(folder / "homes.csv")
    pl.DataFrame({"size": [*BANDS], "band": [*BANDS.values()]}).write_csv(folder / "bands.csv")
    pl.DataFrame(COUNTIES, schema=["state", "county"], orient="row").write_csv(folder / "counties.csv")
    vacant = pl.DataFrame({"address": [f"empty {n}" for n in range(empty)], "county": ["B3"] * empty, "tenure": "rent"})
    pl.concat([homes.select("address", "county", "tenure"), vacant]).write_csv(folder / "addresses.csv")


def write_spec(folder, **keys):
    """Write the spec of a folder, with other keys, and return its path."""
    return spec_in(folder, SPEC | keys)


def homes_released(folder, homes=None, **keys):
    """Release the homes of a folder, with other keys of the spec; TRELLIS_HOME must be set."""
    write_tables(folder, draw_homes() if homes is None else homes)
    with store():  # open all the time
        return release(write_spec(folder, **keys), different_people=True)
