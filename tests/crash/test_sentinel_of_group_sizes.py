"""True tails stay in the vault: they are searched for in every record and file that a release of group sizes leaves."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import tasks.ingest.task
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.counts.vault import vault_path
from storage.database.connections import store
from tasks.laws.law import Sampler, Sampling
from tests.support import runs
from tests.support.exposure import Made, Watch, hidden, return_the_truth
from tests.support.households import LISTED, PRIVACY, SPEC, draw_homes, write_tables
from tests.support.laws import drawn_by

# So little ε (the scale is 1e7) that no noisy and no released count is a true one.
pytestmark = pytest.mark.thorough
KEYS = {"privacy": PRIVACY | {"epsilon": 3.0e-7, "split": "uniform"}, "output": "out"}
PLANT = "UPDATE records SET true_count = true_count * 7654321 + 918273645"


@pytest.fixture
def make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[str, Sampler], Made]:
    """Return the maker of a release of homes whose tails are nine-digit numbers in the vault."""
    ingest = tasks.ingest.task.ingest_groups

    def planting(con, *arguments):
        listed = ingest(con, *arguments)
        con.execute(PLANT)
        return listed

    monkeypatch.setattr(tasks.ingest.task, "ingest_groups", planting)

    def make(mechanism: str, sampler: Sampler) -> Made:
        write_tables(tmp_path, draw_homes(60))
        keys = SPEC | KEYS | {"mechanism": mechanism} | (LISTED if MECHANISMS[mechanism].takes_list else {})
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(keys))
        watch = Watch(tmp_path, least=10**6)
        monkeypatch.setitem(MECHANISMS, mechanism, drawn_by(mechanism, {"opendp": Sampling(watch.on(sampler))}))
        plan = make_plan(load_spec(tmp_path / "spec.yaml"))
        release = new_release(plan)
        with store():
            runs.make(plan, release)
        return Made(release.id, tmp_path, watch.secrets, None, "".join(capfd.readouterr()), watch.meanwhile)

    return make


@pytest.mark.parametrize("mechanism", ["group_sizes", "sizes_chain"])
def test_nothing_but_the_vault_holds_a_true_tail(make: Callable[[str, Sampler], Made], mechanism: str) -> None:
    """A release with so much noise that nothing is right leaves no true measurement in any file or record."""
    made = make(mechanism, hidden)
    assert len(made.secrets) > 10
    made.assert_hidden()
    assert not vault_path(made.release_id).exists()


def test_the_search_finds_a_tail_that_is_there(make: Callable[[str, Sampler], Made]) -> None:
    """Without noise the same search finds true tails in the shards and in the published measurements."""
    found = make("group_sizes", return_the_truth).exposed()
    assert {f"level_{level}_trunk.noisy.parquet" for level in (1, 2, 3)} <= {Path(file).name for file in found}
    assert any("noisy_counts" in file for file in found)
