"""Many runs at once, as where schedules fall together: each ends, and one that crashes before it begins is tried again.

Twenty runs, beside a process that keeps a core busy, take minutes: `make crash` has them, and `make test` has six.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from prefect import Flow, flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.states import Cancelled, Crashed, Failed, Pending, Running, State

import flows.server.runs
from flows.server.process import NO_TELEMETRY, PATIENT, answers, prefect_server
from flows.server.runs import TRIES_AGAIN, seen_alive, try_again
from storage.database.connections import store
from storage.machine.locks import held
from storage.releases.runs import open_run
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.server import Prefect, copy_database
from tests.support.spec import SPEC
from tests.support.up import Up, below, bring_up, end, free_port, states, until
from tests.support.user import REPOSITORY, User

BIN = Path(sys.executable).parent
FINAL = {"COMPLETED", "FAILED", "CANCELLED"}  # a run that crashes before it begins has not ended
DATASETS = 5
MOST = 20
AT_MOST = 900.0  # seconds: of twenty runs on two cores that do much else
HOW_MANY = [6, pytest.param(MOST, marks=pytest.mark.crash)]

pytestmark = pytest.mark.timeout(1200)  # with the start of a server and a worker

# Ends a run's process as it starts, as often as there are files in a folder.
DYING = """
import os, pathlib
for death in pathlib.Path(os.environ["DEATHS"]).iterdir() if "PREFECT__FLOW_RUN_ID" in os.environ else ():
    death.unlink()
    os._exit(1)
"""


@contextmanager
def busy() -> Iterator[None]:
    """Keep a core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def many(user: User) -> User:
    """Give a user specs of some datasets: every other release is too dear, and refused."""
    for number in range(DATASETS):
        generator = np.random.default_rng(number)
        country = draw_country(regions=2, provinces=3, municipalities=6, people=200, generator=generator)
        write_country(country, user.folder / f"data{number}")
    for folder in ("specs", "dying", "deaths"):
        (user.folder / folder).mkdir()
    (user.folder / "dying" / "sitecustomize.py").write_text(DYING)
    for number in range(MOST):
        of_dataset = number % DATASETS
        data = {
            "input": SPEC["input"] | {"table": f"data{of_dataset}/trips.csv"},
            "hierarchy": SPEC["hierarchy"] | {"table": f"data{of_dataset}/codebook.csv"},
            "privacy": SPEC["privacy"] | {"epsilon": 30.0 if number % 2 else 0.5},
        }
        keys = {"name": f"many-{number}", "dataset": f"dataset-{of_dataset}"}
        (user.folder / "specs" / f"many-{number}.yaml").write_text(below(SPEC, **data, **keys))
    return user


def dying(user: User) -> dict[str, str]:
    """Return the variables that have a run's process end as it starts, once for each file in `deaths`."""
    return {"PYTHONPATH": str(user.folder / "dying"), "DEATHS": str(user.folder / "deaths")}


def triggered_at_once(up: Up, count: int) -> list[str]:
    """Trigger runs from as many threads as there are runs; return the runs."""
    with ThreadPoolExecutor(count) as executor:
        return list(
            executor.map(lambda number: up.trigger("release/release", spec=f"many-{number}.yaml"), range(count))
        )


def all_ended(up: Up, runs: list[str]) -> list[tuple[str, str]]:
    """Wait until all runs have ended; return the state of each, and what it says."""
    asked = {"flow_runs": {"id": {"any_": runs}}}

    def found() -> list[dict[str, Any]]:
        ended = up.call("/flow_runs/filter", asked)
        return ended if {run["state_type"] for run in ended} <= FINAL else []

    by_id = {run["id"]: run for run in until(found, AT_MOST)}
    return [(by_id[run]["state_name"], by_id[run]["state"]["message"] or "") for run in runs]


def assert_published_or_refused(up: Up, runs: list[str]) -> None:
    """Every other run is published, in the store too, and the others are refused."""
    for number, (state, said) in enumerate(all_ended(up, runs)):
        assert state == ["Completed", "Refused"][number % 2], said
    by_id = {run["id"]: run["name"] for run in up.call("/flow_runs/filter", {"flow_runs": {"id": {"any_": runs}}})}
    known = states(up.user)
    assert [known[by_id[run]] for run in runs] == [["published", "refused"][number % 2] for number in range(len(runs))]


