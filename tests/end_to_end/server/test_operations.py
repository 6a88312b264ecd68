"""Trellis up for months: schedules, runs that are cancelled, fail or crash, and going on with them."""

import re
import shutil
import signal
import stat
import urllib.request
from base64 import b64encode
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.support.spec import SPEC
from tests.support.up import SCHEDULE, below, bring_up, end, states, until, write_large
from tests.support.user import User

CUT = 39_701  # units with too many records, and
FAULTY = 81_123  # rows with a code that nobody knows: both told to callers alone

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("Trellis is up meanwhile")]


@pytest.fixture(scope="module")
def up(tmp_path_factory, settle):
    """Bring Trellis up, with a password, over specs: one by hand, one on a schedule, a series, one too dear, one wrong."""
    # The folder in which it begins has modules of its own that have the names of ours.
    user = settle(tmp_path_factory.mktemp("operator"))
    user = User(user.folder, user.prefect.__class__(user.folder / "home" / "prefect", {}))
    write_large(user.folder / "large")
    for name in ("tasks.py", "storage.py", "numpy.py", "flows/__init__.py"):
        (user.folder / name).parent.mkdir(exist_ok=True)
        (user.folder / name).write_text("raise SystemExit('imported what lies here')\n")
    data = user.folder / "data"
    shutil.copytree(data, user.folder / "data3")
    persons = "".join(f"{n // 3},0101001,0102001\n" for n in range(3 * CUT))
    (data / "persons.csv").write_text(f"person,home,work\n{persons}")
    (data / "faulty.csv").write_text("home,work,people\n" + "nowhere,0101001,1\n" * FAULTY)
    cheap, dear, costly = (SPEC["privacy"] | {"epsilon": epsilon} for epsilon in (1.0, 30.0, 9.0))
    slow = {
        "dataset": "large",
        "input": SPEC["input"] | {"table": "large/trips.csv"},
        "hierarchy": SPEC["hierarchy"] | {"table": "large/codebook.csv"},
        "budget": {"epsilon": 30.0, "delta": 1.0e-7},
        "privacy": costly,
    }
    of_persons = {"table": "data/persons.csv", "origin": "home", "destination": "work", "unit": "person"}
    specs = {
        "by-hand": {"privacy": cheap},
        "yearly": {"privacy": cheap, "schedule": SCHEDULE},
        "series": {
            "dataset": "another",
            "input": SPEC["input"] | {"table": "data3/trips.csv"},
            "privacy": cheap,
            "schedule": SCHEDULE | {"until": "3 releases"},
        },
        "dear": {"privacy": dear, "schedule": SCHEDULE},
        "wrong": {"schedule": {"cron": "at noon"}},
        "often": {"schedule": SCHEDULE | {"cron": "0 */6 * * *"}},
        "slow": slow,
        "killed": slow,
        "counted": {"dataset": "persons", "input": of_persons, "privacy": cheap | {"exact_records_per_unit": True}},
        "spoilt": {"dataset": "spoilt", "input": SPEC["input"] | {"table": "data/faulty.csv"}, "privacy": cheap},
    }
    (user.folder / "specs").mkdir()
    for name, keys in specs.items():
        (user.folder / "specs" / f"{name}.yaml").write_text(below(SPEC, name=name, **keys))
    is_up = bring_up(user, "--auth")
    try:
        yield is_up
    finally:
        if is_up.process.poll() is None:
            is_up.process.kill()


def seals_of(user, release_id):
    """Return what is sealed of a release."""
    shown = user.run("show", release_id, "--json").json()
    return {(seal["level"], seal["branch"], seal["sha256"]) for seal in shown["seals"]}


