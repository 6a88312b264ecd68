"""docs/operations.md: each of its commands does what it says there."""

import os
import re
import subprocess
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from tests.support.processes import processes_of
from tests.support.spec import SPEC
from tests.support.up import SCHEDULE, below, bring_up, end, states
from tests.support.user import REPOSITORY, TRELLIS

PAGE = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
POOL = "## With a worker pool"
BY_HAND = "specs/commuting.yaml"
STOPPED = {  # the specs whose releases are stopped on their way, by the command that goes on with them or ends them
    'trellis rerun "$ID"': "disturbed",
    'trellis rerun "$ID" --branch trunk': "hindered",
    'trellis abandon "$FAILED"': "hopeless",
}
SAID = {
    "trellis up specs --port 4200": "2 releases, the last one monthly-2",
    "trellis plan specs/monthly.yaml": "declared and reserved",
    f"trellis release {BY_HAND} --dry-run": "rehearsed",
    'trellis rerun "$DAY"': "published",
    'trellis rerun "$ID"': " published\n\n level",
    'trellis rerun "$ID" --branch trunk': " published\n\n level",
    'trellis show "$ID" --spec': "keep_vault: true",
    'trellis abandon "$FAILED"': "abandoned",
    "trellis clean --runs-older-than 90d": "0 runs deleted",
    "trellis metrics": "trellis_budget_left_epsilon{",
    'trellis forget "$ID"': "deleted: vault",
    "Ctrl-C": "Trellis is down.",
}


class Ran(NamedTuple):
    """A command of the page, as it ran."""

    command: str
    code: int
    said: str


def commands(text):
    """Return the commands of a page: lines that are indented by four spaces, outside of fences."""
    unfenced = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^    (\S.*)$", unfenced, flags=re.MULTILINE)


def followed(user):
    """Run the commands of the page in their order, with Trellis up until the restore."""
    environment = user.environment | {"PATH": f"{TRELLIS.parent}:{os.environ['PATH']}"}
    with ExitStack() as stack:
        for command in commands(PAGE.partition(POOL)[0]):
            if command.startswith("export "):
                continue
            if command == next(iter(SAID)):
                up = bring_up(user)
                stack.callback(up.process.kill)
                make_first_day(up)
                yield Ran(command, 0, up.said)
                continue
            if "trellis restore kept" in command:
                yield Ran("Ctrl-C", *end(up))
                assert processes_of(user.folder / "home") == []
            if command == next(iter(STOPPED)):
                stop_releases(up)
            known = states(user)
            of = STOPPED.get(command, "commuting")
            release = next((id_ for id_ in reversed(known) if id_.startswith(f"{of}-")), "")
            day = next((id_ for id_, state in known.items() if id_.startswith("monthly-") and state == "reserved"), "")
            environment |= {"ID": release, "FAILED": release, "DAY": day}
            run = ["sh", "-c", command]
            done = subprocess.run(run, cwd=user.folder, env=environment, capture_output=True, text=True, check=False)
            yield Ran(command, done.returncode, done.stdout + done.stderr)


def make_first_day(up):
    """Have the first day of the series come, which reserves all of it."""
    deployment = up.call("/deployments/name/release/monthly")["id"]
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2026-01-01T03:00:00Z"}}
    run = up.call(f"/deployments/{deployment}/create_flow_run", {"state": state})["id"]
    assert up.ended(run)["name"] == "monthly-2026-01-01"


def stop_releases(up):
    """Have releases made that are stopped at level 3, whose shard cannot be written, and take away what is in the way."""
    today = datetime.now(UTC).date().isoformat()
    shards = up.user.folder / "home" / "shards"
    in_the_way = [shards / f"{name}-{today}" / "level_3_trunk.noisy.parquet" for name in STOPPED.values()]
    for folder in in_the_way:
        folder.mkdir(mode=0o700, parents=True)
    for run in [up.trigger(f"release/{name}") for name in STOPPED.values()]:
        assert up.ended(run)["state_type"] == "FAILED"
    for folder in in_the_way:
        folder.rmdir()
        shown = up.user.run("show", folder.parent.name, "--json").json()
        assert (shown["state"], [seal["level"] for seal in shown["seals"]]) == ("failed", [0, 1, 2])


@pytest.mark.thorough
@pytest.mark.heavy("a server runs, and each command of the page is a process")
def test_every_command_does_what_it_says(newcomer):
    """No command of the page fails, and what a reader is to see is there."""
    (newcomer.folder / "specs").mkdir()
    cheap = SPEC | {"privacy": SPEC["privacy"] | {"epsilon": 0.5}}
    specs = {
        "commuting": {"keep_vault": True},
        "monthly": {"schedule": SCHEDULE | {"until": "2 releases"}},
        **{name: {"schedule": SCHEDULE} for name in STOPPED.values()},
    }
    for name, keys in specs.items():
        (newcomer.folder / "specs" / f"{name}.yaml").write_text(below(cheap, name=name, **keys))
    ran = list(followed(newcomer))
    assert len(ran) > 15
    assert [(run.command, run.said) for run in ran if run.code] == []
    said = {run.command: run.said for run in reversed(ran)}
    assert [(command, said.get(command)) for command, words in SAID.items() if words not in said.get(command, "")] == []


def test_the_commands_of_the_pool_are_run_elsewhere():
    """The commands of the section on worker pools are those that the test of deployments runs."""
    source = (REPOSITORY / "tests" / "end_to_end" / "server" / "test_deployments.py").read_text()
    source = source.replace('"--overwrite", ', "")  # a pool of the test before is there
    words = [command.split() for command in commands(PAGE.partition(POOL)[2])]
    assert len(words) == 3
    for command, *arguments in words:
        assert command == "prefect"
        assert ", ".join(f'"{argument}"' for argument in arguments) in source
