"""Release a made-up nation of Italy's shape: one size that the paper could release, and one that it could not.

Down to municipalities, it measures computation alone: from the flows between municipalities in memory to the released levels in
memory, with one thread per core (`compute.release`) and both samplers. For all five levels it runs `trellis release` as a user does,
from the Parquet file to the published folder, and `trellis verify` of that folder. It takes wall seconds, the thread seconds of each
room, cells, and the peak memory of the whole tree of processes, including Prefect's server, for release and `verify` each. δ = 10⁻⁸,
substitution, a uniform split; the lemma in memory, the tightest accountant on the command line. `--share 0.01` makes a nation with a
hundredth of the flows. Then it makes the same release by the plain driver on one core and on all, and says how much of it is serial.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread

import repository  # noqa: F401, for tests.support
import yaml
from compute import DELTA, measurements, samplers, typical
from drawn_nation import LEVELS
from italy import folder_of, read
from results import FOLDER, load, machine, save
from serial import SerialPart, measure

TRELLIS = Path(sys.executable).parent / "trellis"
MAX_MEMORY = "1.5GB"  # for the branches in work: the default on a machine of 6 GB
LOOK_EVERY = 0.2  # seconds, at the memory of processes


class Peak:
    """The most memory that this process' children and all below them held at once; shared pages count in each."""

    def __init__(self) -> None:
        self.bytes = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the memory of processes while something is done."""
        done = Event()
        thread = Thread(target=self._look, args=[done], daemon=True)
        thread.start()
        yield
        done.set()
        thread.join()

    def _look(self, done: Event) -> None:
        while not done.wait(LOOK_EVERY):
            self.bytes = max(self.bytes, memory_below(os.getpid()))


def memory_below(root: int) -> int:
    """Return the resident bytes of all processes below one, as /proc tells."""
    parent, resident = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            pages = int((folder / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue  # it has just ended
        resident[int(folder.name)] = pages * os.sysconf("SC_PAGE_SIZE")
    below, found = {root}, {root}
    while found:
        found = {process for process, above in parent.items() if above in found} - below
        below |= found
    return sum(resident.get(process, 0) for process in below - {root})


def municipalities(share: float, epsilons: list[float], wanted: str) -> Iterator[dict]:
    """Release down to municipalities in memory, and yield what it took."""
    tree, records, people = read(folder_of(share)).trips("municipality")
    for epsilon in epsilons:
        for name, sampler in samplers(wanted).items():
            budget = measurements(tree.depth, epsilon)
            done = typical(name, tree, records, people, budget, sampler, os.cpu_count() or 1)
            yield {
                "part": "municipality",
                "share": share,
                "epsilon": epsilon,
                "sampler": name,
                "seconds": done.seconds,
                "cpu_seconds": done.cpu_seconds,
                "cells": done.cells,
                "rooms": dict(done.rooms),
                "peak_bytes": done.peak_bytes,
            }


def sections(share: float, epsilons: list[float], sampler: str, mechanism: str) -> Iterator[dict]:
    """Release and verify all five levels by the command line, and yield what it took."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for epsilon in epsilons:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            spec = write_spec(Path(folder), folder_of(share), epsilon, sampler, mechanism=mechanism)
            peak, peak_of_verify = Peak(), Peak()
            with peak.watched():
                answer, seconds = run("release", spec)
            with peak_of_verify.watched():
                _, verifying = run("verify", answer["folder"])
            size = sum(file.stat().st_size for file in Path(answer["folder"]).rglob("*") if file.is_file())
        one, all_cores = (
            serial(share, epsilon, sampler, mechanism, cores) for cores in (1, len(os.sched_getaffinity(0)))
        )
        yield {
            "part": "section",
            "mechanism": mechanism,
            "share": share,
            "epsilon": epsilon,
            "sampler": sampler,
            "seconds": seconds + verifying,
            "verify_seconds": verifying,
            "cells": sum(level["cells"] for level in answer["levels"]),
            "rooms": {room: taken for room, taken in answer["seconds"].items() if room != "total"},
            "peak_bytes": max(peak.bytes, peak_of_verify.bytes),
            "peak_of_release": peak.bytes,
            "peak_of_verify": peak_of_verify.bytes,
            "published_bytes": size,
            "serial": {"share": all_cores.share, "limit": all_cores.limit, **asdict(all_cores)},
            "one_core_wall": one.wall,
        }