def test_what_is_up_is_said(up):
    """The address, the schedules and the series, which is not reserved before its first day, are told, and the spec that cannot be scheduled."""
    assert f"Trellis is up: open {up.api.removesuffix('/api')}. " in up.said
    assert "Scheduled: yearly, at 0 3 1 1 * (UTC)." in up.said
    assert "Scheduled: series, at 0 3 1 1 * (UTC), 3 releases, the last one series-2" in up.said
    assert "Not scheduled: wrong.yaml: schedule.cron must be five fields such as 0 3 1 * *, got at noon." in up.said
    assert "Not scheduled: often.yaml: schedule.cron must run at most once a day, because the id of" in up.said
    found = up.call("/deployments/filter", {})
    by_hand = {"by-hand", "slow", "killed", "counted", "spoilt"}
    assert {entry["name"] for entry in found} == {"release", "rerun", "yearly", "series", "dear"} | by_hand
    assert {entry["name"] for entry in found if entry["schedules"]} == {"yearly", "series", "dear"}
    assert "they are reserved together when the first day comes, series-2" in up.said
    assert not [id_ for id_ in states(up.user) if id_.startswith("series-")]
    assert "another" not in {of["dataset"] for of in up.user.run("ledger", "--json").json()["datasets"]}
    files = [path for path in (up.user.folder / "home").rglob("*") if path.is_file()]
    assert [path.name for path in files if path.stat().st_mode & 0o077] == []


