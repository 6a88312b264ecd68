"""Measure the computation of a release on the made-up sets of the paper's Table 1, for both samplers; on request for ε = 0.1, 1, 10.

The sets have trips between the areas of a binary hierarchy and of a random hierarchy, as `trellis synthesise` draws them. The time
runs from the table in memory to the released levels in memory, on one thread (`compute.release`), with δ = 10⁻⁸ and the lemma. The
seconds of the paper's code come from one run on another machine.
"""

import argparse
from typing import get_args

import numpy as np
from compute import measurements, samplers, table_of, typical
from results import save

from tasks.synthesize.areas import PaperDensity, PaperKind, draw_paper_set

PAPER_SECONDS = {"random complete": 181.0, "random sparse": 9.6}  # its code at ε = 1, on another machine
SEED = 2025


def main() -> None:
    """Release every set with every sampler, and print and keep what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sampler", choices=("opendp", "table", "both"), default="both")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    arguments = parser.parse_args()
    rows = []
    for kind in get_args(PaperKind):
        for density in get_args(PaperDensity):
            tree, leaves, people = table_of(draw_paper_set(kind, density, generator=np.random.default_rng(SEED)))
            for epsilon in arguments.epsilon:
                for name, sampler in samplers(arguments.sampler).items():
                    budget = measurements(tree.depth, epsilon)
                    done = typical(name, tree, leaves, people, budget, sampler)
                    row = {"set": f"{kind} {density}", "leaves": len(people), "epsilon": epsilon, "sampler": name}
                    row |= {"seconds": done.seconds, "cpu_seconds": done.cpu_seconds, "cells": done.cells}
                    row |= {"rooms": dict(done.rooms), "peak_bytes": done.peak_bytes}
                    if epsilon == 1.0 and row["set"] in PAPER_SECONDS:
                        row["paper_seconds"] = PAPER_SECONDS[row["set"]]
                    rows.append(row)
                    print(line_of(row), flush=True)
    save("synthetic", rows)


def line_of(row: dict) -> str:
    """Return a row as a line."""
    line = (
        f"{row['set']}, epsilon {row['epsilon']:g}, {row['sampler']}: {row['cells']:,} cells, {row['cpu_seconds']:.2f} s,"
        f" {row['peak_bytes'] / 2**30:.2f} GiB"
    )
    if "paper_seconds" in row:
        line += f"; the paper's code elsewhere {row['paper_seconds']:g} s, {row['paper_seconds'] / row['cpu_seconds']:.0f} times"
    return line


if __name__ == "__main__":
    main()
