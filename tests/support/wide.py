"""A country of so many zones that its pairs of zones cannot be settled together: its tables, and specs that release margins."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from flows.api import release
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from tests.support.spec import SPEC

DISTRICTS, ZONES = 20, 3_200  # 10,240,000 pairs of zones
COUNTS = [f"{end}_{level}" for end in ("origin", "destination") for level in ("district", "zone")]


def code_of(zone):
    """Return the district and the code of a zone."""
    return f"D{zone * DISTRICTS // ZONES:02}", f"Z{zone:04}"


def trips(seed=1, flows=300):
    """Return made-up trips: where from, where to, and how many. Some flows are large, and most are small."""
    generator = np.random.default_rng(seed)
    zones = (generator.pareto(1.2, (flows, 2)) * 25).astype(np.int64) % ZONES
    counts = 1 + (generator.pareto(1.1, flows) * 8).astype(np.int64) % 3_000
    ends = {(int(one), int(other)): int(count) for (one, other), count in zip(zones, counts, strict=True)}
    return [(*pair, count) for pair, count in ends.items()]


@dataclass
class Wide:
    """A folder with the tables of the country, and its trips: from, to, and how many."""

    folder: Path
    trips: list[tuple[int, int, int]]

    def __post_init__(self):
        """Write the tables."""
        self.folder.mkdir(parents=True, exist_ok=True)
        zones = pl.DataFrame([code_of(zone) for zone in range(ZONES)], ["district", "zone"], orient="row")
        zones.write_csv(self.folder / "zones.csv")
        rows = [(code_of(one)[1], code_of(other)[1], count) for one, other, count in self.trips]
        names = {"from": pl.String, "to": pl.String, "n": pl.Int64}
        pl.DataFrame(rows, names, orient="row").write_csv(self.folder / "trips.csv")

    def spec(self, **changes):
        """Write a spec, with changed keys, and return its path."""
        keys = {
            "name": "trips",
            "dataset": "country",
            "input": {"table": "trips.csv", "origin": "from", "destination": "to", "count": "n"},
            "hierarchy": {"table": "zones.csv", "levels": ["district", "zone"]},
            "release": {"tree": "destination", "finest": "zone", "views": "margins", "noisy_counts": True},
            "mechanism": "inftda_reconciled",
            "privacy": SPEC["privacy"] | {"unit": "one trip", "epsilon": 4.0},
            "budget": {"epsilon": 100.0, "delta": 1e-3},
            "run": {"prefect": False},
        }
        path = self.folder / "spec.yaml"
        path.write_text(yaml.safe_dump(keys | changes, sort_keys=False))
        return path

    def plan(self, **changes):
        """Plan that release."""
        return make_plan(load_spec(self.spec(**changes)))

    def release(self, **changes):
        """Make that release in the store of the environment, and return its folder."""
        return release(self.spec(**changes)).folder

    def true_totals(self, name):
        """Return the true totals of a margin by its finest code, without zeros."""
        end, level = name.split("_")
        found = {}
        for one, other, count in self.trips:
            code = code_of(one if end == "origin" else other)[level == "zone"]
            found[code] = found.get(code, 0) + count
        return found
