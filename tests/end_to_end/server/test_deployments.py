"""Deployments for a work pool: `deployments/prefect.yaml` as an operator deploys it, and a worker that runs what is due."""

import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import yaml

from flows.release import SPECS, _below_the_folder_of_specs
from flows.server.process import NO_TELEMETRY, PATIENT, answers
from flows.specification.file import load_spec
from storage.errors import SpecError
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.many_runs import assert_published_or_refused, assert_tried_again, dying, many
from tests.support.processes import command_of, processes_of
from tests.support.server import Prefect, copy_database
from tests.support.up import Up, free_port, states, until
from tests.support.user import REPOSITORY, User

BIN = Path(sys.executable).parent
PREFECT_FILE = REPOSITORY / "deployments" / "prefect.yaml"
EXAMPLE = REPOSITORY / "deployments" / "specs" / "monthly.yaml"
FIRST_OF_THE_MONTH = "2026-11-01T02:00:00Z"  # three o'clock in Rome, when the example's schedule falls
FAULTY = 81_123  # rows with a code that nobody knows: told to callers alone

pytestmark = [pytest.mark.timeout(1200), pytest.mark.heavy("a server and a worker run releases")]


@pytest.fixture(scope="module")
def pool(tmp_path_factory, prefect, country):
    """Start a server and a worker as docs/operations.md says, and deploy to it what deployments/ has."""
    folder, port = tmp_path_factory.mktemp("pool"), str(free_port())
    copy_database(prefect, folder / "prefect")
    settings = {
        **NO_TELEMETRY, **PATIENT, "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_WORKER_QUERY_SECONDS": "0.5",
        "TRELLIS_SPECS": str(folder / "specs"), "TRELLIS_DATA": str(folder / "other"),
        "TRELLIS_OUTPUT": str(folder / "published"), "TMPDIR": str(folder / "temporary"), "no_proxy": "127.0.0.1",
    }  # fmt: skip
    user = many(User(folder, Prefect(folder / "prefect", settings)))
    (folder / "temporary").mkdir()
    shutil.copytree(country, folder / "data")
    (folder / "faulty.csv").write_text("home,work,people\n" + "nowhere,0101001,1\n" * FAULTY)
    codebook = {"table": str(folder / "data" / "codebook.csv")}
    for spec, table in (("specs/one", "data/trips"), ("outside", "data/trips"), ("specs/faulty", "faulty")):
        user.spec(f"{spec}.yaml", input={"table": str(folder / f"{table}.csv")}, hierarchy=codebook)
    shutil.copy(EXAMPLE, folder / "specs")  # about other people, whose table is another
    other = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(8))
    write_country(other, folder / "other")
    with ExitStack() as stack:

        def start(log, *command, **variables):
            """Run a program as a service manager would: it hears SIGINT, and its files are its own."""
            process = subprocess.Popen(
                [BIN / command[0], *command[1:]],
                cwd=folder,
                env={**user.environment, **variables},
                umask=0o077,
                stdin=subprocess.DEVNULL,
                stdout=stack.enter_context((folder / log).open("wb")),
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        start("server.log", "uvicorn", "--factory", "flows.server.process:create_app", "--port", port)
        until(lambda: answers(settings["PREFECT_API_URL"]))
        for arguments in (
            ["work-pool", "create", "--type", "process", "--overwrite", "trellis"],
            ["--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml"],
        ):
            command = [BIN / "prefect", *arguments]
            subprocess.run(command, cwd=REPOSITORY, env=user.environment, check=True, stdout=subprocess.DEVNULL)
        of_pool = ["worker", "start", "--pool", "trellis", "--type", "process", "--limit", "4"]
        worker = start("worker.log", "prefect", *of_pool, **dying(user))
        yield Up(user, worker, "", settings["PREFECT_API_URL"])


@pytest.mark.crash
def test_runs_that_a_worker_is_given_at_once_all_end(pool):
    """Runs that are triggered at once are all taken, by a server that sends nobody away, and published or refused."""
    assert_published_or_refused(pool)


@pytest.mark.crash
def test_a_run_that_crashed_before_it_began_is_tried_again(pool):
    """A run whose process ends before it begins is tried again by the deployment that looks for crashes."""
    (pool.user.folder / "deaths" / "one").touch()
    run = pool.trigger("release/release", spec="many-0.yaml", measure_again=True)
    pool.reached(run, lambda found: found["state_type"] == "CRASHED")
    pool.trigger("look-for-crashes/look-for-crashes")  # as its schedule does
    assert_tried_again(pool, run)
    found = pool.call("/deployments/name/look-for-crashes/look-for-crashes")
    (schedule,) = found["schedules"]
    assert (schedule["active"], schedule["schedule"]["interval"], found["paused"]) == (True, 300.0, False)


@pytest.mark.thorough
def test_deployments_release_what_is_below_the_folder_of_specs(pool):
    """A spec below it is released under the release's id; another is refused by that rule; `rerun` reaches the store."""
    # What a worker's runs say goes to journals and container logs: the rule that rows break, and not how many they are.
    user = pool.user
    specs = {"one": "one.yaml", "outside": "../outside.yaml", "faulty": "faulty.yaml"}
    runs = {name: pool.trigger("release/release", spec=spec) for name, spec in specs.items()}
    runs["rerun"] = pool.trigger("rerun/rerun", release_id="none-20260101T000000Z")
    ended = {name: pool.ended(run) for name, run in runs.items()}
    states_of_runs = {name: run["state_name"] for name, run in ended.items()}
    assert states_of_runs == {"one": "Completed", **dict.fromkeys(("outside", "faulty", "rerun"), "Failed")}
    made = ended["one"]["name"]
    assert states(user)[made] == "published"
    assert user.run("verify", str(user.folder / "specs" / "out" / made), "--json").json()["ok"]
    messages = {name: run["state"]["message"] for name, run in ended.items()}
    assert f"spec must be below the folder {user.folder / 'specs'}" in messages["outside"]
    assert "none-20260101T000000Z" in messages["rerun"]
    assert "column home has codes that the codebook lacks." in messages["faulty"]
    log = user.folder / "worker.log"
    until(lambda: "Flow run 'faulty' - Finished in state Failed" in log.read_text())  # written after the state is set
    assert re.findall(rf".*(?:{FAULTY}|{FAULTY:,}|at fault).*", log.read_text()) == []
    assert f"{FAULTY:,} rows are at fault." in user.run("release", "specs/faulty.yaml", "--dry-run").stderr


@pytest.mark.thorough
def test_the_example_is_released_on_its_first_day(pool):
    """The first scheduled run of the example declares its series, and its release is that of the run's own day."""
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": FIRST_OF_THE_MONTH}}
    made = pool.call("/deployments/name/release/monthly-synthetic")["id"]
    asked = {"parameters": {"spec": "monthly.yaml"}, "state": state, "idempotency_key": "first"}
    run = pool.ended(pool.call(f"/deployments/{made}/create_flow_run", asked)["id"])
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Completed")
    series = {id_: state for id_, state in states(pool.user).items() if id_.startswith("monthly-synthetic-")}
    assert len(series) == 12
    assert {id_ for id_, state in series.items() if state == "published"} == {"monthly-synthetic-2026-11-01"}
    assert run["name"] == "monthly-synthetic-2026-11-01"


@pytest.mark.thorough
def test_a_worker_that_is_told_to_stop_leaves_nothing_running_and_nothing_open(pool):
    """SIGTERM ends a worker and the processes of the release that it runs; of what they wrote others can read nothing."""
    run = pool.trigger("release/release", spec="one.yaml", measure_again=True)
    pool.reached(run, lambda found: found["state_type"] in {"RUNNING", "COMPLETED", "FAILED"})
    home = pool.user.folder / "home"
    of_server = [process for process in processes_of(home) if "uvicorn" in command_of(process)]
    assert len(processes_of(home)) > 1 + len(of_server)
    pool.process.terminate()
    assert pool.process.wait(timeout=600) == 0
    until(lambda: processes_of(home) == of_server)
    folder = pool.user.folder
    files = [path for part in ("home", "temporary") for path in (folder / part).rglob("*") if path.is_file()]
    assert folder / "home" / "store.duckdb" in files
    assert [str(path) for path in files if path.stat().st_mode & 0o077] == []


def test_the_schedule_of_the_example_is_its_spec_s():
    """Prefect starts the example's runs when its spec says, once it is switched on; in the file it is off."""
    deployments = yaml.safe_load(PREFECT_FILE.read_text())["deployments"]
    releases = [deployment for deployment in deployments if deployment["entrypoint"] == "flows.release.release"]
    (scheduled,) = [deployment for deployment in releases if deployment.get("schedules")]
    spec = load_spec(EXAMPLE).spec
    assert (scheduled["name"], scheduled["parameters"]["spec"]) == (spec.name, EXAMPLE.name)
    assert scheduled["schedules"] == [{"cron": spec.schedule.cron, "timezone": spec.schedule.timezone, "active": False}]


def test_specs_are_taken_from_below_their_folder_alone(tmp_path, monkeypatch):
    """Whatever path leads elsewhere is refused, and every path where no folder was named."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "link.yaml").symlink_to("/etc/passwd")
    with pytest.raises(SpecError, match="cannot accept any spec"):
        _below_the_folder_of_specs("one.yaml")
    monkeypatch.setenv(SPECS, str(tmp_path / "specs"))
    assert _below_the_folder_of_specs("of/one.yaml") == tmp_path / "specs" / "of" / "one.yaml"
    for spec in ("../one.yaml", "/etc/passwd", "specs/../../one.yaml", "link.yaml", "../specs-of-others/one.yaml"):
        with pytest.raises(SpecError, match="must be below the folder"):
            _below_the_folder_of_specs(spec)


@pytest.mark.parametrize("home", ["", "home", "~/.trellis", "/srv/home"])
def test_a_home_that_is_not_absolute_is_no_home(home):
    """TRELLIS_HOME as deployed is a folder at the root where it is not absolute, and never one below a run's folder."""
    deployed = yaml.safe_load(PREFECT_FILE.read_text())["definitions"]["on_the_worker"]["job_variables"]["env"]
    assert Path(deployed["TRELLIS_HOME"].replace("{{ $TRELLIS_HOME }}", home)) == Path("/", home)