def history(up: Up, run: str) -> list[tuple[str, str]]:
    """Return the states that a run went through that are crashes, or tries after them."""
    passed = up.call(f"/flow_run_states/?flow_run_id={run}")
    passed.sort(key=lambda state: state["timestamp"])
    return [(state["name"], state["message"]) for state in passed if state["name"] in {"Crashed", "AwaitingRetry"}]


def assert_tried_again(up: Up, run: str) -> None:
    """A run crashed once, was tried again, and its release is published."""
    ((state, said),) = all_ended(up, [run])
    assert state == "Completed", said
    crash, again = history(up, run)
    assert (crash[0], again) == (
        "Crashed",
        ("AwaitingRetry", "It crashed before it began. Try 1 of 3 follows."),
    )
    assert states(up.user)[up.call(f"/flow_runs/{run}")["name"]] == "published"


# through `trellis up` -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, prefect: Prefect) -> Iterator[Up]:
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


@pytest.mark.parametrize("count", HOW_MANY)
def test_runs_that_up_takes_at_once_all_end(up: Up, count: int) -> None:
    """Runs that are triggered at once are all taken, by a server that sends nobody away, and published or refused."""
    with busy() if count == MOST else nullcontext():
        runs = triggered_at_once(up, count)
        assert_published_or_refused(up, runs)


def test_a_run_that_crashed_before_it_began_is_tried_again(up: Up) -> None:
    """A run whose process ends before it begins is tried again by `trellis up`, which says so in its states."""
    (up.user.folder / "deaths" / "one").touch()
    assert_tried_again(up, up.trigger("release/release", spec="many-0.yaml"))


