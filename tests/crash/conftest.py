"""What the tests of crashes share: a store of their own, the plan of a small country, and the process that kills releases."""

import numpy as np
import pytest

from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from flows.synthetic import write_ready
from tasks.synthesize.country import draw_country
from tests.support.launcher import launcher


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Give every test a TRELLIS_HOME of its own, whose name no pattern of files may take for another."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home [of] * tests"))
    return tmp_path / "home [of] * tests"


@pytest.fixture(scope="session")
def launch():
    """Return the warm process that forks a child per run."""
    return launcher()


@pytest.fixture
def plan(tmp_path):
    """Return the plan of a small made-up country, with a budget for several releases; its spec is `spec.yaml`."""
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(1))
    spec = write_ready(country, tmp_path, "synthetic-commuting", "synthetic-country", epsilon=4.0)
    cheap = spec.read_text().replace("delta: 1.0e-8", "delta: 1.0e-8\n  accountant: zcdp", 1)
    spec.write_text(cheap.replace("{epsilon: 10.0", "{epsilon: 40.0"))
    return make_plan(load_spec(spec))
