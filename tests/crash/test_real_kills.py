"""Whatever process is killed of a Trellis with its real Prefect, the release can be gone on with and Prefect is told what became of it."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.counts.published import partial_folder
from tests.support.processes import command_of, descendants_of, is_there, kill, processes_of
from tests.support.server import Prefect, ask, copy_database, started
from tests.support.spec import SPEC
from tests.support.up import below, bring_up, end, states, until, write_large
from tests.support.user import REPOSITORY, User

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc"),
]

PREFECT = Path(sys.executable).with_name("prefect")
CHARGED = range(1, 7)  # the levels that noise is drawn for; the total is public
GONE_AFTER = 60.0  # seconds, for what has lost its parent or its server: Prefect's clients ask several times
ENDED = {"CRASHED", "CANCELLED", "FAILED", "COMPLETED"}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return the tables of a country whose release takes some seconds, in branches."""
    folder = tmp_path_factory.mktemp("large")
    write_large(folder)
    return folder


@pytest.fixture
def user(tmp_path, large, prefect):
    """Return a user without a server, all of whose processes are ended with the test."""
    home = tmp_path / "home" / "prefect"
    home.parent.mkdir(mode=0o700)
    copy_database(prefect, home)
    (tmp_path / "data").symlink_to(large)
    (tmp_path / "specs").mkdir()
    user = User(tmp_path, Prefect(home, {}))
    user.spec(privacy={"epsilon": 9.0})
    (tmp_path / "specs" / "slow.yaml").write_text(below(SPEC, name="slow", privacy=SPEC["privacy"] | {"epsilon": 9.0}))
    yield user
    for process in processes_of(user.folder / "home"):
        kill(process)


def server_of(process):
    """Return the Prefect server that a process has started."""
    (server,) = [child for child in descendants_of(process) if "flows/server/process.py" in command_of(child)]
    return server


def show(user, release_id):
    """Return what is shown of a release."""
    return user.run("show", release_id, "--json").json()


def seals_of(user, release_id):
    """Return what is sealed of a release."""
    return {(seal["level"], seal["branch"], seal["sha256"]) for seal in show(user, release_id)["seals"]}


def is_being_published(user, release_id):
    """Return whether the folder that is published is being written, or is there."""
    folder = user.folder / "out" / release_id
    return partial_folder(folder).exists() or folder.exists()


MOMENTS = {
    "reserved": lambda _, release_id: bool(release_id),
    "a seal": lambda user, release_id: bool(seals_of(user, release_id)),
    "a branch": lambda user, release_id: any(branch != "trunk" for _, branch, _ in seals_of(user, release_id)),
    "published": is_being_published,
}


def wait_for(user, moment="a seal", ended=lambda: False):
    """Wait until the user's only release is at a moment, and return its id."""
    release_id = str(until(lambda: next(iter(states(user)), None)))
    until(lambda: MOMENTS[moment](user, release_id) or ended(), 240.0)
    assert not ended(), "it ended before the moment"
    return release_id


def runs_of(user, release_id):
    """Return name and state of the flow runs of a release, the first one first, from Prefect's database."""
    query = "SELECT name, state_type FROM flow_run WHERE name LIKE ? ORDER BY created"
    return user.prefect.rows(query, f"{release_id}%")


@contextmanager
def all_gone(children):
    """Check that processes end some seconds after what is done inside."""
    yield
    deadline = time.monotonic() + GONE_AFTER
    while left := [command_of(child) for child in children if is_there(child)]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.2)


def assert_it_goes_on(user, release_id, state=None):
    """Check that the release is in a state, is gone on with by a command, and is then as one that was never killed."""
    # Prefect takes every run of it for ended, and the killed one not for well, unless it was published before and nothing had to be run.

    def spent():
        return user.run("ledger", "--json").json()["datasets"][0]["spent"]

    assert states(user)[release_id] in (state or {"failed"})
    sealed, spent_before = seals_of(user, release_id), spent()
    said = user.run("rerun", release_id, "--server", "--json")
    assert (said.code, said.json().get("state")) == (0, "published"), said.stderr + said.stdout
    assert sealed <= seals_of(user, release_id)
    assert spent() == spent_before
    (account,) = user.run("ledger", "--json").json()["datasets"]
    charged = [(charge["release"], charge["level"], charge["state"]) for charge in account["charges"]]
    assert charged == [(release_id, level, "released") for level in CHARGED]
    assert user.run("audit", "--json").json()["findings"] == []
    assert user.run("verify", show(user, release_id)["folder"], "--json").json()["ok"]
    assert list((user.folder / "home" / "vault").iterdir()) == []
    runs = runs_of(user, release_id)
    if not state or len(runs) > 1:
        assert {of for _, of in runs} <= ENDED, runs
        assert runs[0][1] in ENDED - {"COMPLETED"}, runs


# commands -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_command_is_killed(user, moment):
    """A killed `trellis release` leaves no server behind, and its release, which is failed, can be gone on with."""
    process = user.start("release", "spec.yaml", "--server")
    release_id = wait_for(user, moment, lambda: process.poll() is not None)
    children = descendants_of(process.pid)
    assert server_of(process.pid) in children
    with all_gone(children):
        process.kill()
        process.communicate()
    assert processes_of(user.folder / "home") == []
    state = {"failed", "published"} if moment == "published" else {"failed"}
    assert_it_goes_on(user, release_id, state)


