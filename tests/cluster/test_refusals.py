"""What home refuses of a cluster, before anything is reserved."""

import os

import pytest
import yaml

from flows.answers.check import check_answer
from flows.cli.main import main
from flows.cluster.cluster import check_cluster
from flows.cluster.pool import difference, facts
from storage.database.connections import store
from storage.errors import SpecError, StoreError
from storage.ledger.events import read_books
from storage.mailbox.cluster_file import CLUSTER
from tests.support.cluster import Authority, cluster, prepare, program, write_keys
from tests.support.draws import write_small

pytestmark = pytest.mark.heavy("a cluster runs meanwhile")


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Run a cluster of one worker, as users start it."""
    with cluster(tmp_path_factory.mktemp("one") / "cluster", workers=1) as machines:
        yield machines


@pytest.fixture
def spec(tmp_path, own_home):
    """Write the spec of a small country that is to be released on a cluster."""
    spec = write_small(tmp_path / "small")
    spec.write_text(f"{spec.read_text()}run: {{workers: dask, prefect: off}}\n")
    return spec


def file_of(machines, path, **changes):
    """Write the cluster file of a home that has some other keys, with absolute paths."""
    keys = yaml.safe_load(machines.file.read_text())
    for name in ("ca", "certificate", "private_key", "key"):
        keys[name] = str(machines.folder / keys[name])
    return write_keys(path, keys | changes)


def refused(file, match):
    """Check that home refuses a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CLUSTER, str(file))
        with pytest.raises((SpecError, StoreError), match=match):
            check_cluster()


@pytest.mark.thorough
def test_nothing_is_reserved_where_the_cluster_is_refused(machines, spec, tmp_path, monkeypatch, capsys):
    """Check, dry run and release all say what is wrong; the ledger has no charge, and no release is there."""
    (tmp_path / "other.key").write_bytes(os.urandom(32))
    (tmp_path / "other.key").chmod(0o400)
    monkeypatch.setenv(CLUSTER, str(file_of(machines, tmp_path / "cluster.yaml", key=str(tmp_path / "other.key"))))
    answer = check_answer(spec)
    assert not answer.ok
    assert ["another key" in problem.error for problem in answer.problems] == [True]
    for command in (["release", "--dry-run", str(spec)], ["release", "--no-server", str(spec)]):
        assert main(command) == 2
        assert "another key of the mailbox than home" in capsys.readouterr().err
    with store() as con:
        assert not read_books(con).accounts
        assert con.execute("SELECT count(*) FROM releases").fetchall() == [(0,)]


def test_what_no_cluster_could_do_is_refused_in_words(spec, monkeypatch):
    """Where no cluster is named, by what to set; where a mechanism has no branches, before anybody looks for a cluster."""
    monkeypatch.delenv(CLUSTER, raising=False)
    assert [problem.field for problem in check_answer(spec).problems] == [CLUSTER]
    text = spec.read_text()
    for mechanism in ("gaussian", "stability_histogram"):
        spec.write_text(text.replace("mechanism: inftda", f"mechanism: {mechanism}"))
        assert any("nothing to share out" in problem.error for problem in check_answer(spec).problems)


@pytest.mark.thorough
def test_a_certificate_of_another_authority_is_refused(machines, tmp_path):
    """Home with a certificate that the scheduler's authority has not signed does not get in."""
    Authority().write(tmp_path)
    own = {name: str(tmp_path / file) for name, file in (("certificate", "home.pem"), ("private_key", "home.key"))}
    refused(file_of(machines, tmp_path / "foreign.yaml", **own), "does not know this certificate")
    own["ca"] = str(tmp_path / "ca.pem")
    refused(file_of(machines, tmp_path / "foreign.yaml", **own), "does not know this certificate")


@pytest.mark.thorough
def test_machines_that_see_different_mailboxes_are_refused(machines, tmp_path):
    """Home whose folder is another than the workers' is refused: both succeed in putting the file of the probe."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    refused(file_of(machines, tmp_path / "cluster.yaml", mailbox=f"file://{tmp_path / 'elsewhere'}"), "overwrites")


SCHEDULERS = {
    "not encrypted": ((), {"COMM__REQUIRE_ENCRYPTION": "false"}),
    "would send an order again": ((), {"SCHEDULER__ALLOWED_FAILURES": "3"}),
    "another worker than home": ((), {"SCHEDULER__WORK_STEALING": "true"}),
    "dashboard": (("--dashboard",), {"SCHEDULER__HTTP__ROUTES": '["distributed.http.health"]'}),
    "has no worker": ((), {}),
}


@pytest.mark.cluster
@pytest.mark.parametrize("match", [*SCHEDULERS, "was not started by `trellis worker`"])
def test_a_scheduler_is_refused(tmp_path, match):
    """A scheduler that takes plain connections, repeats or moves orders, shows a page, has no worker, or one of `dask worker` without a setup."""
    options, settings = SCHEDULERS.get(match, ((), {}))
    machines = prepare(tmp_path / "cluster")
    files = [f"--tls-ca-file={machines.folder / 'ca.pem'}", f"--tls-cert={machines.folder / 'home.pem'}"]
    command = [program("dask"), "worker", f"tls://127.0.0.1:{machines.port}", *files, "--no-nanny", "--nthreads=1"]
    try:
        machines.start_scheduler(*options, **{f"DASK_DISTRIBUTED__{name}": of for name, of in settings.items()})
        if match not in SCHEDULERS:
            machines.start("worker-0", [*command, f"--tls-key={machines.folder / 'home.key'}"])
            machines.wait_for_workers(1)
        refused(machines.file, match)
    finally:
        machines.end()


def test_machines_that_would_draw_otherwise_differ():
    """Another Trellis, Python, package or code is named, in that order; the same machine does not differ."""
    here = facts()
    assert difference(here, dict(here)) == ""
    assert "Trellis 9" in difference(here, {**here, "trellis": "9"})
    assert "Python 2.7" in difference(here, {**here, "python": "2.7"})
    package = next(iter(here["packages"]))
    assert f"{package} 0" in difference(here, {**here, "packages": {**here["packages"], package: "0"}})
    assert "other code" in difference(here, {**here, "code": "00"})
    assert difference(here, {"trellis": "none"})
