"""Work out on paper what ten billion cells would take, from how the releases of made-up nations grow.

Each nation has a share of Italy's flows and people (`italy.py`), and is released down to sections at ε = 10 by `trellis release`, and
verified. What a cell more takes is the difference of the largest and the smallest nation, divided by the difference of their cells; ten
billion cells take what the largest nation takes, and that for every cell more. So it is a straight line through two measured points, drawn
a long way on: it says which order of magnitude to expect, and no more. The serial seconds are those of `serial.py`. OpenDP's sampler is
timed by itself, since its seconds a cell do not depend on the size.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from threading import Event, Thread

import numpy as np
from italy import folder_of
from nation import Peak, run, serial, write_spec
from results import FOLDER, markdown, save

from tasks.laws.gaussian import GAUSSIAN

CELLS = 10**10
EPSILON, SAMPLER, MECHANISM = 10.0, "table", "inftda_reconciled"
SIGMA = 3.2  # of a level of such a nation at ε = 10
DRAWS = 200_000  # by OpenDP's sampler
CORES = (2, 8, 16, 64)
HOUR = 3600.0
LOOK_EVERY = 0.5  # seconds, at the size of a folder


@dataclass(frozen=True, slots=True)
class Taken:
    """What a release of a size took, or would take.

    Attributes:
        cells: measured, of all levels.
        rows: published, of all levels.
        cpu: CPU seconds of all threads of the release.
        serial: of these, the ones that pass while at most one thread runs.
        verify: CPU seconds of `trellis verify`.
        home: the most bytes that TRELLIS_HOME had.
        published: bytes of the published folder.
        memory: the most bytes that release and verify held.
    """

    cells: float
    rows: float
    cpu: float
    serial: float
    verify: float
    home: float
    published: float
    memory: float

    @classmethod
    def on_the_line(cls, one: "Taken", other: "Taken", cells: float) -> "Taken":
        """Return what so many cells take on the straight line through two releases."""
        further = (cells - other.cells) / (other.cells - one.cells)
        names = (field.name for field in fields(cls))
        values = {name: getattr(other, name) + further * (getattr(other, name) - getattr(one, name)) for name in names}
        return cls(**values)

    def wall(self, cores: int) -> float:
        """Return the seconds that the release takes on some cores at best: the serial ones, and a share of all others."""
        return self.serial + (self.cpu - self.serial) / cores


class Size:
    """The most bytes that a folder had at once, symbolic links and what vanishes meanwhile left out."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bytes = folder, 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the folder while something is done."""
        done = Event()
        thread = Thread(target=self._look, args=[done], daemon=True)
        thread.start()
        yield
        done.set()
        thread.join()

    def _look(self, done: Event) -> None:
        while not done.wait(LOOK_EVERY):
            self.bytes = max(self.bytes, size_of(self.folder))


def size_of(folder: Path) -> int:
    """Return the bytes of the files below a folder."""
    found = 0
    for above, _, files in os.walk(folder):
        for file in files:
            try:
                found += Path(above, file).stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue  # it has just been removed
    return found


def take(share: float) -> Taken:
    """Release and verify a nation, and return what that took."""
    part = serial(share, EPSILON, SAMPLER, MECHANISM, os.cpu_count() or 1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        spec = write_spec(Path(folder), folder_of(share), EPSILON, SAMPLER, mechanism=MECHANISM)
        peak, size = Peak(), Size(Path(folder) / "home")
        with peak.watched():
            with size.watched():
                answer, _ = run("release", spec)
            before = os.times()
            run("verify", answer["folder"])
            after = os.times()
        verify = after.children_user - before.children_user + after.children_system - before.children_system
        levels = answer["levels"]
        return Taken(
            cells=sum(level["cells"] for level in levels),
            rows=sum(level["nonzero"] for level in levels),
            cpu=part.cpu,
            serial=part.serial,
            verify=verify,
            home=size.bytes,
            published=size_of(Path(answer["folder"])),
            memory=peak.bytes,
        )


def opendp_seconds() -> float:
    """Return the CPU seconds that OpenDP's sampler takes for a cell."""
    draw, nothing = GAUSSIAN.samplers["opendp"].draw, np.zeros(DRAWS, dtype=np.int64)
    began = time.process_time()
    draw(nothing, SIGMA)
    return (time.process_time() - began) / DRAWS


def table(taken: Sequence[Taken]) -> str:
    """Return releases as a table, the last of which is on paper."""
    head = ["cells", "rows", "CPU s", "serial s", "verify, CPU s", "TRELLIS_HOME, GB", "published, GB", "memory, GB"]
    rows = [head, ["---:"] * len(head)]
    for of in taken:
        sizes = (f"{size / 1e9:.2f}" for size in (of.home, of.published, of.memory))
        rows.append(
            [f"{of.cells:,.0f}", f"{of.rows:,.0f}", f"{of.cpu:,.1f}", f"{of.serial:,.1f}", f"{of.verify:,.1f}", *sizes]
        )
    return markdown(rows)


def main() -> None:
    """Measure nations, and print what ten billion cells would take, with the arithmetic."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shares", type=float, nargs=2, default=[0.1, 0.3], help="of Italy's flows, the smaller first")
    arguments = parser.parse_args()
    one, other = (take(share) for share in arguments.shares)
    paper = Taken.on_the_line(one, other, CELLS)
    save("ten-billion", [{field.name: getattr(of, field.name) for field in fields(Taken)} for of in (one, other)])
    print(table([one, other, paper]))
    a_cell = (other.cpu - one.cpu) / (other.cells - one.cells)
    print(
        f"CPU: {other.cpu:.1f} s + {CELLS - other.cells:,.0f} cells * {a_cell * 1e6:.2f} µs = {paper.cpu / HOUR:.1f} h, of them serial {paper.serial / HOUR:.2f} h"
    )
    print("release: " + ", ".join(f"{paper.wall(cores) / HOUR:.1f} h on {cores} cores" for cores in CORES))
    drawn = opendp_seconds() * CELLS
    whole = [paper.wall(cores) + drawn / cores for cores in CORES]
    print(
        f"OpenDP's sampler: {CELLS:,} cells * {drawn / CELLS * 1e6:.1f} µs = {drawn / HOUR:.0f} h of CPU; release "
        + ", ".join(f"{hours / HOUR:.1f} h on {cores}" for hours, cores in zip(whole, CORES, strict=True))
        + f" cores; at most {(paper.cpu + drawn) / paper.serial:.0f} times faster on any number"
    )


if __name__ == "__main__":
    main()
