"""A release on a cluster is the release of threads and of processes: real workers under mutual TLS, a folder and a bucket as mailbox."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.mailbox.cluster_file import CLUSTER
from tasks.verify.folder import verify
from tests.support.cases import CASES
from tests.support.cluster import Machines, cluster
from tests.support.making import CUT, Made, make, noise_of_the_cell, quick

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
