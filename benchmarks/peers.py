"""Compare Trellis with the published package inf-tda 0.1 (with OpenDP 0.12.1), in turn, on the same table.

The table has a million cells in three levels of 100, of which 50,000 are non-zero, drawn at random. Both use the same ε, δ and
accounting (the lemma), a uniform split of ρ, and one replaced record. The time of both runs from the table in memory to the released
table in memory: for inf-tda from a pandas Series of all cells to a Series; for Trellis from columns of the non-zero records, numbered
by the public hierarchy, to columns (`compute.release`), with one thread and with one per core. inf-tda has one thread. The time does
not include loading packages and drawing the table. The benchmark makes an environment of its own in build/peers with pip. It prints
seconds, the ratios pair by pair, and the largest error of each level.
"""

import argparse
import os
import subprocess
import tempfile
import venv
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
from compute import DELTA, axis_of, measurements, release, samplers
from results import save

from tasks.laws.law import Sampler
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree

ENVIRONMENT = Path(__file__).parent.parent / "build" / "peers"
PEER = "inf-tda"
PACKAGES = ("inf-tda==0.1", "opendp==0.12.1")
SHAPE = (100, 100, 100)
NON_ZERO = 50_000
EPSILON = 1.0


def peer_python() -> Path:
    """Return the interpreter of an environment that holds the peer."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "built").exists():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True
        )
        (ENVIRONMENT / "built").touch()
    return python


def draw_table(seed: int) -> np.ndarray:
    """Return the table, int64, of shape SHAPE; counts are long-tailed, and large enough for every upper node to survive."""
    random = np.random.default_rng(seed)
    table = np.zeros(np.prod(SHAPE), dtype=np.int64)
    cells = random.choice(len(table), NON_ZERO, replace=False)
    table[cells] = 20 * (1 + random.pareto(1.5, NON_ZERO))
    return table.reshape(SHAPE)


def run_peer(table: np.ndarray, folder: Path) -> tuple[dict[str, float], np.ndarray]:
    """Return the seconds of inf-tda, and what it has released."""
    done = subprocess.run(peer_command(table, folder), check=True, capture_output=True, text=True, cwd=folder)
    wall, cpu = map(float, done.stdout.split())
    return {"seconds": wall, "cpu_seconds": cpu}, np.load(folder / "released.npy")


def peer_command(table: np.ndarray, folder: Path, areas: np.ndarray | None = None) -> list[str]:
    """Write a table, dense or with the areas of its cells, shape (levels, cells), and return the command that releases it by inf-tda."""
    np.save(folder / "table.npy", table)
    command = [peer_python(), Path(__file__).parent / "inf_tda.py", folder / "table.npy", folder / "released.npy"]
    command += [str(EPSILON), str(DELTA)]
    if areas is not None:
        np.save(folder / "areas.npy", areas)
        command.append(folder / "areas.npy")
    return [*map(str, command)]


def run_trellis(
    tree: Tree, table: np.ndarray, sampler: Sampler, threads: int = 1
) -> tuple[dict[str, float], np.ndarray]:
    """Return the seconds of Trellis, and what it has released."""
    records = np.flatnonzero(table)
    budget = measurements(tree.depth, EPSILON)
    done = release(tree, [records], table.ravel()[records], budget, sampler, threads)
    took = {"seconds": done.seconds, "cpu_seconds": done.cpu_seconds, "cells": done.cells}
    return took, dense(done.frontiers[-1], table.shape)


def dense(finest: Frontier, shape: tuple[int, ...]) -> np.ndarray:
    """Return released cells as a table with its zeros."""
    counts = np.zeros(shape, dtype=np.int64)
    counts.ravel()[finest.areas[0]] = finest.counts
    return counts


def errors(table: np.ndarray, released: np.ndarray) -> list[int]:
    """Return the largest absolute error of each level below the total, coarse to fine."""
    off = released - table
    below = [tuple(range(level, off.ndim)) for level in range(1, off.ndim + 1)]
    return [int(np.abs(off.sum(axis=axes)).max()) for axes in below]


def tree_of(shape: tuple[int, ...]) -> Tree:
    """Return the tree of one axis whose areas all have as many children as the shape says."""
    sizes = np.cumprod(shape)
    axis = axis_of("table", [np.repeat(np.arange(size // b), b) for size, b in zip(sizes, shape, strict=True)])
    return Tree((axis,), (0,) * axis.depth)


def main() -> None:
    """Run the pairs and print and keep what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--sampler", choices=("opendp", "table", "both"), default="both")
    arguments = parser.parse_args()
    tree, rows, pairs = tree_of(SHAPE), [], range(arguments.pairs)
    contestants = list(product(samplers(arguments.sampler).items(), sorted({1, os.cpu_count() or 1})))
    small = np.ones((2, 2), dtype=np.int64)
    for (_, sampler), threads in contestants:
        run_trellis(tree_of(small.shape), small, sampler, threads)  # loads what is loaded lazily, as the peer does
    with tempfile.TemporaryDirectory() as folder:
        for pair, table in zip(pairs, map(draw_table, pairs), strict=True):
            runs = [(PEER, 1, run_peer(table, Path(folder)))]
            for (name, sampler), threads in contestants:
                runs.append((name, threads, run_trellis(tree, table, sampler, threads)))
            for who, threads, (took, released) in runs:
                rows.append({"pair": pair, "who": who, "threads": threads, **took, "errors": errors(table, released)})
                print(f"{who}, {threads} threads: {took['seconds']:.3f} s, errors {rows[-1]['errors']}", flush=True)
            save("peers", rows)
    for ((name, _), threads), unit in product(contestants, ("seconds", "cpu_seconds")):
        times, by_pairs = compare(rows, name, threads, unit)
        print(f"{name}, {threads} threads, {unit}: {times:.1f} times less by medians; by pairs {by_pairs}")


def compare(rows: list[dict], name: str, threads: int, unit: str) -> tuple[float, list[float]]:
    """Return how many times less Trellis takes than the peer: the ratio of medians, and the ratios pair by pair."""
    peer = [row[unit] for row in rows if row["who"] == PEER]
    ours = [row[unit] for row in rows if (row["who"], row["threads"]) == (name, threads)]
    pairs = [round(theirs / own, 1) for theirs, own in zip(peer, ours, strict=True)]
    return median(peer) / median(ours), pairs


if __name__ == "__main__":
    main()
