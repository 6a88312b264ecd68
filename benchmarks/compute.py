"""The mechanism over arrays alone: from a table in memory to a released table in memory.

Grow the true tree, then level by level expand, measure, optimise and keep what is positive. These are the functions that the
stages call, with nothing around them: no vault, no seals, no store, no files, no Prefect.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.trials.in_memory import public_table
from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, Measurement, uniform
from tasks.accounting.sensitivity import sensitivity_of
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelCost, LevelNoise, Sampler
from tasks.noise.measure import Truth, TruthInMemory, measure, true_counts_below
from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.synthesize.areas import Country, extend_codes
from tasks.tree.axis import Axis, IntArray, axis_from_codebook
from tasks.tree.branches import BRANCH_CELLS
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks, expand, keep_positive
from tasks.tree.order import Tree, alternate

DELTA = 1e-8
ONE_MOVED = sensitivity_of("substitution", 1, is_root=False)  # by what a record that is replaced moves a level
RUNS = {"opendp": 1, "table": 5}  # of which the median counts: what takes a tenth of a second drifts


@dataclass(slots=True)
class Compute:
    """What one release in memory came to.

    Attributes:
        frontiers: the released nodes of every level from 0 on.
        cells: measured, of all levels.
        rooms: CPU seconds of all threads in each room: tree, noise, optimize.
        seconds: wall seconds of it all.
        peak_bytes: the most memory that the process held, with the interpreter and the table.
    """

    frontiers: list[Frontier] = field(default_factory=list)
    cells: int = 0
    rooms: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all rooms together."""
        return sum(self.rooms.values())


def samplers(wanted: str) -> dict[str, Sampler]:
    """Return the samplers named `opendp`, `table` or `both`."""
    return {name: sampling.draw for name, sampling in GAUSSIAN.samplers.items() if wanted in {name, "both"}}


def measurements(levels: int, epsilon: float, accountant: str = "lemma") -> tuple[Measurement, ...]:
    """Return what (ε, 10⁻⁸) buys at each of some levels, under substitution of one record and a uniform split."""
    allocation = Allocation(uniform(levels), (2,) * levels)
    return allocation.measurements(ACCOUNTANTS[accountant].largest_rho(allocation, epsilon, DELTA))


def axis_of(name: str, parents: Sequence[IntArray]) -> Axis:
    """Return the axis in which parents[k][a] is the area above area a of level k + 1."""
    path = [pl.Series("", [""])]
    for level, parent in enumerate(parents, start=1):
        path = extend_codes(path, f"level_{level}", parent, 1)
    return axis_from_codebook(name, pl.DataFrame(path[1:]))


def trips_tree(axis: Axis) -> Tree:
    """Return the destination tree over one axis for both ends."""
    ends = (replace(axis, name=role, role=role) for role in ("origin", "destination"))
    return Tree(tuple(ends), alternate((axis.depth, axis.depth), 1))


def table_of(country: Country) -> tuple[Tree, tuple[IntArray, ...], IntArray]:
    """Return the destination tree of a made-up country, and its trips: areas per end, and people."""
    axis = axis_from_codebook("area", country.codebook)
    numbers = axis.codes[-1]  # sorted, as every code begins with the one above
    ends = tuple(numbers.search_sorted(country.trips[end]).to_numpy().astype(np.int64) for end in ("home", "work"))
    return trips_tree(axis), ends, country.trips["people"].to_numpy()


def release(
    tree: Tree,
    leaf_areas: Sequence[IntArray],
    true_counts: IntArray,
    budget: Sequence[Measurement],
    sampler: Sampler,
    threads: int = 1,
) -> Compute:
    """Release a table below its exact total; levels are walked in chunks, as the stages do.

    Args:
        tree: the axes and their order.
        leaf_areas: per axis, int64, shape (records,), no combination twice.
        true_counts: int64, shape (records,), > 0.
        budget: the measurement of each level from 1 on.
        sampler: the noise.
        threads: that share the chunks of a level.
    """
    done, began = Compute(), time.perf_counter()
    _forget_peak()
    with _room(done.rooms, "tree"):
        truth = TruthInMemory(public_table(tree, leaf_areas, true_counts).levels)
    root = truth.levels[0]
    done.frontiers.append(Frontier(0, root.areas, root.true_counts))
    with ThreadPoolExecutor(threads) as pool:
        for terms in budget:
            parents = done.frontiers[-1]
            fan_out = cell_counts(tree, parents)
            cells = int(fan_out.sum())
            most = min(CHUNK_CELLS, max(BRANCH_CELLS, cells // (4 * threads)))
            walk = partial(_step, tree, truth, terms, sampler)
            steps = list(pool.map(walk, [parents[nodes] for nodes in chunks(fan_out, most)]))
            done.frontiers.append(_joined([frontier for frontier, _ in steps]))
            done.rooms.update(sum((rooms for _, rooms in steps), Counter()))
            done.cells += cells
    done.seconds, done.peak_bytes = time.perf_counter() - began, _peak()
    return done


def typical(name: str, *arguments: Any) -> Compute:
    """Return the run of median seconds out of `RUNS` with a sampler of this name, without what it has released.

    Args:
        name: of the sampler.
        arguments: of `release`.
    """
    runs = []
    for _ in range(RUNS[name]):
        runs.append(release(*arguments))
        runs[-1].frontiers.clear()
    return sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]


def _step(
    tree: Tree, truth: Truth, terms: Measurement, sampler: Sampler, parents: Frontier
) -> tuple[Frontier, Counter[str]]:
    """Return what is released below the nodes of a chunk, and the CPU seconds of each room."""
    rooms: Counter[str] = Counter()
    with _room(rooms, "noise"):
        cells = expand(tree, parents)
        [true_counts] = true_counts_below(truth, tree, parents)
        moved = replace(ONE_MOVED, l2_squared=terms.l2_sensitivity_squared)
        noisy = measure(true_counts, LevelNoise(GAUSSIAN, terms.sigma), LevelCost(terms.rho), moved, sampler)
    with _room(rooms, "optimize"):
        frontier = keep_positive(cells, nearest_in_chebyshev(noisy, cells.first_cell, parents.counts))
    return frontier, rooms


def _joined(parts: Sequence[Frontier]) -> Frontier:
    """Return neighbouring slices of one level, at least one, as one frontier."""
    areas = tuple(np.concatenate(columns) for columns in zip(*(part.areas for part in parts), strict=True))
    return Frontier(parts[0].level, areas, np.concatenate([part.counts for part in parts]))


@contextmanager
def _room(rooms: Counter[str], name: str) -> Iterator[None]:
    """Add the CPU seconds that this thread spends inside to a room."""
    began = time.thread_time()
    yield
    rooms[name] += time.thread_time() - began


def _forget_peak() -> None:
    """Let Linux count the peak memory of this process from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
