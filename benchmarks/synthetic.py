"""The made-up sets of the paper's Table 1: what a release computes, for both samplers and ε = 0.1, 1, 10 on request.

Trips between the areas of a binary tree of 8 levels (256 areas) and of a random tree of 4 levels with 2 to 10 children
(435 areas, which makes 189,225 leaves): all leaves, half of them, and one in a hundred have people, Pareto many. The
paper does not say which Pareto; shape 2 and scale 5 give two million people on the complete random set. From the table
in memory to the released levels in memory, one thread (`compute.release`), δ = 10⁻⁸, lemma. The paper's code was run
elsewhere, once: those seconds are given facts.
"""

import argparse

import numpy as np
from compute import axis_of, measurements, samplers, trips_tree, typical
from results import save

from tasks.tree.axis import Axis

DENSITIES = {"complete": 1.0, "dense": 0.5, "sparse": 0.01}
PAPER_SECONDS = {"random complete": 181.0, "random sparse": 9.6}  # its code at ε = 1, on another machine
LEVELS, AREAS = 4, 435  # of the random tree
SEED = 2025


def binary_axis() -> Axis:
    """Return 8 levels of two children each."""
    return axis_of("binary", [np.repeat(np.arange(2**level), 2) for level in range(8)])


def random_axis(random: np.random.Generator) -> Axis:
    """Return the first random tree, of 2 to 10 children everywhere, that has the paper's number of areas."""
    while True:
        parents = [np.zeros(random.integers(2, 11), dtype=np.int64)]
        while len(parents) < LEVELS:
            above = len(parents[-1])
            parents.append(np.repeat(np.arange(above), random.integers(2, 11, size=above)))
        if len(parents[-1]) == AREAS:
            return axis_of("random", parents)


def main() -> None:
    """Release every set with every sampler, and print and keep what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sampler", choices=("opendp", "table", "both"), default="both")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    arguments = parser.parse_args()
    random, rows = np.random.default_rng(SEED), []
    for kind, axis in (("binary", binary_axis()), ("random", random_axis(random))):
        tree, areas = trips_tree(axis), axis.areas(axis.depth)
        for density, share in DENSITIES.items():
            leaves = np.sort(random.choice(areas**2, round(share * areas**2), replace=False))
            people = (5 * (1 + random.pareto(2.0, len(leaves)))).astype(np.int64)
            for epsilon in arguments.epsilon:
                for name, sampler in samplers(arguments.sampler).items():
                    budget = measurements(tree.depth, epsilon)
                    done = typical(name, tree, np.divmod(leaves, areas), people, budget, sampler)
                    row = {"set": f"{kind} {density}", "leaves": len(leaves), "epsilon": epsilon, "sampler": name}
                    row |= {"seconds": done.seconds, "cpu_seconds": done.cpu_seconds, "cells": done.cells}
                    row |= {"rooms": dict(done.rooms), "peak_bytes": done.peak_bytes}
                    if epsilon == 1.0 and row["set"] in PAPER_SECONDS:
                        row["paper_seconds"] = PAPER_SECONDS[row["set"]]
                    rows.append(row)
                    print(told(row), flush=True)
    save("synthetic", rows)


def told(row: dict) -> str:
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
