"""Measure which part of a release is serial: the CPU seconds of its threads that pass while no other thread of it can run.

The release is made by the plain driver, without Prefect, with a thread per core. Another process looks at its threads every few
milliseconds: how much CPU they have taken since, and how many of them run or wait for a core. A thread that waits for the
interpreter's lock, a disk or another thread does neither. CPU that is taken while at most one thread runs is serial: no number of
cores makes a release faster than all its CPU seconds divided by the serial ones (Amdahl's limit). One thread takes at most as much CPU
as time passes; what is taken beyond that between two looks was taken by several, though one is left at the second look. A thread that
waits for a core counts as running, so other work on the machine makes the share smaller rather than larger: measure on an idle one.
`nation.py` prints it for its releases down to sections.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_EVERY = 0.004  # seconds
BETWEEN = "between stages"


@dataclass(frozen=True, slots=True)
class Look:
    """What the threads of a process have done since the last look.

    Attributes:
        moment: of this look, in seconds of the monotonic clock.
        since: the last look, in seconds.
        cpu: seconds that all threads have taken since the last look.
        running: how many threads run or wait for a core now.
    """

    moment: float
    since: float
    cpu: float
    running: int


@dataclass(frozen=True, slots=True)
class Ran:
    """When a stage ran, in seconds of the monotonic clock."""

    stage: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class SerialPart:
    """What a release took, and how much of it is serial.

    Attributes:
        wall: seconds from the start of its first stage until its books are closed.
        cpu: CPU seconds of all threads in between.
        serial: of these, the ones that passed while at most one thread ran.
        alone: of all, the ones that passed while at most one stage ran, whatever threads that had.
        of_stages: the serial ones by stage, the most first; those of moments at which several stages run count for the first of them.
    """

    wall: float
    cpu: float
    serial: float
    alone: float
    of_stages: dict[str, float]

    @property
    def share(self) -> float:
        """The share of CPU seconds that is serial."""
        return self.serial / self.cpu

    @property
    def limit(self) -> float:
        """How many times faster any number of cores could make the release than one core does."""
        return self.cpu / self.serial


def serial_part(looks: Iterable[Look], release: Ran, stages: list[Ran]) -> SerialPart:
    """Return how much of a release is serial, from looks at its threads, and from when it and its stages ran."""
    cpu = alone = 0.0
    of_stages: dict[str, float] = Counter()
    for look in looks:
        if not release.began <= look.moment <= release.ended:
            continue
        running = [ran.stage for ran in stages if ran.began <= look.moment <= ran.ended]
        cpu += look.cpu
        if len(running) < 2:
            alone += look.cpu
        if look.running < 2:
            of_stages[running[0] if running else BETWEEN] += min(look.cpu, look.since)
    most_first = dict(sorted(of_stages.items(), key=lambda item: -item[1]))
    return SerialPart(release.ended - release.began, cpu, sum(of_stages.values()), alone, most_first)


def looks_at(release: subprocess.Popen) -> Iterator[Look]:
    """Yield looks at the threads of a process until it has ended."""
    clock = (
        ~release.pid << 3
    ) | 2  # which counts the CPU seconds of all threads of that process, as the kernel numbers clocks
    states = dict[str, int]()
    try:
        taken, moment = 0.0, time.monotonic()
        while release.poll() is None:
            time.sleep(LOOK_EVERY)
            try:
                running, cpu, now = _running(release.pid, states), time.clock_gettime(clock), time.monotonic()
            except OSError:
                return  # it has just ended
            yield Look(now, now - moment, cpu - taken, running)
            taken, moment = cpu, now
    finally:
        for state in states.values():
            os.close(state)


def _running(process: int, states: dict[str, int]) -> int:
    """Return how many threads of a process run or wait for a core.

    Args:
        process: its number.
        states: per thread, its open file of the kernel's that tells; it is opened once, so that looking takes little time.
    """
    running = 0
    for thread in Path(f"/proc/{process}/task").iterdir():
        try:
            if thread.name not in states:
                states[thread.name] = os.open(thread / "stat", os.O_RDONLY)
            running += os.pread(states[thread.name], 256, 0).rpartition(b") ")[2].startswith(b"R")
        except OSError:  # it has just ended
            if thread.name in states:
                os.close(states.pop(thread.name))
    return running


def measure(spec: Path, cores: int) -> SerialPart:
    """Make the release of a spec in a process of its own, on some of the cores, and return how much of it is serial."""
    stages = spec.with_name("stages.json")
    with subprocess.Popen([sys.executable, __file__, spec, stages, "--cores", str(cores)]) as release:
        looks = list(looks_at(release))
    if release.returncode:
        sys.exit(f"The release of {spec} failed.")
    whole, *parts = (Ran(*ran) for ran in json.loads(stages.read_text()))
    return serial_part(looks, whole, parts)


def make(spec: Path) -> list[Ran]:
    """Make the release of a spec by the plain driver, on a thread per core, and return when it ran, and each of its stages."""
    from flows.planning.plan import make_plan
    from flows.run.driver import make_release
    from flows.run.reservation import new_release
    from flows.run.runner import report_nothing
    from flows.specification.file import load_spec
    from tasks.work.capacity import cores

    plan = make_plan(load_spec(spec))
    stages = list[Ran]()

    def noted(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> Any:
        began = time.monotonic()
        try:
            return function(*arguments)
        finally:
            stages.append(Ran(name, began, time.monotonic()))

    with ThreadPoolExecutor(cores()) as threads:

        def submit(stage: Any, *arguments: Any) -> Future:
            named = [part for part in arguments[1:3] if isinstance(part, str | int)]
            trunk = " of the trunk" if "trunk" in named else ""
            return threads.submit(noted, stage.fn, stage.name + trunk, arguments)

        began = time.monotonic()
        make_release(plan, new_release(plan), submit, report_nothing)
    return [Ran("release", began, time.monotonic()), *stages]


def main() -> None:
    """Make a release and write when it and its stages ran; `measure` calls it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("spec", type=Path)
    parser.add_argument("stages", type=Path, help="the JSON file to write")
    parser.add_argument("--cores", type=int, required=True)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    arguments.stages.write_text(json.dumps([(ran.stage, ran.began, ran.ended) for ran in make(arguments.spec)]))


if __name__ == "__main__":
    main()
