"""A made-up table of people by zone and age, whose axes are ordered, with its spec."""

import numpy as np
import polars as pl

from flows.api import release
from storage.database.connections import store
from tests.support.keys import PRIVACY as OF_ONE
from tests.support.spec import spec_in

PRIVACY = OF_ONE | {"unit": "one made-up person", "accountant": "zcdp"}  # pld takes seconds
EXACT = {"privacy": PRIVACY | {"epsilon": 500.0}, "noise": {"sampler": "opendp"}}  # no noise, but for a draw in 10**20

SPEC = {
    "name": "ages",
    "dataset": "made-up-people",
    "input": {"table": "people.csv", "features": ["zone", "age"]},
    "hierarchy": {"zone": {"values": ["n", "s"]}, "age": {"ordered": 10}},
    "release": {"order": ["zone", "age"]},
    "mechanism": "cascade",
    "noise": {"sampler": "table"},
    "privacy": PRIVACY,
    "budget": {"epsilon": 2.0e3, "delta": 1.0e-5},
}
GRID = {  # of both axes in an order
    "hierarchy": {"zone": {"ordered": ["n", "e", "s"]}, "age": {"ordered": 10}},
    "release": {"grid": ["zone", "age"]},
}

BY_AGE = {  # of ages alone
    "input": {"table": "people.csv", "features": ["age"]},
    "hierarchy": {"age": {"ordered": 10}},
    "release": {"order": ["age"]},
    "mechanism": "optimal_ranges",
}


PRODUCT = {  # of zones in regions, sex and ages
    "input": {"table": "people.csv", "features": ["zone", "sex", "age"]},
    "hierarchy": {
        "zone": {"table": "zones.csv", "levels": ["region", "zone"]},
        "sex": ["f", "m"],
        "age": {"ordered": 10},
    },
    "release": {"grid": ["zone", "sex", "age"]},
}


def with_sex(people, folder):
    """Return people with a sex, and write the regions of their zones."""
    (folder / "zones.csv").write_text("region,zone\nA,n\nA,e\nB,s\n")
    return people.with_columns(sex=pl.Series(np.resize(["f", "m", "m"], people.height), dtype=pl.String))


def draw_people(people=600, ages=10):
    """Return people with a zone and an age."""
    generator = np.random.default_rng(8)
    zones, of_ages = generator.choice(["n", "s"], people, p=[0.7, 0.3]), generator.binomial(ages - 1, 0.4, people)
    return pl.DataFrame({"zone": zones, "age": of_ages.astype(str)})


def people_released(folder, people=None, **keys):
    """Release the people of a folder, with other keys of the spec; TRELLIS_HOME must be set."""
    (draw_people() if people is None else people).write_csv(folder / "people.csv")
    with store():  # open all the time: to open it is a fifth of a release
        return release(spec_in(folder, SPEC | keys))
