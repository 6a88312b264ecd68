"""Deployments for a work pool: `deployments/prefect.yaml` as an operator deploys it, and a worker that runs what is due."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pytest
import yaml

from flows.spec.file import load_spec
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.server import ask

if TYPE_CHECKING:
    from tests.support.user import User

REPOSITORY = Path(__file__).parents[3]
PREFECT = Path(sys.executable).with_name("prefect")
PREFECT_FILE = REPOSITORY / "deployments" / "prefect.yaml"
EXAMPLE = REPOSITORY / "deployments" / "specs" / "monthly.yaml"

FIRST_OF_THE_MONTH = "2026-11-01T02:00:00Z"  # three o'clock in Rome, when the example's schedule falls
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
FAULTY = 81_123  # rows with a code that nobody knows: told to callers alone
AT_MOST = 600.0  # seconds until a run has ended: five take minutes on a machine that does much else

pytestmark = pytest.mark.timeout(1200)  # with the runs that the first test waits for


@dataclass(frozen=True)
class Operator:
    """Somebody who deploys to a server and runs a worker.

    Attributes:
        user: whose specs, tables and store the worker has.
        specs: the folder below which specs are taken.
    """

    user: "User"
    specs: Path

    @property
    def environment(self) -> dict[str, str]:
        """What the operator's commands see, and the worker."""
        return {
            **self.user.environment,
            "TRELLIS_SPECS": str(self.specs),
            "TRELLIS_DATA": str(self.user.folder / "other"),
            "TRELLIS_OUTPUT": str(self.user.folder / "published"),
            "TMPDIR": str(self.user.folder / "temporary"),
            "PREFECT_WORKER_QUERY_SECONDS": "0.5",
        }

    def prefect(self, *arguments: str) -> str:
        """Run a command of Prefect's at the root of the checkout, and return what it says."""
        return subprocess.run(
            [PREFECT, *arguments],
            cwd=REPOSITORY,
            env=self.environment,
            umask=0o077,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=AT_MOST,
        ).stdout

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what the server answers, however busy it is."""
        environment = self.environment
        answer = ask(f"{environment['PREFECT_API_URL']}{path}", body, environment["PREFECT_API_AUTH_STRING"])
        assert isinstance(answer, dict)
        return answer

    def trigger(self, deployment: str, at: str | None = None, **parameters: str) -> str:
        """Have a deployment run, now or as if it were scheduled; return the run's id."""
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": at}} if at else {"type": "SCHEDULED"}
        made = self.ask(f"/deployments/name/{deployment}")["id"]
        asked = {"parameters": parameters, "state": state, "idempotency_key": str(uuid4())}
        run = self.ask(f"/deployments/{made}/create_flow_run", asked)
        return str(run["id"])

    def wait(self, run: str, states: set[str]) -> dict[str, Any]:
        """Return a run once it is in one of some states."""
        deadline = time.monotonic() + AT_MOST
        while (answer := self.ask(f"/flow_runs/{run}"))["state_type"] not in states:
            assert time.monotonic() < deadline, f"{answer['state_type']} after {AT_MOST:.0f} s"
            time.sleep(0.2)
        return answer

    def processes(self) -> list[str]:
        """Return the command lines of all processes that have the operator's store."""
        mark, found = f"TRELLIS_HOME={self.user.folder / 'home'}".encode(), []
        aliases = {mark, mark.replace(b"=", b"=/./")}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if aliases & set((process / "environ").read_bytes().split(b"\0")):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # it has ended, or is somebody else's
        return found

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker as a service manager would: it hears SIGINT, and its files are its own."""
        with (self.user.folder / "worker.log").open("wb") as log:
            worker = subprocess.Popen(
                [PREFECT, "worker", "start", "--pool", "trellis", "--type", "process", "--limit", "4"],
                cwd=self.user.folder,
                env=self.environment,
                umask=0o077,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
            try:
                yield worker
            finally:
                worker.kill()
                worker.wait()


@dataclass(frozen=True)
class Worked:
    """What became of runs that a worker was given, and of the worker.

    Attributes:
        runs: the flow runs that have ended, as the server answers.
        stopped_at: what ran when the worker was told to stop.
        code: the worker's exit code.
        left: the processes that were left a minute later, or none as soon as there was none.
    """

    operator: Operator
    runs: Mapping[str, dict[str, Any]]
    stopped_at: list[str]
    code: int
    left: list[str]


@pytest.fixture(scope="module")
def operator(settle: "Callable[[Path], User]", tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """Return an operator who has deployed, with a spec, the example's spec, and a spec outside the folder of specs."""
    user = settle(tmp_path_factory.mktemp("worker"))
    specs = user.folder / "specs"
    for folder in (specs, user.folder / "temporary"):
        folder.mkdir()
    table = {"table": str(user.folder / "data" / "trips.csv")}
    codebook = {"table": str(user.folder / "data" / "codebook.csv")}
    user.spec("specs/synthetic.yaml", input=table, hierarchy=codebook)
    user.spec("outside.yaml", input=table, hierarchy=codebook)
    (user.folder / "faulty.csv").write_text("home,work,people\n" + "nowhere,0101001,1\n" * FAULTY)
    faulty = table | {"table": str(user.folder / "faulty.csv")}
    user.spec("specs/faulty.yaml", input=faulty, hierarchy=codebook)
    shutil.copy(EXAMPLE, specs)  # about other people, whose table is another
    other = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(8))
    write_country(other, user.folder / "other")
    made = Operator(user, specs)
    made.prefect("work-pool", "create", "--type", "process", "trellis")
    made.prefect("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    return made


@pytest.fixture(scope="module")
def worked(operator: Operator) -> Worked:
    """Have a worker run what ends, and then tell it to stop while it runs a release."""
    with operator.worker() as worker:
        runs = {
            "release": operator.trigger("release/release", spec="synthetic.yaml"),
            "outside": operator.trigger("release/release", spec="../outside.yaml"),
            "faulty": operator.trigger("release/release", spec="faulty.yaml"),
            "monthly": operator.trigger("release/monthly-synthetic", at=FIRST_OF_THE_MONTH, spec="monthly.yaml"),
            "rerun": operator.trigger("rerun/rerun", release_id="none-20260101T000000Z"),
        }
        ended = {name: operator.wait(run, FINAL) for name, run in runs.items()}
        operator.wait(operator.trigger("release/release", spec="synthetic.yaml"), FINAL | {"RUNNING"})
        stopped_at = operator.processes()
        worker.terminate()
        code, deadline = worker.wait(timeout=AT_MOST), time.monotonic() + 60.0
        while (left := operator.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
    return Worked(operator, ended, stopped_at, code, left)


def test_a_spec_below_the_folder_is_released(worked: Worked) -> None:
    """A run of the deployment `release` completes under its release's id, and the release is published in the store."""
    run, user = worked.runs["release"], worked.operator.user
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Completed")
    releases = {release["id"]: release for release in user.run("releases", "--json").json()["releases"]}
    assert releases[run["name"]]["state"] == "published"
    assert user.run("verify", str(worked.operator.specs / "out" / run["name"]), "--json").json()["ok"]


def test_a_spec_outside_the_folder_is_refused(worked: Worked) -> None:
    """A run for a spec that is not below the folder of specs fails, and its state names the rule."""
    run = worked.runs["outside"]
    assert run["state_type"] == "FAILED"
    assert f"spec must be below the folder {worked.operator.specs}" in run["state"]["message"]


def test_how_many_rows_are_at_fault_is_in_no_log(worked: Worked) -> None:
    """What a worker's runs say goes to journals and container logs: the rule that rows break, and not how many they are."""
    run, user = worked.runs["faulty"], worked.operator.user
    assert run["state_type"] == "FAILED"
    assert "column home has codes that the codebook lacks." in run["state"]["message"]
    log = (user.folder / "worker.log").read_text()
    assert "Flow run 'faulty' - Finished in state Failed" in log
    assert re.findall(rf".*(?:{FAULTY}|{FAULTY:,}|at fault).*", log) == []
    assert f"{FAULTY:,} rows are at fault." in user.run("release", "specs/faulty.yaml", "--dry-run").stderr


def test_the_example_is_released_on_its_first_day(worked: Worked) -> None:
    """The first scheduled run of the example declares its series, and its release is that of the run's own day."""
    run, user = worked.runs["monthly"], worked.operator.user
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Completed")
    states = {release["id"]: release["state"] for release in user.run("releases", "--json").json()["releases"]}
    series = {id_: state for id_, state in states.items() if id_.startswith("monthly-synthetic-")}
    assert len(series) == 12
    assert {id_ for id_, state in series.items() if state == "published"} == {"monthly-synthetic-2026-11-01"}
    assert run["name"] == "monthly-synthetic-2026-11-01"


def test_rerun_is_deployed(worked: Worked) -> None:
    """A run of the deployment `rerun` reaches the store, which does not know the release."""
    run = worked.runs["rerun"]
    assert run["state_type"] == "FAILED"
    assert "none-20260101T000000Z" in run["state"]["message"]


def test_a_worker_that_is_told_to_stop_leaves_nothing_running(worked: Worked) -> None:
    """SIGTERM ends a worker that runs a release, and the processes of that release with it."""
    assert len(worked.stopped_at) > 1
    assert worked.code == 0
    assert worked.left == []


def test_what_a_worker_leaves_is_closed_to_others(worked: Worked) -> None:
    """With umask 077 no file in the store, or among temporary files, can be read by group or others."""
    folder = worked.operator.user.folder
    files = [path for part in ("home", "temporary") for path in (folder / part).rglob("*") if path.is_file()]
    assert folder / "home" / "store.duckdb" in files
    assert [str(path) for path in files if path.stat().st_mode & 0o077] == []


def test_the_schedule_of_the_example_is_its_spec_s() -> None:
    """Prefect starts the example's runs when its spec says, once it is switched on; in the file it is off."""
    deployments = yaml.safe_load(PREFECT_FILE.read_text())["deployments"]
    scheduled = [deployment for deployment in deployments if deployment["entrypoint"] == "flows.release.release"]
    scheduled = [deployment for deployment in scheduled if deployment.get("schedules")]
    assert [deployment["parameters"]["spec"] for deployment in scheduled] == [EXAMPLE.name]
    spec = load_spec(EXAMPLE).spec
    assert spec.schedule is not None
    assert scheduled[0]["name"] == spec.name
    assert scheduled[0]["schedules"] == [
        {"cron": spec.schedule.cron, "timezone": spec.schedule.timezone, "active": False}
    ]


@pytest.mark.parametrize("home", ["", "home", "~/.trellis"])
def test_a_home_that_is_not_absolute_is_no_home(home: str) -> None:
    """TRELLIS_HOME as deployed is a folder at the root where it is not absolute, and never one below a run's folder."""
    deployed = yaml.safe_load(PREFECT_FILE.read_text())["definitions"]["on_the_worker"]["job_variables"]["env"]
    assert Path(deployed["TRELLIS_HOME"].replace("{{ $TRELLIS_HOME }}", home)) == Path("/", home)
    assert Path(deployed["TRELLIS_HOME"].replace("{{ $TRELLIS_HOME }}", "/srv/home")) == Path("/srv/home")
