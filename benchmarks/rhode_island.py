"""Release Rhode Island down to the block, as a user does and with a stop-watch around OpenDP's draws.

It prints cells, thread time per cell in each room, the share of the sampler, wall seconds and the peak memory of the command. It
needs TRELLIS_DATA, the folder that contains lodes_ri_2019/.
"""

import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import numpy as np
import yaml

SPEC = Path(__file__).parent.parent / "deployments/specs/rhode-island.yaml"


class StopWatch:
    """A sampler that does what another does, and adds up the thread time that it takes."""

    def __init__(self, sampler: Callable[[np.ndarray, float], np.ndarray]) -> None:
        self.sampler, self.seconds, self.lock = sampler, 0.0, Lock()

    def __call__(self, true_counts: np.ndarray, scale: float) -> np.ndarray:
        """Return what the sampler returns."""
        began = time.thread_time()
        noisy = self.sampler(true_counts, scale)
        with self.lock:
            self.seconds += time.thread_time() - began
        return noisy


def write_spec(folder: Path) -> Path:
    """Write the example spec, down to the block."""
    keys = yaml.safe_load(SPEC.read_text())
    keys["release"]["finest"] = "tabblk2010"
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys))
    return folder / "spec.yaml"


def thread_times(spec: Path) -> None:
    """Make the release with the plain driver and print thread time per cell."""
    from flows.planning.plan import make_plan
    from flows.run.driver import make_release
    from flows.run.reservation import new_release
    from flows.run.runner import report_nothing, submit_to
    from flows.specification.file import load_spec
    from storage.database.connections import store
    from storage.releases.shards import list_shards
    from tasks.laws.gaussian import GAUSSIAN
    from tasks.laws.law import Sampling
    from tasks.mechanisms import MECHANISMS

    watch = StopWatch(GAUSSIAN.samplers["opendp"].draw)
    MECHANISMS["inftda"] = dataclasses.replace(
        MECHANISMS["inftda"], laws={"gaussian": dataclasses.replace(GAUSSIAN, samplers={"opendp": Sampling(watch)})}
    )
    plan = make_plan(load_spec(spec))
    release = new_release(plan)
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        seconds = make_release(plan, release, submit_to(executor), report_nothing)
    with store() as con:
        cells = sum(seal.rows for seal in list_shards(con, release.id)["noisy"].values())
    seconds["noise"] -= watch.seconds
    ours = sum(seconds[room] for room in ("noise", "optimize", "validate"))
    print(f"cells measured: {cells:,}")
    print(f"thread time, OpenDP's draws: {watch.seconds / cells * 1e6:.2f} µs a cell")
    for room, taken in seconds.items():
        print(
            f"thread time, {room}{' without the draws' if room == 'noise' else ''}: {taken / cells * 1e6:.3f} µs a cell"
        )
    print(f"thread time, noise (without the draws), optimize and validate: {ours / cells * 1e6:.2f} µs a cell")


def whole_command(spec: Path) -> None:
    """Run `trellis release` as a user does and print wall seconds and peak memory."""
    command = [Path(sys.executable).parent / "trellis", "release", spec, "--json"]
    done = subprocess.run(command, check=True, capture_output=True)
    answer = json.loads(done.stdout)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"trellis release: {answer['seconds']['total']:.0f} s in all, {peak:.2f} GiB at most in one process")


def main() -> None:
    """Run both, each in a store of its own."""
    for measure in (thread_times, whole_command):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TRELLIS_HOME"] = f"{folder}/home"
            measure(write_spec(Path(folder)))


if __name__ == "__main__":
    main()
