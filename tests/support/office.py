"""A folder of an office that releases small tables: a table, and specs that read one."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from tests.support.spec import SPEC

ROWS = "".join(f"a{number % 2},b{number % 3}\n" for number in range(60))


@dataclass
class Office:
    """A folder with a table, and specs of datasets that read one."""

    folder: Path

    def spec(self, dataset, table, **more):
        """Write the spec of a dataset's release, with the whole of its cap."""
        keys = {
            "name": dataset,
            "dataset": dataset,
            "input": {"table": table, "features": ["home", "work"]},
            "hierarchy": {"home": {"values": ["a0", "a1"]}, "work": {"values": ["b0", "b1", "b2"]}},
            "release": {"order": ["home", "work"]},
            "mechanism": "inftda",
            "privacy": SPEC["privacy"] | {"epsilon": 1.0, "delta": 1e-6, "accountant": "zcdp"},
            "budget": {"epsilon": 1.0, "delta": 1e-6},
            **more,
        }
        path = self.folder / f"{dataset}.yaml"
        path.write_text(yaml.safe_dump(keys))
        return path

    def plan(self, dataset, table, **more):
        """Plan that release."""
        return make_plan(load_spec(self.spec(dataset, table, **more)))
