"""The command line as a user runs it: in a process of its own, warm or cold, beneath a Prefect server."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from tests.support.server import Prefect
from tests.support.spec import SPEC
from tests.support.warm import run_warm

TRELLIS = Path(sys.executable).with_name("trellis")
REPOSITORY = Path(__file__).parents[2]
PATIENCE = 240.0  # seconds for one command, which takes a few


@dataclass(frozen=True)
class Said:
    """What a command said, and the code with which it ended."""

    code: int
    stdout: str
    stderr: str

    def json(self):
        """Return the one JSON object on stdout, having checked that nothing else is there."""
        answer = json.loads(self.stdout)
        assert self.stdout.count("\n") == 1
        return answer


@dataclass(frozen=True)
class User:
    """Somebody with a folder of `data`, `spec.yaml`, the store `home` and what is published, `out`, and the command line."""

    folder: Path
    prefect: Prefect

    @property
    def environment(self):
        """What commands see: nothing of the Prefect or the Trellis of whoever runs the tests, and a narrow terminal."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "TRELLIS_"))}
        place = {"HOME": str(self.folder), "TRELLIS_HOME": str(self.folder / "home"), "COLUMNS": "80"}
        return {**own, **self.prefect.environment, **place}

    def spec(self, file="spec.yaml", /, **sections):
        """Write a spec with some keys, or keys of its sections, changed; return its file."""
        keys = dict(SPEC)
        for section, value in sections.items():
            keys[section] = {**keys.get(section, {}), **value} if isinstance(value, Mapping) else value
        (self.folder / file).write_text(yaml.safe_dump(keys))
        return file

    def start(self, *arguments, **variables):
        """Start a command in the folder."""
        command, environment, pipe = [str(TRELLIS), *arguments], self.environment | variables, subprocess.PIPE
        run = partial(subprocess.Popen, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        return run(command, cwd=self.folder, env=environment)

    def run(self, *arguments, **variables):
        """Run a command in the folder, to its end: warm, or cold where variables change what is read at a start."""
        if variables:
            return self.run_cold(*arguments, **variables)
        return Said(*run_warm(arguments, self.environment, self.folder, PATIENCE))

    def run_cold(self, *arguments, **variables):
        """Run a command in the folder, to its end, as a shell starts it."""
        with self.start(*arguments, **variables) as process:
            try:
                stdout, stderr = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        return Said(process.returncode, stdout, stderr)
