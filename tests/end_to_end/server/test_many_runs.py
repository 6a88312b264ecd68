"""Twenty runs at once, as where schedules fall together: each ends, and one that crashes before it begins is tried again."""

import os
from datetime import timedelta
from itertools import pairwise

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Cancelled, Crashed, Failed, Pending, Running

import flows.server.runs
from flows.server.process import prefect_server
from flows.server.runs import TRIES_AGAIN, seen_alive, try_again
from storage.database.connections import store
from storage.machine.locks import held
from storage.releases.register import open_run
from tests.support.many_runs import assert_published_or_refused, assert_tried_again, dying, many
from tests.support.server import Prefect, copy_database
from tests.support.up import bring_up, end
from tests.support.user import User

pytestmark = [pytest.mark.timeout(1200), pytest.mark.heavy("servers run meanwhile")]

# through `trellis up` -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def up(tmp_path_factory, prefect):
    """Bring Trellis up over the specs."""
    folder = tmp_path_factory.mktemp("up")
    (folder / "home").mkdir(mode=0o700)
    copy_database(prefect, folder / "home" / "prefect")
    user = many(User(folder, Prefect(folder / "home" / "prefect", {})))
    is_up = bring_up(user, **dying(user))
    try:
        yield is_up
        end(is_up)
    finally:
        is_up.process.kill()


@pytest.mark.crash
def test_runs_that_up_takes_at_once_all_end(up):
    """Runs that are triggered at once are all taken, by a server that sends nobody away, and published or refused."""
    assert_published_or_refused(up)


@pytest.mark.crash
def test_a_run_that_crashed_before_it_began_is_tried_again(up):
    """A run whose process ends before it begins is tried again by `trellis up`, which says so in its states."""
    (up.user.folder / "deaths" / "one").touch()
    assert_tried_again(up, up.trigger("release/release", spec="many-0.yaml", measure_again=True))


@flow(name="release")
def released():
    """Have the name of the flow whose runs are tried again."""


@flow(name="another")
def of_somebody_else():
    """Have the name of a flow that is not ours."""


@pytest.fixture(scope="module")
def client(tmp_path_factory, prefect):
    """Yield a client of a server of this process, whose store has no release."""
    folder = tmp_path_factory.mktemp("tried")
    copy_database(prefect, folder / "prefect")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            patch.delenv(name)
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        with prefect_server(folder / "prefect"), get_client(sync_client=True) as made:
            yield made


@pytest.fixture
def run_in(client):
    """Return what makes a run of a deployment go through states."""

    def run_in(*passed, of=released):
        deployment = client.create_deployment(client.create_flow(of), "tried")
        run = client.create_flow_run_from_deployment(deployment).id
        for state in passed:
            client.set_flow_run_state(run, state, force=True)
        return run

    return run_in


def test_a_run_is_tried_again_so_often_and_no_more(client, run_in):
    """A run that crashes each time before it begins is tried again three times, later than now, and then stays crashed."""
    # Runs that crashed together are scheduled one after the other.
    run, *others = (run_in(Pending(), Crashed()) for _ in range(3))
    for number in range(TRIES_AGAIN):
        try_again()
        again = client.read_flow_run(run).state
        told = f"It crashed before it began. Try {number + 1} of {TRIES_AGAIN} follows."
        assert (again.name, again.message) == ("AwaitingRetry", told)
        assert again.state_details.scheduled_time > again.timestamp
        if number == 0:
            found = [again, *(client.read_flow_run(other).state for other in others)]
            times = sorted(state.state_details.scheduled_time for state in found if state)
            assert len(times) == 3
            assert min(later - earlier for earlier, later in pairwise(times)) >= timedelta(seconds=4)
        try_again()
        assert client.read_flow_run(run).state == again
        for state in (Pending(), Crashed()):
            client.set_flow_run_state(run, state, force=True)
    try_again()
    last = client.read_flow_run(run).state
    assert last.name == "Crashed"


@pytest.mark.thorough
def test_what_did_not_crash_before_it_began_is_left_alone(client, run_in, monkeypatch):
    """A run that had begun, ended, was cancelled, is alive, is not ours, cannot be started again or crashed long ago keeps its state, whoever looks."""
    crashed, begun, alive = (run_in(Pending(), Crashed()) for _ in range(3))
    of_command = client.create_flow_run(released, state=Pending()).id
    client.set_flow_run_state(of_command, Crashed(), force=True)
    left = {
        **dict.fromkeys((begun, alive, of_command), "Crashed"),
        run_in(Pending(), Running(), Crashed()): "Crashed",
        run_in(Pending(), Failed()): "Failed",
        run_in(Pending(), Crashed(), Cancelled()): "Cancelled",
        run_in(Pending()): "Pending",
        run_in(Pending(), Crashed(), of=of_somebody_else): "Crashed",
    }

    def states(*runs):
        found = {run: client.read_flow_run(run).state for run in runs}
        return {run: str(state and state.name) for run, state in found.items()}

    with held("tries"):  # one process at a time looks
        try_again()
    with monkeypatch.context() as patch:  # after an hour, somebody may have made the release otherwise
        patch.setattr(flows.server.runs, "_TRIED_WITHIN", timedelta(0))
        try_again()
    assert states(crashed, *left) == {crashed: "Crashed", **left}
    with store() as con:
        open_run(con, str(begun), "tried-1")
    with seen_alive(str(alive)):
        try_again()
    assert states(crashed, *left) == {crashed: "AwaitingRetry", **left}
