"""The command line as a user runs it: in a process of its own, beneath a Prefect server that all of them share."""

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flows.server.process import prefect_server
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country

TRELLIS = Path(sys.executable).with_name("trellis")
REPOSITORY = Path(__file__).parents[2]

SPEC = {
    "name": "synthetic",
    "dataset": "synthetic-country",
    "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "province", "municipality"]},
    "release": {"tree": "destination", "finest": "municipality"},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one commuter",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 4.0,
        "delta": 1.0e-8,
        "accountant": "zcdp",  # pld takes seconds in every process, and Rhode Island's release has it
    },
    "budget": {"epsilon": 10.0, "delta": 1.0e-7},
    "output": "out",
}


@dataclass(frozen=True)
class Said:
    """What a command said, and the code with which it ended."""

    code: int
    stdout: str
    stderr: str

    def json(self) -> dict[str, Any]:
        """Return the one JSON object on stdout, having checked that nothing else is there."""
        answer = json.loads(self.stdout)
        assert isinstance(answer, dict)
        assert self.stdout.count("\n") == 1
        return answer


@dataclass(frozen=True)
class Prefect:
    """A Prefect server, or what one has left behind.

    Attributes:
        home: its PREFECT_HOME.
        environment: makes commands use it; empty where each starts its own.
    """

    home: Path
    environment: Mapping[str, str]

    def rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Return what its database answers."""
        with closing(sqlite3.connect(f"file:{self.home}/prefect.db?mode=ro", uri=True)) as con:
            return con.execute(query, values).fetchall()

    def task_runs(self, release_id: str) -> list[tuple[str, str]]:
        """Return name and state of the task runs of a release's flow run."""
        return self.rows(
            "SELECT task_run.name, task_run.state_type FROM task_run JOIN flow_run ON flow_run.id = flow_run_id"
            " WHERE flow_run.name = ?",
            release_id,
        )

    def artifacts(self, release_id: str) -> dict[str, Any]:
        """Return the artifacts of a release, by what they show."""
        key = release_id.lower()
        found = self.rows("SELECT key, data FROM artifact WHERE key LIKE ?", f"{key}-%")
        return {
            name.removeprefix(f"{key}-"): data if isinstance(data, int | float) else json.loads(data)
            for name, data in found
        }

    def parameters(self, release_id: str) -> list[dict[str, Any]]:
        """Return the parameters of the flow runs of a release."""
        found = self.rows("SELECT parameters FROM flow_run WHERE name = ?", release_id)
        return [json.loads(parameters) for (parameters,) in found]


@dataclass(frozen=True)
class User:
    """Somebody with a folder of tables and specs, a store of their own, and the command line.

    Attributes:
        folder: holds `data`, `spec.yaml`, the store `home`, and by default what is published, `out`.
        prefect: the server that the commands use.
    """

    folder: Path
    prefect: Prefect

    @property
    def environment(self) -> dict[str, str]:
        """What commands see: nothing of the Prefect or the Trellis of whoever runs the tests, and a narrow terminal."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "TRELLIS_"))}
        place = {"HOME": str(self.folder), "TRELLIS_HOME": str(self.folder / "home"), "COLUMNS": "80"}
        own.setdefault(
            "MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib")
        )  # its list of fonts, which takes a second
        return {**own, **self.prefect.environment, **place}

    def spec(self, file: str = "spec.yaml", /, **sections: Mapping[str, object] | str | bool) -> str:
        """Write a spec with some keys, or keys of its sections, changed; return its file."""
        keys: dict[str, Any] = dict(SPEC)
        for section, value in sections.items():
            keys[section] = {**keys.get(section, {}), **value} if isinstance(value, Mapping) else value
        (self.folder / file).write_text(yaml.safe_dump(keys))
        return file

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start a command in the folder."""
        return subprocess.Popen(
            [TRELLIS, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **variables: str) -> Said:
        """Run a command in the folder, to its end."""
        with self.start(*arguments, **variables) as process:
            try:
                stdout, stderr = process.communicate(timeout=120)
            finally:
                process.kill()
        return Said(process.returncode, stdout, stderr)


@pytest.fixture(scope="session")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """Hold a Prefect server open for all commands: one for all workers, started by the first that needs it.

    The worker that has started it ends it, once no other one uses it any more.
    """
    together = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        together = together.parent
    known = together / "prefect.json"
    with (together / "users.lock").open("w") as users, ExitStack() as stack:
        with (together / "start.lock").open("w") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            mine = not known.exists()
            shared = stack.enter_context(_started(together / "prefect")) if mine else _read(known)
            known.write_text(json.dumps([str(shared.home), dict(shared.environment)]))
            fcntl.flock(users, fcntl.LOCK_SH)
        yield shared
        fcntl.flock(users, fcntl.LOCK_UN)
        if mine:
            with (together / "start.lock").open("w") as start:
                fcntl.flock(start, fcntl.LOCK_EX)
                known.unlink()
            fcntl.flock(users, fcntl.LOCK_EX)


def _read(known: Path) -> Prefect:
    home, environment = json.loads(known.read_text())
    return Prefect(Path(home), environment)


@contextmanager
def _started(home: Path, **settings: str) -> Iterator[Prefect]:
    """Start a server, with settings of its own and its clients'; this process itself sees nothing of it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            patch.delenv(name)
        before = dict(os.environ)
        os.environ.update(settings)
        with prefect_server(home):
            given = {name: value for name, value in os.environ.items() if before.get(name) != value}
            for name in given:
                os.environ.pop(name)
            os.environ.update({name: before[name] for name in given if name in before})
            yield Prefect(home, given)


@pytest.fixture(scope="session")
def country(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the tables of a small made-up country."""
    folder = tmp_path_factory.mktemp("country")
    drawn = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(7))
    write_country(drawn, folder)
    return folder


@pytest.fixture(scope="session")
def settle(country: Path, prefect: Prefect) -> Callable[[Path], User]:
    """Return what settles a user in a folder, with the tables of the country and a spec, beneath the shared server."""

    def settle_in(folder: Path) -> User:
        user = User(folder, prefect)
        shutil.copytree(country, folder / "data")
        user.spec()
        return user

    return settle_in


@pytest.fixture
def newcomer(tmp_path: Path, settle: Callable[[Path], User]) -> User:
    """Return a user who has not released anything."""
    return settle(tmp_path)


@pytest.fixture
def loner(newcomer: User) -> User:
    """Return a user without a server, who has had one before: its database is there, and need not be made again."""
    home = newcomer.folder / "home" / "prefect"
    home.parent.mkdir(mode=0o700)
    copy_database(newcomer.prefect, home)
    return replace(newcomer, prefect=Prefect(home, {}))


def copy_database(prefect: Prefect, home: Path) -> None:
    """Copy a server's database to a new PREFECT_HOME, in which it need not be made again."""
    home.mkdir()
    with (
        closing(sqlite3.connect(f"file:{prefect.home}/prefect.db?mode=ro", uri=True)) as con,
        closing(sqlite3.connect(home / "prefect.db")) as copy,
    ):
        con.backup(copy)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of the real tables, from TRELLIS_DATA or beside the repository."""
    folder = Path(os.environ.get("TRELLIS_DATA") or REPOSITORY.parent / "shared" / "data").absolute()
    if not (folder / "lodes_ri_2019").is_dir():
        pytest.skip(f"no real data: there is no {folder / 'lodes_ri_2019'} (TRELLIS_DATA names another folder)")
    return folder
