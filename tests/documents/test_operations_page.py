"""docs/operations.md: each of its commands does what it says there."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.support.spec import SPEC
from tests.support.up import SCHEDULE, Up, bring_up, end, states
from tests.support.user import REPOSITORY, TRELLIS, User

PAGE = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
POOL = "## With a worker pool"
BY_HAND = "specs/commuting.yaml"
STOPPED = {  # the specs whose releases are stopped on their way, by the command that goes on with them or ends them
    'trellis rerun "$ID"': "disturbed",
    'trellis rerun "$ID" --branch trunk': "hindered",
    'trellis abandon "$FAILED"': "hopeless",
}


class Ran(NamedTuple):
    """A command of the page, as it ran."""

    command: str
    code: int
    said: str


def commands(text: str) -> list[str]:
    """Return the commands of a page: lines that are indented by four spaces, outside of fences."""
    unfenced = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^    (\S.*)$", unfenced, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], User]) -> Iterator[list[Ran]]:
    """Run the commands of the page in their order, with Trellis up until the restore."""
    user = settle(tmp_path_factory.mktemp("reader"))
    (user.folder / "specs").mkdir()
    below = {"input": SPEC["input"] | {"table": "../data/trips.csv"}, "output": "../out"}
    below["hierarchy"] = SPEC["hierarchy"] | {"table": "../data/codebook.csv"}
    cheap = below | {"privacy": SPEC["privacy"] | {"epsilon": 0.5}}
    for name, keys in {
        "commuting": {"keep_vault": True},
        "monthly": {"schedule": SCHEDULE | {"until": "2 releases"}},
        **{name: {"schedule": SCHEDULE} for name in STOPPED.values()},
    }.items():
        (user.folder / "specs" / f"{name}.yaml").write_text(yaml.safe_dump(SPEC | cheap | {"name": name} | keys))
    environment = user.environment | {"HOME": str(user.folder), "PATH": f"{TRELLIS.parent}:{os.environ['PATH']}"}
    environment["TRELLIS_HOME"] = str(user.folder / "trellis-home")
    user = _WithHome(user.folder, user.prefect)
    up: Up | None = None
    done = []
    for command in commands(PAGE.partition(POOL)[0]):
        if command.startswith("export "):
            continue
        if command.startswith("trellis up"):
            assert command == "trellis up specs --port 4200"
            up = bring_up(user)
            done.append(Ran(command, 0, up.said))
            continue
        if command.startswith("TRELLIS_HOME=$PWD/restored trellis restore") and up:
            code, said = end(up)
            done.append(Ran("Ctrl-C", code, said))
            up = None
        if command == next(iter(STOPPED)) and up:
            stop_releases(up)
        known = states(user)
        of_command = STOPPED.get(command, "commuting")
        release_id = next((id_ for id_ in reversed(known) if id_.startswith(f"{of_command}-")), "")
        day = next((id_ for id_, state in known.items() if id_.startswith("monthly-") and state == "reserved"), "")
        environment |= {"ID": release_id, "FAILED": release_id, "DAY": day}
        process = subprocess.run(  # noqa: S602 (the page's own commands)
            command,
            shell=True,
            cwd=user.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        done.append(Ran(command, process.returncode, process.stdout + process.stderr))
    try:
        yield done
    finally:
        if up:
            up.process.kill()


class _WithHome(User):
    """A user whose store is where the page says."""

    @property
    def environment(self) -> dict[str, str]:
        """What commands see."""
        return {**super().environment, "TRELLIS_HOME": str(self.folder / "trellis-home")}


def stop_releases(up: Up) -> None:
    """Have releases made that are stopped at level 3, whose shard cannot be written, and take away what is in the way."""
    today = datetime.now(UTC).date().isoformat()
    shards = up.user.folder / "trellis-home" / "shards"
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
def test_every_command_does_what_it_says(ran: list[Ran]) -> None:
    """No command of the page fails."""
    assert len(ran) > 15
    assert [(run.command, run.said) for run in ran if run.code] == []


@pytest.mark.thorough
@pytest.mark.heavy("a server runs, and each command of the page is a process")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("trellis up specs", "2 releases, the last one monthly-2"),
        ("trellis plan specs/monthly.yaml", "declared and reserved"),
        (f"trellis release {BY_HAND} --dry-run", "rehearsed"),
        (f"trellis release {BY_HAND}", "published"),
        ('trellis rerun "$DAY"', "published"),
        ('trellis rerun "$ID"', " published\n\n level"),
        ('trellis rerun "$ID" --branch trunk', " published\n\n level"),
        ('trellis show "$ID" --spec', "keep_vault: true"),
        ('trellis abandon "$FAILED"', "abandoned"),
        ("trellis audit", "audited"),
        ('trellis verify out/"$ID"', "verified"),
        ("trellis clean", "freed"),
        ("trellis clean --runs-older-than 90d", "0 runs deleted"),
        ("trellis metrics", "trellis_budget_left_epsilon{"),
        ("trellis backup kept", "backed up"),
        ("TRELLIS_HOME=$PWD/restored trellis restore kept", "restored"),
        ('trellis forget "$ID"', "deleted: vault"),
        ("Ctrl-C", "Trellis is down."),
        ("TRELLIS_HOME=$PWD/restored trellis audit out", "audited"),
    ],
)
def test_it_says_what_the_page_promises(ran: list[Ran], command: str, said: str) -> None:
    """What a reader is to see is there."""
    found = [
        run for run in ran if run.command == command or (command == "trellis up specs" and "up specs" in run.command)
    ]
    assert found
    assert said in found[0].said


def test_the_commands_of_the_pool_are_run_elsewhere() -> None:
    """The commands of the section on worker pools are those that the test of deployments runs."""
    source = (REPOSITORY / "tests" / "end_to_end" / "server" / "test_deployments.py").read_text()
    source = source.replace('"--overwrite", ', "")  # a pool of the test before is there
    words = [command.split() for command in commands(PAGE.partition(POOL)[2])]
    assert len(words) == 3
    for command, *arguments in words:
        assert command == "prefect"
        assert ", ".join(f'"{argument}"' for argument in arguments) in source
