"""Many specs of some datasets, whose runs are triggered at once, and a run whose process dies as it starts."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.spec import SPEC
from tests.support.up import below, states, until

FINAL = {"COMPLETED", "FAILED", "CANCELLED"}  # a run that crashes before it begins has not ended
DATASETS = 5
MANY = 20
AT_MOST = 900.0  # seconds: of twenty runs on two cores that do much else

# Ends a run's process as it starts, as often as there are files in a folder.
DYING = """
import os, pathlib
for death in pathlib.Path(os.environ["DEATHS"]).iterdir() if "PREFECT__FLOW_RUN_ID" in os.environ else ():
    death.unlink()
    os._exit(1)
"""


@contextmanager
def busy():
    """Keep a core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def many(user):
    """Give a user specs of some datasets: every other release is too dear, and refused."""
    for number in range(DATASETS):
        generator = np.random.default_rng(number)
        country = draw_country(regions=2, provinces=3, municipalities=6, people=200, generator=generator)
        write_country(country, user.folder / f"data{number}")
    for folder in ("specs", "dying", "deaths"):
        (user.folder / folder).mkdir(exist_ok=True)
    (user.folder / "dying" / "sitecustomize.py").write_text(DYING)
    for number in range(MANY):
        of_dataset = number % DATASETS
        data = {
            "input": SPEC["input"] | {"table": f"data{of_dataset}/trips.csv"},
            "hierarchy": SPEC["hierarchy"] | {"table": f"data{of_dataset}/codebook.csv"},
            "privacy": SPEC["privacy"] | {"epsilon": 30.0 if number % 2 else 0.5},
        }
        keys = {"name": f"many-{number}", "dataset": f"dataset-{of_dataset}"}
        (user.folder / "specs" / f"many-{number}.yaml").write_text(below(SPEC, **data, **keys))
    return user


def dying(user):
    """Return the variables that have a run's process end as it starts, once for each file in `deaths`."""
    return {"PYTHONPATH": str(user.folder / "dying"), "DEATHS": str(user.folder / "deaths")}


def all_ended(up, runs):
    """Wait until all runs have ended; return the state of each, and what it says."""
    asked = {"flow_runs": {"id": {"any_": runs}}}

    def found():
        ended = up.call("/flow_runs/filter", asked)
        return ended if {run["state_type"] for run in ended} <= FINAL else []

    by_id = {run["id"]: run for run in until(found, AT_MOST)}
    return [(by_id[run]["state_name"], by_id[run]["state"]["message"] or "") for run in runs]


def assert_published_or_refused(up):
    """Trigger twenty runs at once, beside a busy core: every other one is published, and the others are refused."""
    with busy():
        with ThreadPoolExecutor(MANY) as executor:
            specs = [f"many-{number}.yaml" for number in range(MANY)]
            runs = list(executor.map(lambda spec: up.trigger("release/release", spec=spec), specs))
        for number, (state, said) in enumerate(all_ended(up, runs)):
            assert state == ["Completed", "Refused"][number % 2], said
    by_id = {run["id"]: run["name"] for run in up.call("/flow_runs/filter", {"flow_runs": {"id": {"any_": runs}}})}
    known = states(up.user)
    assert [known[by_id[run]] for run in runs] == [["published", "refused"][number % 2] for number in range(len(runs))]


def assert_tried_again(up, run):
    """A run crashed once, was tried again, and its release is published."""
    ((state, said),) = all_ended(up, [run])
    assert state == "Completed", said
    passed = sorted(up.call(f"/flow_run_states/?flow_run_id={run}"), key=lambda state: state["timestamp"])
    told = [(state["name"], state["message"]) for state in passed if state["name"] in {"Crashed", "AwaitingRetry"}]
    crash, again = told
    assert (crash[0], again) == ("Crashed", ("AwaitingRetry", "It crashed before it began. Try 1 of 3 follows."))
    assert states(up.user)[up.call(f"/flow_runs/{run}")["name"]] == "published"