def serial(share: float, epsilon: float, sampler: str, mechanism: str, cores: int) -> SerialPart:
    """Make the release down to sections on some cores by the plain driver, and return how much of it is serial."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        return measure(write_spec(Path(folder), folder_of(share), epsilon, sampler, mechanism=mechanism), cores)


def run(command: str, argument: str | Path) -> tuple[dict, float]:
    """Run `trellis` on something and return its answer and the wall seconds; what it says goes on to the terminal."""
    began = time.monotonic()
    done = subprocess.run([TRELLIS, command, argument, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"trellis {command} failed: {done.stdout}")
    return json.loads(done.stdout), time.monotonic() - began


def write_spec(
    folder: Path, data: Path, epsilon: float, sampler: str, finest: str = LEVELS[-1], mechanism: str = "inftda"
) -> Path:
    """Write a spec down to a level, whose store and output are in a folder, and make that the store."""
    os.environ["TRELLIS_HOME"] = str(folder / "home")
    keys = {
        "name": "italy-like",
        "dataset": "italy-like",
        "input": {"table": str(data / "trips.parquet"), "origin": "home", "destination": "work", "count": "people"},
        "hierarchy": {"table": str(data / "codebook.parquet"), "levels": list(LEVELS)},
        "release": {"tree": "destination", "finest": finest},
        "run": {"max_memory": MAX_MEMORY},
        "mechanism": mechanism,
        "noise": {"sampler": sampler},
        "privacy": {"unit": "one commuter", "neighbours": "substitution", "max_records_per_unit": 1}
        | {"epsilon": epsilon, "delta": DELTA},
        "budget": {"epsilon": epsilon, "delta": DELTA},
        "output": str(folder / "out"),
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys))
    return folder / "spec.yaml"


def main() -> None:
    """Measure both parts, and print and keep what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=("municipality", "section", "both"), default="both")
    parser.add_argument(
        "--sampler", choices=("opendp", "table", "both"), default="both", help="sampler down to municipalities"
    )
    parser.add_argument(
        "--section-sampler", choices=("opendp", "table"), default="table", help="sampler down to sections"
    )
    parser.add_argument("--mechanism", default="inftda", help="of the release down to sections")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--share", type=float, default=1.0, help="share of Italy's flows")
    arguments = parser.parse_args()
    if arguments.part != "section":
        keep("municipality", municipalities(arguments.share, arguments.epsilon, arguments.sampler))
    if arguments.part != "municipality":
        keep("section", sections(arguments.share, arguments.epsilon, arguments.section_sampler, arguments.mechanism))


def keep(part: str, measured: Iterator[dict]) -> None:
    """Print and keep what a part took, each run as soon as it is done, in place of what the same run took before."""
    for row in measured:
        before = load(f"nation-{part}") or {"machine": "", "rows": []}
        others = [other for other in before["rows"] if run_of(other) != run_of(row)]
        save(f"nation-{part}", [*(others if before["machine"] == machine() else []), row])
        rooms = ", ".join(f"{room} {taken:.1f}" for room, taken in row["rooms"].items())
        print(
            f"down to {part}, {row.get('mechanism', 'inftda')}, epsilon {row['epsilon']:g}, {row['sampler']}: {row['cells']:,} cells, {row['seconds']:.1f} s,"
            f" {row['peak_bytes'] / 2**30:.2f} GiB; thread seconds {rooms}",
            flush=True,
        )
        if "serial" in row:
            tell_serial(row)


def run_of(row: dict) -> tuple:
    """Return what tells runs of a part apart."""
    return tuple(row.get(name) for name in ("mechanism", "share", "epsilon", "sampler"))


def tell_serial(row: dict) -> None:
    """Print how much of a release is serial, and what it takes of memory."""
    part, cores = row["serial"], len(os.sched_getaffinity(0))
    most = ", ".join(f"{stage} {taken:.2f}" for stage, taken in part["of_stages"].items() if taken >= 0.01)
    print(
        f"serial: {part['serial']:.2f} of {part['cpu']:.2f} CPU s, {part['share']:.1%}; at most {part['limit']:.1f} times faster on any number"
        f" of cores, {row['one_core_wall'] / part['wall']:.2f} times on {cores} ({row['one_core_wall']:.1f} s to {part['wall']:.1f} s);"
        f" {part['alone'] / part['cpu']:.1%} while at most one stage runs\n  serial CPU s: {most}\n"
        f"memory: release {row['peak_of_release'] / 2**30:.2f} GiB, verify {row['peak_of_verify'] / 2**30:.2f} GiB",
        flush=True,
    )


if __name__ == "__main__":
    main()
