"""Plan a release over 362,292 areas on each end, and print the seconds and the peak memory that it takes.

The codebook has the public shape of Italy's: 20 regions, 110 provinces, 8,092 municipalities, 16,000 section areas and
362,292 sections. The plan reads nothing of the confidential table, so an empty file takes its place.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

AREAS = {"region": 20, "province": 110, "municipality": 8_092, "section_area": 16_000, "section": 362_292}

SPEC = """
name: large
dataset: large
input: {table: trips.csv, origin: home, destination: work}
hierarchy: {table: codebook.parquet, levels: [region, province, municipality, section_area, section]}
release: {tree: destination, finest: section}
mechanism: inftda
privacy: {unit: one trip, neighbours: substitution, max_records_per_unit: 1, epsilon: 1.0, delta: 1.0e-8}
budget: {epsilon: 10.0, delta: 1.0e-7}
"""


def write_codebook(file: Path) -> None:
    """Write a codebook in which every area has a child and the others lie where chance puts them."""
    random = np.random.default_rng(1)
    above = np.arange(AREAS["section"])
    columns = {}
    for level, areas in reversed(AREAS.items()):
        if level != "section":
            first = np.arange(areas)
            others = random.integers(0, areas, above.max() + 1 - areas)
            above = np.sort(np.concatenate((first, others)))[above]
        columns[level] = pl.Series(above).cast(pl.String).str.zfill(6)
    pl.DataFrame(dict(reversed(columns.items()))).write_parquet(file)


def main() -> None:
    """Run `trellis plan` as a user does and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        write_codebook(Path(folder) / "codebook.parquet")
        (Path(folder) / "trips.csv").write_text("home,work\n")
        (Path(folder) / "spec.yaml").write_text(SPEC)
        command = [Path(sys.executable).parent / "trellis", "plan", Path(folder) / "spec.yaml", "--json"]
        began = time.monotonic()
        done = subprocess.run(
            command, check=True, capture_output=True, env=os.environ | {"TRELLIS_HOME": f"{folder}/home"}
        )
        seconds = time.monotonic() - began
    finest = json.loads(done.stdout)["levels"][-1]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"plan over {AREAS['section']:,} areas, {finest['possible_cells']:,} pairs: {seconds:.1f} s, {peak:.2f} GiB")


if __name__ == "__main__":
    main()
