"""A release on a cluster is the release of threads and of processes: real workers under mutual TLS, a folder and a bucket as mailbox."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from flows.cluster.cluster import Cluster
from flows.cluster.errand import Errand
from storage.database.connections import store
from storage.mailbox.cluster_file import CLUSTER, read_cluster_file
from storage.releases.seals import list_branches
from tasks.verify.folder import verify
from tests.support.buckets import BUCKET, CREDENTIALS, REGION, Server, moto, seaweedfs
from tests.support.cases import CASES
from tests.support.cluster import Machines, cluster
from tests.support.making import CUT, Made, make, noise_of_the_cell, quick

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a cluster runs meanwhile")]
MECHANISM, CASE = "inftda_reconciled", next(iter(CASES))


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Run a cluster with a folder as mailbox, whose noise is that of the cell."""
    with cluster(tmp_path_factory.mktemp("folder") / "cluster", TEST_NOISE=MECHANISM) as machines:
        yield machines


def made(folder: Path, workers: str, machines: Machines | None = None) -> Made:
    """Make a release of a case with several branches."""
    with pytest.MonkeyPatch.context() as patch:
        if machines:
            patch.setenv(CLUSTER, str(machines.file))
        with noise_of_the_cell() as sampler:
            return make(folder, quick(CASES[CASE]), sampler, sizes=CUT, mechanism=MECHANISM, run={"workers": workers})


def test_a_cluster_publishes_what_threads_publish(tmp_path: Path, in_folder: Machines) -> None:
    """With a folder as mailbox, every published table has the same bytes; the mailbox is empty afterwards."""
    by_threads = made(tmp_path / "threads", "threads")
    by_cluster = made(tmp_path / "dask", "dask", in_folder)
    assert by_cluster.tables() == by_threads.tables()
    assert verify(by_cluster.folder) == []
    assert not [path for path in in_folder.mailbox.rglob("*") if path.is_file()]


@pytest.mark.cluster
@pytest.mark.parametrize("server", [seaweedfs, moto])
def test_a_bucket_is_a_mailbox_too(
    tmp_path: Path,
    server: Callable[[Path], AbstractContextManager[Server]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a bucket of either server, the bytes are those of threads, and of processes; the bucket is empty afterwards."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with server(tmp_path / "server") as of:
        keys = {"mailbox": f"s3://{BUCKET}/prod", "s3": {"endpoint": of.endpoint, "region": REGION}}
        with cluster(tmp_path / "cluster", keys=keys, TEST_NOISE=MECHANISM, **CREDENTIALS) as machines:
            by_cluster = made(tmp_path / "dask", "dask", machines)
            assert read_cluster_file(machines.file).place().list() == []
    assert by_cluster.tables() == made(tmp_path / "threads", "threads").tables()
    assert by_cluster.tables() == made(tmp_path / "processes", "processes").tables()


def test_orders_of_branches_alone_go_elsewhere(
    tmp_path: Path, in_folder: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers get orders to measure, optimise, estimate and settle, of every branch and never of the trunk; all of them draw."""
    asked = list[tuple[str, str]]()
    ask = Cluster._ask

    def noted(self: Cluster, address: str, gone: Any, text: str, going_on: Any) -> str:
        order = Errand.from_json(text).order
        asked.append((order.stage, order.branch))
        return ask(self, address, gone, text, going_on)

    monkeypatch.setattr(Cluster, "_ask", noted)
    release = made(tmp_path / "dask", "dask", in_folder).release
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "dask" / "home"))
    with store() as con:
        branches = list_branches(con, release.id)
    assert len(branches) > 1
    stages = {"measure_branch", "optimise_branch", "estimate_branch", "settle_branch"}
    assert {stage for stage, _ in asked} == stages
    assert {branch for _, branch in asked} == set(branches)
