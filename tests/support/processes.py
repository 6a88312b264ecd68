"""The processes of this machine that a test has started, and what they have started, looked up in Linux's /proc."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process that is there: its id, and when it began, since ids come again."""

    id: int
    began: str


def look(process):
    """Return a process and its parent's id, None where it has ended."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else (Process(process, words[19]), int(words[1]))


def all_processes():
    """Return every process with its parent's id."""
    return [found for path in Path("/proc").glob("[0-9]*") if (found := look(int(path.name)))]


def descendants_of(process):
    """Return the processes that a process has started, and theirs."""
    found, parents = all_processes(), {process}
    while more := {child.id for child, parent in found if parent in parents} - parents:
        parents |= more
    return [child for child, _ in found if child.id in parents - {process}]


def processes_of(home):
    """Return the processes that have a store."""
    marks = {f"TRELLIS_HOME={place}{home}" for place in ("", "/./")}
    return [process for process, _ in all_processes() if marks & set(_words(process, "environ"))]


def _words(process, file):
    """Return what a file of a process lists; nothing where it has ended, or is somebody else's."""
    try:
        return Path(f"/proc/{process.id}/{file}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def is_there(process):
    """Return whether a process is still there."""
    found = look(process.id)
    return found is not None and found[0] == process


def command_of(process):
    """Return the command line of a process."""
    return " ".join(_words(process, "cmdline"))


def kill(process):
    """Kill a process, unless it has ended."""
    if is_there(process):
        os.kill(process.id, signal.SIGKILL)


def ran(*command, **options):
    """Run a program to its end, and return its exit code and what it said."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def at_once(code, *arguments):
    """Start a process for each list of arguments, tell all to go once they are ready, and return the words of each."""
    run = partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    children = [run([sys.executable, "-c", code, *of]) for of in arguments]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    return [child.communicate(timeout=240)[0].split() for child in children]