# through a worker -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, prefect: Prefect) -> Iterator[Up]:
    """Start a server and a worker as docs/operations.md says, and deploy to it what deployments/ has."""
    folder, port = tmp_path_factory.mktemp("pool"), str(free_port())
    copy_database(prefect, folder / "prefect")
    settings = (
        NO_TELEMETRY
        | PATIENT
        | {
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "TRELLIS_SPECS": str(folder / "specs"),
            "no_proxy": "127.0.0.1",
        }
    )
    user = many(User(folder, Prefect(folder / "prefect", settings)))
    with ExitStack() as stack:

        def start(log: str, *command: str, **variables: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [BIN / command[0], *command[1:]],
                cwd=folder,
                env={**user.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=stack.enter_context((folder / log).open("wb")),
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        def run(*arguments: str) -> None:
            subprocess.run(
                [BIN / "prefect", *arguments],
                cwd=REPOSITORY,
                env=user.environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )

        start("server.log", "uvicorn", "--factory", "flows.server.process:create_app", "--port", port)
        until(lambda: answers(settings["PREFECT_API_URL"]))
        run("work-pool", "create", "--type", "process", "--overwrite", "trellis")
        run("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
        of_pool = ["--pool", "trellis", "--type", "process", "--limit", "4"]
        worker = start("worker.log", "prefect", "worker", "start", *of_pool, **dying(user))
        yield Up(user, worker, "", settings["PREFECT_API_URL"])


@pytest.mark.parametrize("count", HOW_MANY)
def test_runs_that_a_worker_is_given_at_once_all_end(pool: Up, count: int) -> None:
    """Runs that are triggered at once are all taken, by a server that sends nobody away, and published or refused."""
    with busy() if count == MOST else nullcontext():
        assert_published_or_refused(pool, triggered_at_once(pool, count))


def test_a_worker_s_run_that_crashed_before_it_began_is_tried_again(pool: Up) -> None:
    """A run whose process ends before it begins is tried again by the deployment that looks for crashes."""
    (pool.user.folder / "deaths" / "one").touch()
    run = pool.trigger("release/release", spec="many-0.yaml")
    pool.reached(run, lambda found: found["state_type"] == "CRASHED")
    pool.trigger("look-for-crashes/look-for-crashes")  # as its schedule does
    assert_tried_again(pool, run)


def test_a_worker_s_crashes_are_looked_for(pool: Up) -> None:
    """The deployment that looks for crashes is on a schedule that is switched on, every five minutes."""
    found = pool.call("/deployments/name/look-for-crashes/look-for-crashes")
    (schedule,) = found["schedules"]
    assert (schedule["active"], schedule["schedule"]["interval"], found["paused"]) == (True, 300.0, False)


# which runs are tried again -------------------------------------------------------------------------------------------


@flow(name="release")
def released() -> None:
    """Have the name of the flow whose runs are tried again."""


@flow(name="another")
def of_somebody_else() -> None:
    """Have the name of a flow that is not ours."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, prefect: Prefect) -> Iterator[SyncPrefectClient]:
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
def run_in(client: SyncPrefectClient) -> Callable[..., UUID]:
    """Return what makes a run of a deployment go through states."""

    def run_in(*passed: State[Any], of: Flow[..., Any] = released) -> UUID:
        deployment = client.create_deployment(client.create_flow(of), "tried")
        run = client.create_flow_run_from_deployment(deployment).id
        for state in passed:
            client.set_flow_run_state(run, state, force=True)
        return run

    return run_in


def state_of_run(client: SyncPrefectClient, run: UUID) -> str | None:
    """Return the name of the state of a run."""
    state = client.read_flow_run(run).state
    return state and state.name


def test_a_run_is_tried_again_so_often_and_no_more(client: SyncPrefectClient, run_in: Callable[..., UUID]) -> None:
    """A run that crashes each time before it begins is tried again three times, later than now, and then stays crashed."""
    run = run_in(Pending(), Crashed())
    for number in range(TRIES_AGAIN):
        try_again()
        again = client.read_flow_run(run).state
        assert again
        assert (again.name, again.message) == (
            "AwaitingRetry",
            f"It crashed before it began. Try {number + 1} of {TRIES_AGAIN} follows.",
        )
        assert again.state_details.scheduled_time > again.timestamp
        try_again()
        assert client.read_flow_run(run).state == again
        for state in (Pending(), Crashed()):
            client.set_flow_run_state(run, state, force=True)
    try_again()
    assert state_of_run(client, run) == "Crashed"


def test_what_crashed_together_is_tried_again_apart(client: SyncPrefectClient, run_in: Callable[..., UUID]) -> None:
    """Runs that crashed together are scheduled one after the other."""
    runs = [run_in(Pending(), Crashed()) for _ in range(3)]
    try_again()
    found = [client.read_flow_run(run).state for run in runs]
    times = sorted(state.state_details.scheduled_time for state in found if state)
    assert len(times) == 3
    assert min(later - earlier for earlier, later in pairwise(times)) >= timedelta(seconds=4)


@pytest.mark.parametrize(
    ("passed", "of"),
    [
        ([Pending(), Running(), Crashed()], released),
        ([Pending(), Failed()], released),
        ([Pending(), Crashed(), Cancelled()], released),
        ([Pending()], released),
        ([Pending(), Crashed()], of_somebody_else),
    ],
    ids=["began", "failed", "cancelled", "pending", "of another flow"],
)
def test_what_did_not_crash_before_it_began_is_left_alone(
    client: SyncPrefectClient, run_in: Callable[..., UUID], passed: list[State[Any]], of: Flow[..., Any]
) -> None:
    """A run that had begun, failed, was cancelled, has not ended or is not ours keeps its state."""
    run = run_in(*passed, of=of)
    try_again()
    assert state_of_run(client, run) == passed[-1].name


def test_a_run_whose_release_began_is_left_alone(client: SyncPrefectClient, run_in: Callable[..., UUID]) -> None:
    """The store knows the run, whatever Prefect says: it is not tried again; nor is one that is alive."""
    run, alive = run_in(Pending(), Crashed()), run_in(Pending(), Crashed())
    with store() as con:
        open_run(con, str(run), "tried-1")
    with seen_alive(str(alive)):
        try_again()
    assert [state_of_run(client, left) for left in (run, alive)] == ["Crashed"] * 2


def test_a_crash_of_long_ago_is_left_alone(
    client: SyncPrefectClient, run_in: Callable[..., UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an hour, somebody may have made the release otherwise: the run stays crashed."""
    run = run_in(Pending(), Crashed())
    monkeypatch.setattr(flows.server.runs, "_TRIED_WITHIN", timedelta(0))
    try_again()
    assert state_of_run(client, run) == "Crashed"


def test_a_run_without_a_deployment_is_left_alone(client: SyncPrefectClient) -> None:
    """Nobody could start again what a command has run."""
    run = client.create_flow_run(released, state=Pending()).id
    client.set_flow_run_state(run, Crashed(), force=True)
    try_again()
    assert state_of_run(client, run) == "Crashed"


def test_one_process_at_a_time_looks(client: SyncPrefectClient, run_in: Callable[..., UUID]) -> None:
    """While somebody looks for what to try again, nobody else does."""
    run = run_in(Pending(), Crashed())
    with held("tries"):
        try_again()
    assert state_of_run(client, run) == "Crashed"
