"""A release on a cluster is that of threads and of processes: real workers under mutual TLS, a folder and a bucket as mailbox, nothing confidential in clear."""

from contextlib import suppress

import numpy as np
import pytest

from storage.mailbox.ciphertext import BLOCK
from storage.mailbox.cluster_file import CLUSTER, read_cluster_file
from storage.mailbox.keys import release_key
from tasks.folder.verify.folder import verify
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.buckets import BUCKET, CREDENTIALS, REGION, moto, seaweedfs
from tests.support.cases import CASES
from tests.support.cluster import cluster, start_home
from tests.support.draws import write_small
from tests.support.making import CUT, make, noise_of_the_cell, quick

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a cluster runs meanwhile")]
PLANTED = 918_273  # people on one pair of municipalities
MECHANISM, CASE = "inftda_reconciled", next(iter(CASES))


def made(folder, workers, machines=None):
    """Make a release of a case with several branches."""
    with pytest.MonkeyPatch.context() as patch:
        if machines:
            patch.setenv(CLUSTER, str(machines.file))
        with noise_of_the_cell() as sampler:
            return make(folder, quick(CASES[CASE]), sampler, sizes=CUT, mechanism=MECHANISM, run={"workers": workers})


def test_a_cluster_publishes_what_threads_publish(tmp_path):
    """With a folder as mailbox, every published table has the same bytes; the mailbox is empty afterwards."""
    by_threads = made(tmp_path / "threads", "threads")
    with cluster(tmp_path / "cluster", TEST_NOISE=MECHANISM) as machines:
        by_cluster = made(tmp_path / "dask", "dask", machines)
        assert not [path for path in machines.mailbox.rglob("*") if path.is_file()]
    assert by_cluster.tables() == by_threads.tables()
    assert verify(by_cluster.folder) == []


@pytest.mark.cluster
@pytest.mark.parametrize("server", [seaweedfs, moto])
def test_a_bucket_is_a_mailbox_too(tmp_path, server, monkeypatch):
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


@pytest.mark.cluster
def test_a_user_releases_on_a_cluster(newcomer, tmp_path_factory):
    """Check, dry run and release run with a cluster; on Prefect and without it, workers draw branches, and the folder verifies."""
    generator = np.random.default_rng(3)
    country = draw_country(regions=4, provinces=20, municipalities=150, people=200_000, generator=generator)
    write_country(country, newcomer.folder / "data")
    newcomer.spec(run={"workers": "dask"}, budget={"epsilon": 100.0, "delta": 1e-6})
    # mostly more than there are cores
    with cluster(tmp_path_factory.mktemp("three") / "cluster", workers=3) as machines:
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
        assert not [path for path in machines.mailbox.rglob("*") if path.is_file()]


def places_of(machines, wire):
    """Return everything that is on disks outside of home: the mailbox, logs, folders of workers, and what went over the wire."""
    folders = [machines.mailbox, machines.folder / "tmp"]
    while True:
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        with suppress(FileNotFoundError):  # the other worker goes on, and renames what it has written
            return {str(path): path.read_bytes() for path in [*files, *machines.folder.glob("*.log"), wire]}


def test_nothing_confidential_is_in_clear_outside_of_home(tmp_path, own_home):
    """While a worker holds slices and has drawn, neither the planted count nor a key is found; and sizes tell powers of two alone."""
    spec = write_small(tmp_path / "small")
    table = spec.with_name("trips.csv")
    first, second, *others = table.read_text().splitlines()
    table.write_text("\n".join([first, f"{second.rpartition(',')[0]},{PLANTED}", *others]) + "\n")
    named = {"TEST_AT": "after send", "TEST_ONCE": str(tmp_path / "done"), "TEST_SIGNAL": "SIGSTOP"}
    with cluster(tmp_path / "cluster", keys={"lost_after": "60s"}, TEST_NOISE="inftda", **named) as machines:
        wire = tmp_path / "wire"
        home = start_home(machines, tmp_path, TEST_WIRE=str(wire))
        machines.wait_until_stopped()
        seen = places_of(machines, wire)
        key = read_cluster_file(machines.file).mailbox_key()
        keys = [release_key("small", key), key]
        home.kill()
        home.wait()
    assert any("/slices/" in path for path in seen)
    assert any(".noisy." in path for path in seen)
    assert b"measure" in seen[str(wire)]
    codes = second.split(",")[0].encode()
    assert any(codes in content for content in seen.values())  # codebooks are public: what is looked for can be found
    for number in range(PLANTED - 6, PLANTED + 7):  # the noise of this test is at most 6
        for planted in (str(number).encode(), number.to_bytes(8, "little"), number.to_bytes(8, "big")):
            assert not [path for path, content in seen.items() if planted in content]
    for key in keys:
        for planted in (key, key.hex().encode()):
            assert not [path for path, content in seen.items() if planted in content]
    sizes = [len(content) for path, content in seen.items() if "/slices/" in path or "/shards/" in path]
    assert all(size % BLOCK == 0 and (size // BLOCK).bit_count() == 1 for size in sizes)
