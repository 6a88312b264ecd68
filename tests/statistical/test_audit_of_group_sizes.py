"""A black-box audit of group sizes with a person who lives alone: what is claimed holds, and a chain drawn with sensitivity 1 is caught.

Two tables differ in one home of one person in the last of many counties. Everything runs as it does for users, from the table to
the published folder. The attacker knows both tables and the noise, and looks at the published measurements.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

import tasks.noise.task
from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing, submit_to
from storage.database.connections import store
from tasks.groups.task import Sizes
from tasks.sizes.statistics import CHAIN, TAILS, Statistic
from tests.support.attacks import FALSE_ALARM, Claim, Values, guesses_of, leaning, lower_bound

COUNTIES, LARGEST = 1000, 2
CLAIM = Claim(0.75, 1e-8)
RELEASES = 30  # of either table; all of them told apart refute ε = 1.3


@dataclass(frozen=True, slots=True)
class Audit:
    """What is audited.

    Attributes:
        mechanism: its name.
        claims: whether the ledger charges it for its true sensitivity; otherwise for one of 1.
    """

    mechanism: str
    claims: bool = True

    def __str__(self) -> str:
        return f"{self.mechanism}{'' if self.claims else ', drawn with sensitivity 1'}"


def sizes_of(alone: int) -> Values:
    """Return the homes of one and two people in every county: one of each, and in the last county so many more of one person."""
    sizes = np.ones((COUNTIES, LARGEST), dtype=np.int64)
    sizes[-1, 0] += alone
    return sizes


def write_spec(folder: Path, audit: Audit, alone: int) -> Path:
    """Write the tables and the spec; return its path."""
    sizes = sizes_of(alone)
    county, size = np.nonzero(sizes)
    people = np.repeat(size + 1, sizes[county, size])
    homes = pl.DataFrame({"county": np.repeat(county, sizes[county, size]), "people": people}).with_row_index("home")
    homes.write_csv(folder / "homes.csv")
    pl.DataFrame({"county": np.arange(COUNTIES)}).write_csv(folder / "counties.csv")
    spec = {
        "name": "audited",
        "dataset": "audited",
        "input": {"table": "homes.csv", "group": "home", "count": "people"},
        "hierarchy": {"region": {"table": "counties.csv", "levels": ["county"]}},
        "release": {"group_sizes": {"region": "county", "largest": LARGEST}, "noisy_counts": True},
        "mechanism": audit.mechanism,
        "noise": {"sampler": "table"},
        "privacy": {
            "unit": "one person",
            "neighbours": "add_remove",
            "max_records_per_unit": 1,
            "epsilon": CLAIM.epsilon,
            "delta": CLAIM.delta,
        },
        "budget": {"epsilon": 90.0, "delta": 0.1},
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    return folder / "spec.yaml"


def noisy_counts(folder: Path, audit: Audit, alone: int) -> tuple[Plan, Values]:
    """Return the plan of a table, and the published measurements of many releases of it, shape (releases, cells)."""
    folder.mkdir()
    plan, found = make_plan(load_spec(write_spec(folder, audit, alone))), []
    os.environ["TRELLIS_HOME"] = str(folder / "home")
    with store(), ThreadPoolExecutor(1) as executor:
        for number in range(RELEASES):
            spec = plan.file.spec.model_copy(update={"dataset": f"audited-{number}"})
            one = replace(plan, file=replace(plan.file, spec=spec))
            release = new_release(one, release_id=f"audited-{number}", different_people=True)
            make_release(one, release, submit_to(executor), report_nothing)
            levels = [Path(release.folder) / "noisy_counts" / f"level_{level}.parquet" for level in (1, 2)]
            found.append(np.concatenate([pl.read_parquet(level)["noisy_count"].to_numpy() for level in levels]))
    return plan, np.array(found, dtype=np.float64)


def true_counts(statistic: Statistic, alone: int) -> Values:
    """Return what is measured of a table without noise, in the order of the published measurements."""
    sizes = sizes_of(alone)
    levels = [sizes.sum(axis=0, keepdims=True), sizes]
    return np.concatenate([statistic.of(of).T.ravel() for of in levels]).astype(np.float64)


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Audit:
    """Return an audit; where it says so, its mechanism is planned, charged and drawn as if one person moved one running sum by 1."""
    audit: Audit = request.param
    monkeypatch.setenv("TRELLIS_HOME", "nowhere")
    if not audit.claims:
        recipe = MECHANISMS[audit.mechanism]
        assert isinstance(recipe.finish, Sizes)
        wrong = replace(CHAIN, sensitivity=TAILS.sensitivity)
        finish = Sizes(replace(recipe.finish.of, statistic=wrong))
        monkeypatch.setitem(MECHANISMS, audit.mechanism, replace(recipe, finish=finish))
        monkeypatch.setattr(tasks.noise.task, "STATISTICS", {**tasks.noise.task.STATISTICS, CHAIN.name: wrong})
    return audit


AUDITS = [
    Audit("group_sizes"),
    Audit("sizes_chain", claims=False),
    pytest.param(Audit("sizes_direct"), marks=pytest.mark.audit),
    pytest.param(Audit("sizes_chain"), marks=pytest.mark.audit),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("drawing", AUDITS, ids=str, indirect=True)
def test_a_person_who_lives_alone_is_protected_by_true_sensitivities_alone(tmp_path: Path, drawing: Audit) -> None:
    """The lower bound on ε stays below the claim, and exceeds it where the chain is drawn as the paper says."""
    plan, one = noisy_counts(tmp_path / "one", drawing, 1)
    _, other = noisy_counts(tmp_path / "other", drawing, 0)
    finish = plan.mechanism.finish
    assert isinstance(finish, Sizes)
    statistic = finish.of.statistic
    scales = np.repeat([noise.scale for noise in plan.guarantee.noises], [LARGEST, LARGEST * COUNTIES])
    true = [true_counts(statistic, alone) for alone in (1, 0)]
    leans = [leaning(values, *true, scales, "laplace") for values in (one, other)]
    shown = lower_bound(guesses_of(*leans, certain=1e-9), CLAIM.delta, FALSE_ALARM)
    assert (shown <= CLAIM.epsilon) == drawing.claims, shown
    if not drawing.claims:
        assert shown > 1.25
