"""docs/operations.md: each of its commands does what it says there."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.end_to_end.conftest import REPOSITORY, SPEC, TRELLIS, User
from tests.end_to_end.test_operations import SCHEDULE, Up, bring_up, end, states

PAGE = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
POOL = "## With a worker pool"
BY_HAND = "specs/commuting.yaml"


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
    """Run the commands of the page in their order, with Trellis up until the backup."""
    user = settle(tmp_path_factory.mktemp("reader"))
    (user.folder / "specs").mkdir()
    below = {"input": SPEC["input"] | {"table": "../data/trips.csv"}, "output": "../out"}
    below["hierarchy"] = SPEC["hierarchy"] | {"table": "../data/codebook.csv"}
    cheap = below | {"privacy": SPEC["privacy"] | {"epsilon": 0.5}}
    for name, keys in {
        "commuting": {"keep_vault": True},
        "monthly": {"schedule": SCHEDULE | {"until": "2 releases"}},
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
        if command.startswith("tar --create") and up:
            code, said = end(up)
            done.append(Ran("Ctrl-C", code, said))
            up = None
        known = [id_ for id_ in states(user) if id_.startswith("commuting-")]
        environment |= {"ID": known[-1] if known else "", "FAILED": next(iter(series_of(user)), "")}
        process = subprocess.run(  # noqa: S602 (the page's own commands)
            command,
            shell=True,
            cwd=user.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
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


def series_of(user: User) -> list[str]:
    """Return the releases of the declared series that wait for their day."""
    return [id_ for id_, state in states(user).items() if id_.startswith("monthly-") and state == "reserved"]


def test_every_command_does_what_it_says(ran: list[Ran]) -> None:
    """No command of the page fails."""
    assert len(ran) > 15
    assert [(run.command, run.said) for run in ran if run.code] == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("trellis up specs", "2 releases, the last one monthly-2"),
        ("trellis plan specs/monthly.yaml", "declared and reserved"),
        (f"trellis release {BY_HAND} --dry-run", "rehearsed"),
        (f"trellis release {BY_HAND}", "published"),
        ('trellis rerun "$ID"', "is published already"),
        ('trellis show "$ID" --spec', "keep_vault: true"),
        ('trellis abandon "$FAILED"', "abandoned"),
        ("trellis audit", "audited"),
        ('trellis verify out/"$ID"', "verified"),
        ("trellis clean", "freed"),
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
    source = (REPOSITORY / "tests" / "end_to_end" / "test_deployments.py").read_text()
    words = [command.split() for command in commands(PAGE.partition(POOL)[2])]
    assert len(words) == 3
    for command, *arguments in words:
        assert command == "prefect"
        assert ", ".join(f'"{argument}"' for argument in arguments) in source
