"""Mutants, faults that are put into a copy of the code one at a time: `make mutants` runs them all, `python -m tests.support.mutants WORD` those of a file or test."""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "mutants.toml"
COPIED = "docs", "deployments", "flows", "storage", "tasks", "tests", "pyproject.toml", "README.md", "trellis.py"
LONGEST = 300  # seconds that a test may take; a mutant with which it never ends is not noticed, only waited for

ANY, FAST = "", "not thorough and not audit and not crash and not cluster"  # marks of any test, of those of `make test`
FAILED = 1  # the exit code of pytest where tests ran and some failed


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: what it replaces in a file, where that occurs once, and the test that notices it, as pytest names it."""

    file: str
    text: str
    replacement: str
    test: str
    thorough: str = ""  # why no test of `make test` notices it, where only one of `make test-all` does

    def __str__(self):
        return f"{self.file}: {self.text} -> {self.replacement or '(nothing)'}"

    def put_into(self, root):
        """Return the text of the file with the fault, which must occur in it exactly once."""
        source = (root / self.file).read_text(encoding="utf-8")
        if (times := source.count(self.text)) != 1:
            raise ValueError(f"{self.file} must contain {self.text!r} once, got {times} times.")
        return source.replace(self.text, self.replacement)


def listed_mutants():
    """Return the mutants of tests/mutants.toml."""
    return [Mutant(**mutant) for mutant in tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]]


def passes(root, tests, marks, *, writes_bytecode):
    """Return whether tests with some marks pass in a copy of the code, and what pytest has said; raise RuntimeError where it cannot tell."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "" if writes_bytecode else "1"}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-p", "no:cacheprovider", "-m", marks, *tests]
    timeout = LONGEST * len(tests)
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError("the test does not end") from None
    if done.returncode not in {0, FAILED}:
        raise RuntimeError(f"pytest ends with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0, done.stdout


def noticed(mutant, root):
    """Return whether the test of a mutant fails in a copy of the code with it; the copy is as before afterwards."""
    path = root / mutant.file
    sound, faulty = path.read_bytes(), mutant.put_into(root)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)  # it may have the faulty one's length and second
    path.write_text(faulty, encoding="utf-8")
    try:
        return not passes(root, [mutant.test], ANY if mutant.thorough else FAST, writes_bytecode=False)[0]
    finally:
        path.write_bytes(sound)


def run(mutants, jobs):
    """Run the tests without mutants, then each test with its mutant; return how many mutants are not noticed."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies = [Path(folder) / str(number) for number in range(jobs)]
        copies[0].mkdir()
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, copies[0] / name)
        tests = sorted({mutant.test for mutant in mutants})
        is_sound, said = passes(copies[0], tests, ANY, writes_bytecode=True)
        if not is_sound:
            print(f"{said}\nA test fails without any mutant.", flush=True)  # noqa: T201
            return len(mutants)
        print(f"{len(tests)} tests pass without mutants.", flush=True)  # noqa: T201
        free = SimpleQueue[Path]()
        free.put(copies[0])
        for other in copies[1:]:
            free.put(Path(shutil.copytree(copies[0], other)))

        def try_one(mutant):
            begun, root = time.monotonic(), free.get()
            try:
                is_noticed, why = noticed(mutant, root), ""
            except (RuntimeError, ValueError) as fault:
                is_noticed, why = False, f" ({fault})"
            finally:
                free.put(root)
            word = "killed  " if is_noticed else "SURVIVES"
            print(f"{word} {time.monotonic() - begun:4.1f} s  {mutant}  [{mutant.test}]{why}", flush=True)  # noqa: T201
            return is_noticed

        survivors = len(mutants) - sum(pool.map(try_one, mutants))
    print(f"{len(mutants)} mutants, {len(mutants) - survivors} killed, {survivors} not.", flush=True)  # noqa: T201
    return survivors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Put faults into a copy of the code; the test of each must fail.")
    parser.add_argument("word", nargs="?", default="", help="only mutants whose file or test contains it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many run at once (default: %(default)s)")
    asked = parser.parse_args()
    chosen = [mutant for mutant in listed_mutants() if asked.word in f"{mutant.file} {mutant.test}"]
    sys.exit(min(run(chosen, asked.jobs), 1) if chosen else f"No mutant of {LIST} contains {asked.word}.")