def test_pages_of_other_servers_and_who_has_no_password_are_refused(up):
    """The operator is told where the password is, and nobody else can read it there."""
    path = Path(up.user.environment["TRELLIS_HOME"]) / "auth"
    auth = f"Basic {b64encode(path.read_bytes().strip()).decode()}"
    for headers, code in (
        ({}, 401),
        ({"Authorization": auth}, 200),
        ({"Authorization": auth, "Host": "evil.example"}, 403),
    ):
        asked = headers | {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{up.api}/flow_runs/filter", b"{}", asked)  # noqa: S310 (our own server)
        with pytest.raises(HTTPError, match=str(code)) if code != 200 else nullcontext():
            urllib.request.urlopen(request, timeout=60.0).close()  # noqa: S310 (our own server)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path) in up.said or str(path) in (up.process.stderr.readline() if up.process.stderr else "")


def test_a_scheduled_run_has_its_name_before_it_starts(up):
    """The runs to come are listed by the release that each will make, and tagged with it and its dataset."""
    coming = {"deployments": {"name": {"any_": ["yearly"]}}, "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
    runs = until(lambda: [run for run in up.call("/flow_runs/filter", coming) if run["name"].startswith("yearly-")])
    for run in runs:
        assert run["name"] == f"yearly-{run['expected_start_time'][:4]}-01-01"
        assert {f"dataset:{SPEC['dataset']}", f"release:{run['name']}"} <= set(run["tags"])


def test_a_release_below_the_folder_is_made(up):
    """By the deployment of its spec, or that which takes a path; its run is named for its release."""
    # Its process imports nothing from the folder in which it begins.
    again = {"spec": "by-hand.yaml", "measure_again": True}
    for run in [up.ended(up.trigger("release/by-hand")), up.ended(up.trigger("release/release", **again))]:
        assert (run["state_type"], run["parameters"]["spec"]) == ("COMPLETED", "by-hand.yaml")
        assert states(up.user)[run["name"]] == "published"
    shown = up.artifacts(run["id"])
    assert shown.keys() - {"largest"} == {"progress", "levels", "statement"}
    assert run["name"] in shown["statement"]


def test_a_spec_that_is_run_again_asks_before_it_charges(up):
    """Run, pressed once more, says that this is a new measurement and how to confirm it; nothing is charged."""
    ledger = up.user.run("ledger", "--json").stdout
    for run in [up.ended(up.trigger("release/by-hand")), up.ended(up.trigger("release/release", spec="by-hand.yaml"))]:
        assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Asks")
        for words in ("is a new measurement", "Nothing was measured or charged", "measure_again"):
            assert words in run["state"]["message"]
    assert up.user.run("ledger", "--json").stdout == ledger


def test_a_day_has_one_release(up):
    """A schedule that is triggered again on a day, at once or later, makes one release, spends once, and fails never."""
    today = f"yearly-{datetime.now(UTC).date().isoformat()}"
    both = [up.ended(run) for run in [up.trigger("release/yearly") for _ in range(2)]]
    assert [(run["state_type"], run["name"]) for run in both] == [("COMPLETED", today)] * 2
    assert {run["state_name"] for run in both} <= {"Completed", "Elsewhere"}
    assert [run for run in both if "failure" in up.artifacts(run["id"])] == []
    until(lambda: states(up.user)[today] == "published")
    spent = up.user.run("ledger", "--json").stdout
    third = up.ended(up.trigger("release/yearly"))
    assert (third["state_name"], third["state"]["message"]) == ("Completed", f"{today} is already published.")
    assert (third["name"], up.user.run("ledger", "--json").stdout) == (today, spent)


def test_what_the_cap_refuses_ends_completed(up):
    """A scheduled release that would pass the cap is no failure: it is Completed, called Refused, and named for its day."""
    # So is it when it is triggered again on that day, and so is a release that was not declared with its series.
    today = datetime.now(UTC).date().isoformat()
    for run in [up.ended(up.trigger(f"release/{name}")) for name in ("dear", "dear", "series")]:
        assert (run["state_type"], run["state_name"], run["name"][-10:]) == ("COMPLETED", "Refused", today)
        if run["name"].startswith("series-"):
            assert "is not a day of the declared series series, which has 3 releases" in run["state"]["message"]
        else:
            assert "its cap is 10" in run["state"]["message"]
            assert "Nothing was drawn or charged" in up.artifacts(run["id"])["refusal"]
            assert up.keys(run["id"]) == {f"dear-{today}-refusal"}
    assert states(up.user)[f"dear-{today}"] == "refused"
    assert not [id_ for id_ in states(up.user) if id_.startswith("series-")]


def test_cancel_keeps_what_is_sealed_and_retry_goes_on(up):
    """Cancel ends a run at the next chunk; Retry, in another process, uses every seal and charges nothing again."""
    run = up.trigger("release/release", spec="slow.yaml")
    release_id = up.reached(run, lambda found: found["name"].startswith("slow-"))["name"]
    until(lambda: states(up.user).get(release_id) == "running" and seals_of(up.user, release_id))
    said = up.user.run("rerun", release_id)
    assert said.code == 1
    assert f"{release_id} is run by process " in said.stderr
    assert up.user.run("abandon", release_id).code == 1
    up.set_state(run, "CANCELLING", "Cancelling")
    assert up.ended(run)["state_type"] == "CANCELLED"
    until(lambda: states(up.user)[release_id] == "failed")
    (account,) = up.user.run("ledger", "large", "--json").json()["datasets"]
    sealed, spent = seals_of(up.user, release_id), account["spent"]
    assert sealed
    (up.user.folder / "specs" / "slow.yaml").unlink()  # the store keeps it
    up.set_state(run, "SCHEDULED", "AwaitingRetry")
    again = up.reached(run, lambda found: found["state_type"] == "RUNNING")
    assert again["name"] == release_id
    ended = up.ended(run)
    assert (ended["state_type"], ended["name"]) == ("COMPLETED", release_id)
    assert states(up.user)[release_id] == "published"
    assert sealed < seals_of(up.user, release_id)
    assert up.user.run("ledger", "large", "--json").json()["datasets"][0]["spent"] == spent
    assert up.user.run("verify", str(up.user.folder / "out" / release_id)).code == 0


def test_what_stops_a_run_before_the_reservation_is_shown(up):
    """A spec that is missing, a table that is wrong: what failed, that nothing was charged, and that Retry goes on."""
    ledger = up.user.run("ledger", "--json").stdout
    missing, spoilt = [up.trigger("release/release", spec=spec) for spec in ("to-come.yaml", "spoilt.yaml")]
    faults = {missing: "must be a text file that can be read", spoilt: "column home has codes that the codebook lacks."}
    for run, said in faults.items():
        assert up.ended(run)["state_type"] == "FAILED"
        told = up.artifacts(run)["failure"]
        for words in (said, "Nothing was reserved, drawn or charged.", "correct the cause, then press **Retry**"):
            assert words in told
        assert up.call(f"/flow_runs/{run}")["state"]["message"].endswith("Correct the cause, then press Retry.")
    begun = up.ended(spoilt)["name"]
    assert begun.startswith("spoilt-")
    assert (begun in states(up.user), up.user.run("ledger", "--json").stdout) == (False, ledger)
    good = (up.user.folder / "data" / "trips.csv").read_bytes()
    # other people's records
    (up.user.folder / "data" / "faulty.csv").write_bytes(good[: good.rindex(b"\n", 0, -1) + 1])
    up.set_state(spoilt, "SCHEDULED", "AwaitingRetry")
    ended = up.ended(spoilt)
    assert (ended["state_type"], ended["name"], states(up.user)[begun]) == ("COMPLETED", begun, "published")


def test_what_only_a_caller_may_read_is_in_no_log(up):
    """How many rows are at fault, and how many units were cut, is told to whoever gives a command, and not to `runs.log`."""
    run = up.ended(up.trigger("release/release", spec="counted.yaml"))
    assert run["state_type"] == "COMPLETED"
    log = (up.user.folder / "home" / "prefect" / "runs.log").read_text()
    assert "Flow run 'counted' - Beginning" in log
    assert "Flow run 'spoilt' - Finished in state Failed" in log
    secret = rf"{FAULTY}|{FAULTY:,}|{CUT}|{CUT:,}|at fault|cut to|nanobind|leaked"
    assert re.findall(rf".*(?:{secret}).*", log) == []
    said = up.user.run("release", "specs/counted.yaml", "--dry-run", "--json").stderr
    assert said == f"{CUT:,} units were cut to at most 1 records.\n"


def test_a_direct_run_that_was_killed_is_marked(up):
    """While Trellis is up its run turns Crashed by itself, with the task runs that it has left, and its release has failed."""
    process = up.user.start("release", "specs/killed.yaml")
    killed = str(until(lambda: next((id_ for id_ in states(up.user) if id_.startswith("killed-")), None)))
    (run,) = until(lambda: up.call("/flow_runs/filter", {"flow_runs": {"name": {"any_": [killed]}}}))
    state = {"type": {"any_": ["PENDING", "RUNNING"]}}
    running = {"flow_runs": {"id": {"any_": [run["id"]]}}, "task_runs": {"state": state}}
    until(lambda: up.call("/task_runs/count", running))
    process.kill()
    process.communicate()
    assert up.ended(run["id"])["state_type"] == "CRASHED"
    until(lambda: up.call("/task_runs/count", running) == 0)  # they are marked after their run
    assert states(up.user)[killed] == "failed"
    assert up.user.run("abandon", killed).code == 0


def test_a_command_reports_to_the_server_that_is_up(up):
    """`trellis release` finds it by the address file; a second `trellis up` says where it is, and a port in use is named."""
    said = up.user.run("release", "specs/by-hand.yaml", "--json")
    assert said.code == 0, said.stderr
    release_id = said.json()["id"]
    (run,) = up.call("/flow_runs/filter", {"flow_runs": {"name": {"any_": [release_id]}}})
    tasks = up.call("/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    assert [task["state_type"] for task in tasks] == ["COMPLETED"] * (3 + 3 * len(said.json()["levels"]))
    again = up.user.run("rerun", release_id, "--json")
    assert (again.code, again.json()["state"]) == (0, "published")
    assert again.stderr == f"{release_id} is already published.\n"
    said = up.user.run("up", "specs")
    assert (said.code, said.stderr) == (1, f"Error: Trellis is already up: {up.api}\n")
    port = up.api.split(":")[2].removesuffix("/api")
    said = up.user.run("up", "specs", "--port", port, TRELLIS_HOME=str(up.user.folder / "other"))
    assert (said.code, f"Port {port} of 127.0.0.1 cannot be used" in said.stderr) == (1, True)
    assert up.user.run("up", "nowhere").code == 2


def test_it_ends_cleanly_and_comes_up_again(up):
    """SIGTERM ends it with all that it has started; up again, it knows every run, and reserves no series."""
    ran = {"flow_runs": {"state": {"type": {"any_": ["COMPLETED", "FAILED", "CANCELLED"]}}}}
    runs = up.call("/flow_runs/count", ran)
    ledger = up.user.run("ledger", "--json").stdout
    code, said = end(up)
    assert (code, "Trellis is down." in said) == (0, True)
    assert not (up.user.folder / "home" / "address").exists()
    with pytest.raises(OSError, match="refused"):
        up.call("/health")
    (up.user.folder / "specs" / "yearly.yaml").unlink()
    again = bring_up(up.user)
    try:
        assert again.call("/flow_runs/count", ran) == runs
        names = {"release", "rerun", "by-hand", "counted", "dear", "killed", "series", "spoilt"}
        assert {entry["name"] for entry in again.call("/deployments/filter", {})} == names
        assert up.user.run("ledger", "--json").stdout == ledger
    finally:
        code, said = end(again, signal.SIGINT)
    assert (code, "Trellis is down." in said) == (0, True), said
    assert list((up.user.folder / "home" / "running").iterdir()) == []
    assert up.user.run("audit", "--json").json()["findings"] == []
    assert list((up.user.folder / "home" / "vault").iterdir()) == []
