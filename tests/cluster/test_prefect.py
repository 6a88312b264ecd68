"""A release on a cluster through the command line: on Prefect, whose task runs wait at home, and without."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from storage.mailbox.cluster_file import CLUSTER
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.cluster import Machines, cluster
from tests.support.user import User

pytestmark = pytest.mark.cluster


@pytest.fixture
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Run a cluster of three workers, as users start them: more than this machine has cores, mostly."""
    with cluster(tmp_path_factory.mktemp("three") / "cluster", workers=3) as machines:
        yield machines


def test_a_user_releases_on_a_cluster(newcomer: User, machines: Machines) -> None:
    """Check, dry run and release run with a cluster; on Prefect and without it, workers draw branches, and the folder verifies."""
    generator = np.random.default_rng(3)
    country = draw_country(regions=4, provinces=20, municipalities=150, people=200_000, generator=generator)
    write_country(country, newcomer.folder / "data")
    newcomer.spec(run={"workers": "dask"}, budget={"epsilon": 100.0, "delta": 1e-6})
    named = {CLUSTER: str(machines.file)}
    for arguments in (["check", "spec.yaml"], ["release", "--dry-run", "spec.yaml"]):
        said = newcomer.run_cold(*arguments, **named)
        assert said.code == 0, said.stderr
    for server in ("--server", "--no-server"):
        said = newcomer.run_cold("release", "spec.yaml", server, "--json", **named)
        assert said.code == 0, said.stderr
        answer = said.json()
        assert answer["state"] == "published"
        shown = newcomer.run("show", answer["id"], "--json").json()
        assert len(shown["branches"]) > 1
        assert newcomer.run("verify", answer["folder"]).code == 0
    assert newcomer.run("audit").code == 0
    assert not [path for path in Path(machines.mailbox).rglob("*") if path.is_file()]
