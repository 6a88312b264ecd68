"""Releases that are killed at a moment, and finished."""

import shutil
import signal
from pathlib import Path

from tests.support.launcher import Launcher

ID = "killed"


class Killed:
    """Kills a release of a spec, and finishes it in copies of its store."""

    def __init__(self, launch: Launcher, folder: Path, spec: Path, mechanism: str) -> None:
        self.launch, self.home, self.out, self.spec = launch, folder / "home", folder / "out", spec
        self.mechanism = mechanism

    def kill(self, moment: str) -> None:
        """Kill a release at a moment."""
        options = {"spec": str(self.spec), "output": str(self.out), "release_id": ID}
        assert self.launch.run(self.home, "make", **options, kill_at=moment) == (-signal.SIGKILL, None, False)

    def finish(self) -> dict[int, int]:
        """Finish it, and return how many cells it has drawn of each level."""
        ended = self.launch.run(self.home, "finish", release_id=ID, sampler="opendp", mechanism=self.mechanism)
        assert (ended.code, ended.left) == (0, False)
        return {level: cells for level, _, cells in ended.result}

    def finished_twice(self) -> list[dict[str, bytes]]:
        """Finish it twice, each time from a copy of its store, drawing nothing; return the published tables of both times."""
        copy, tables = self.home.with_name("copy"), []
        shutil.copytree(self.home, copy)
        for _ in range(2):
            assert self.finish() == {}
            files = [*(self.out / ID).rglob("*.parquet"), *(self.out / ID).rglob("*.csv")]
            tables.append({str(file): file.read_bytes() for file in files})
            shutil.rmtree(self.out)
            shutil.rmtree(self.home)
            shutil.copytree(copy, self.home)
        return tables
