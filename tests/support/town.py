"""A town whose trips are grouped in ways that cross: its tables, and specs that release them with views."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import yaml

from flows.api import release
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.database.connections import store
from tests.support.spec import SPEC

ZONES = [("A", "A1"), ("A", "A2"), ("A", "A3"), ("B", "B1")]
NAMES = [zone for _, zone in ZONES]
DISTRICT = {zone: district for district, zone in ZONES}
ORDER = ["from.district", "to.district", "from.zone", "to.zone"]
VIEWS = {
    "total": {},
    "living": {"from": "zone"},
    "working": {"to": "zone"},
    "by_mode": {"mode": "mode"},
    "mode_from": {"from": "district", "mode": "mode"},
    "pairs": {"from": "district", "to": "district"},  # the cells of level 2
}
TRIPS = [("A1", "A1", 41), ("A1", "B1", 7), ("A2", "A3", 1), ("A3", "A1", 120), ("B1", "A2", 3), ("B1", "B1", 15)]


def mode_of(one, other):
    """Return the mode of a trip: nobody takes a bus inside district B, which has one zone."""
    if one == other:
        return "walk"
    return "bus" if DISTRICT[one] == DISTRICT[other] else "rail"


def modes(pairs=None):
    """Return the table of modes of all pairs of zones, or of some, as CSV."""
    pairs = [(one, other) for one in NAMES for other in NAMES] if pairs is None else pairs
    return "from,to,mode\n" + "".join(f"{one},{other},{mode_of(one, other)}\n" for one, other in pairs)


@dataclass
class Town:
    """A folder with the tables of the town, and its trips: from, to, and how many."""

    folder: Path
    trips: list[tuple[str, str, int]] = field(default_factory=lambda: TRIPS)

    def __post_init__(self):
        """Write the tables."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "trips.csv").write_text("from,to,n\n" + "".join(f"{a},{b},{n}\n" for a, b, n in self.trips))
        (self.folder / "zones.csv").write_text("district,zone\n" + "".join(f"{a},{b}\n" for a, b in ZONES))
        (self.folder / "modes.csv").write_text(modes())

    @property
    def home(self):
        """Where its store is."""
        return self.folder / "home"

    def keys(self, **changes):
        """Return the keys of a spec; `section__key` changes a key of a section, and None takes one out."""
        codebook = {"table": "zones.csv", "levels": ["district", "zone"]}
        keys = {
            "name": "trips",
            "dataset": "town",
            "input": {"table": "trips.csv", "features": ["from", "to"], "count": "n"},
            "hierarchy": {"from": codebook, "to": codebook},
            "derived": {"mode": {"table": "modes.csv", "of": ["from.zone", "to"]}},
            "release": {"order": ORDER, "views": VIEWS, "csv": "every_level", "noisy_counts": True},
            "mechanism": "cbdp",
            "privacy": SPEC["privacy"] | {"unit": "one trip", "neighbours": "add_remove", "epsilon": 2.0},
            "budget": {"epsilon": 100.0, "delta": 1e-3},
            "run": {"prefect": False},
        }
        for place, value in changes.items():
            section, _, key = place.partition("__")
            within = keys.setdefault(section, {}) if key else keys
            within[key or section] = value
            if value is None:
                del within[key or section]
        if keys.get("noise", {}).get("law", "gaussian") != "gaussian":
            keys["privacy"] = {key: value for key, value in keys["privacy"].items() if key != "accountant"}
        return keys

    def spec(self, **changes):
        """Write that spec, and return its path."""
        path = self.folder / "spec.yaml"
        path.write_text(yaml.safe_dump(self.keys(**changes), sort_keys=False, allow_unicode=True))
        return path

    def plan(self, **changes):
        """Plan that release."""
        return make_plan(load_spec(self.spec(**changes)))

    def release(self, **changes):
        """Make that release in the store of the town, and return its folder."""
        os.environ["TRELLIS_HOME"] = str(self.home)
        with store():  # open all the time
            return release(self.spec(**changes)).folder


def level(folder, number):
    """Return a published level."""
    return pl.read_parquet(folder / "counts" / f"level_{number}.parquet")


def view(folder, name):
    """Return a published view."""
    return pl.read_parquet(folder / "views" / f"{name}.parquet")