def test_the_server_of_a_command_is_killed(user):
    """A release whose Prefect server is killed ends with an error that says so, unless it was done before it missed it."""
    # Either way its run is not Running for ever.
    process = user.start("release", "spec.yaml", "--server")
    release_id = wait_for(user, ended=lambda: process.poll() is not None)
    with all_gone(descendants_of(process.pid)):
        kill(server_of(process.pid))
        _, said = process.communicate(timeout=GONE_AFTER * 2)
    if process.returncode == 0:
        assert "Prefect recorded" in said
        assert states(user)[release_id] == "published"
        end(bring_up(user))  # which looks at what Prefect has missed
        assert {state for _, state in runs_of(user, release_id)} == {"COMPLETED"}
        return
    assert process.returncode == 1, said
    assert "Prefect server no longer answers" in said
    assert f"trellis rerun {release_id}" in said
    assert_it_goes_on(user, release_id)


# `trellis up` ---------------------------------------------------------------------------------------------------------


@contextmanager
def running_up(user):
    """Bring Trellis up, and have it run a release."""
    up = bring_up(user)
    try:
        up.trigger("release/release", spec="slow.yaml")
        yield up
    finally:
        up.process.kill()
        up.process.communicate()


def run_of(parent, up_server=None):
    """Return the process of the flow run that a process has started: of its descendants the one that has the engine."""
    engines = [child for child in descendants_of(parent) if child != up_server and "prefect" in command_of(child)]
    assert engines, [command_of(child) for child in descendants_of(parent)]
    return engines[-1]


@pytest.mark.parametrize("moment", ["a seal", "a branch"])
def test_a_run_that_is_served_is_killed(user, moment):
    """`trellis up` goes on when a run's process is killed, calls the run Crashed, and the release can be gone on with."""
    with running_up(user) as up:
        release_id = wait_for(user, moment)
        run = run_of(up.process.pid, server_of(up.process.pid))
        with all_gone([run, *descendants_of(run.id)]):
            kill(run)
        assert up.process.poll() is None
        assert_it_goes_on(user, release_id)
        assert up.call("/health") is True


@pytest.mark.parametrize("who", ["up", "its server"])
def test_up_or_its_server_is_killed(user, who):
    """All ends that `trellis up` has started; without its server it ends with an error, for who keeps it up, and with no address."""
    with running_up(user) as up:
        release_id = wait_for(user)
        assert len(descendants_of(up.process.pid)) > 1
        with all_gone(processes_of(user.folder / "home")):
            if who == "up":
                up.process.kill()
            else:
                kill(server_of(up.process.pid))
            up.process.communicate(timeout=GONE_AFTER * 2)
        assert who == "up" or up.process.returncode not in {0, -signal.SIGKILL}
    assert processes_of(user.folder / "home") == []
    assert who == "up" or not (user.folder / "home" / "address").exists()
    assert_it_goes_on(user, release_id)


# workers --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(user, tmp_path):
    """Deploy to a server, and have a worker run a release."""
    with started(user.prefect.home) as server, (tmp_path / "worker.log").open("wb") as log:
        deployed = User(user.folder, server)
        environment = deployed.environment | {
            "TRELLIS_SPECS": str(user.folder / "specs"),
            "PREFECT_WORKER_QUERY_SECONDS": "0.5",
            "TMPDIR": str(tmp_path),
        }
        for arguments in (
            ["work-pool", "create", "--type", "process", "trellis"],
            ["--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml"],
        ):
            subprocess.run([PREFECT, *arguments], cwd=REPOSITORY, env=environment, check=True, stdout=log, timeout=120)
        process = subprocess.Popen(
            [PREFECT, "worker", "start", "--pool", "trellis", "--type", "process"], cwd=user.folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        api = server.environment["PREFECT_API_URL"]
        auth = server.environment["PREFECT_API_AUTH_STRING"]
        found = ask(f"{api}/deployments/name/release/release", auth=auth)
        ask(f"{api}/deployments/{found['id']}/create_flow_run", {"parameters": {"spec": "slow.yaml"}}, auth)
        try:
            yield process, deployed
        finally:
            process.kill()
            process.wait()


def test_the_run_of_a_worker_is_killed(worker):
    """A worker goes on when its run's process is killed, calls it Crashed, and the release can be gone on with."""
    process, user = worker
    release_id, run = wait_for(user), run_of(process.pid)
    with all_gone([run, *descendants_of(run.id)]):
        kill(run)
    assert process.poll() is None
    assert_it_goes_on(user, release_id)


def test_a_worker_is_killed(worker):
    """What a killed worker has started ends too, or goes on to a good end: nothing is run that nobody knows of."""
    process, user = worker
    release_id, children = wait_for(user), descendants_of(process.pid)
    assert children
    with all_gone(children):
        process.kill()
        process.wait()
    assert_it_goes_on(user, release_id, {"failed", "published"})
    assert {state for _, state in runs_of(user, release_id)} <= ENDED
