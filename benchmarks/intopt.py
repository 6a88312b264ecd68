"""Measure IntOpt on chunks of a million cells, in turn with a version without short cuts that sorts every cell.

For each workload it prints the microseconds of thread time per cell of both (medians) and the median of their ratios, pair by pair.
Both must return the same counts.
"""

import time

import numpy as np

from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.tree.axis import IntArray

CELLS = 1_000_000
PAIRS = 9

Workload = tuple[IntArray, IntArray, IntArray]  # noisy, first_cell, totals


def sort_everything(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
    """Return what `nearest_in_chebyshev` returns, all at once: every cell is sorted, and no parent gets a short cut."""
    starts, fan_out = first_cell[:-1], np.diff(first_cell)
    order = sorted_cells(noisy, fan_out)
    x = noisy[order]

    lift = -((np.add.reduceat(x, starts) - totals) // fan_out)  # L
    bound = np.maximum(np.abs(lift), -x[starts])  # t0
    highest = np.maximum(x + np.repeat(lift, fan_out), 0)
    lowest = np.maximum(x - np.repeat(bound, fan_out), 0)
    beyond = np.add.reduceat(lowest, starts) > totals
    if beyond.any():
        cells, sizes = np.repeat(beyond, fan_out), fan_out[beyond]
        last_bound = np.maximum(bound[beyond], least_bound(x[cells], sizes, totals[beyond]) - 1)
        highest[cells] = np.maximum(x[cells] - np.repeat(last_bound, sizes), 0)
        lowest[cells] = np.maximum(highest[cells] - 1, 0)

    room = highest - lowest
    too_much = np.add.reduceat(highest, starts) - totals
    y = np.empty_like(x)
    y[order] = highest - np.clip(np.repeat(too_much, fan_out) - sums_before(room, starts, fan_out), 0, room)
    return y


def sorted_cells(noisy: IntArray, fan_out: IntArray) -> IntArray:
    """Return the permutation that sorts cells by parent, then noisy count, then cell."""
    least = int(noisy.min())
    count_bits, cell_bits = (int(noisy.max()) - least).bit_length(), len(noisy).bit_length()
    assert len(fan_out).bit_length() + count_bits + cell_bits < 64
    parents = np.repeat(np.arange(len(fan_out)), fan_out)
    key = (((parents << count_bits) | (noisy - least)) << cell_bits) | np.arange(len(noisy))
    key.sort()
    return key & ((1 << cell_bits) - 1)


def least_bound(x: IntArray, fan_out: IntArray, totals: IntArray) -> IntArray:
    """Return, per parent, the least integer t with Σ max(0, x_i − t) ≤ c, from ascending counts."""
    starts = np.cumsum(fan_out) - fan_out
    ends = starts + fan_out
    after = np.add.reduceat(x, starts).repeat(fan_out) - sums_before(x, starts, fan_out)  # P_j
    j = np.repeat(ends, fan_out) - np.arange(len(x))
    above = j * x > after - np.repeat(totals, fan_out)
    above[ends - 1] |= totals == 0
    first_above = ends - np.add.reduceat(above.astype(np.int64), starts)
    return -((totals - after[first_above]) // j[first_above])


def sums_before(values: IntArray, starts: IntArray, fan_out: IntArray) -> IntArray:
    """Return, for each cell, the sum of the values of its parent's earlier cells."""
    before = np.cumsum(values) - values
    return before - np.repeat(before[starts], fan_out)


def lay_out(fan_out: IntArray) -> IntArray:
    """Return first_cell of as many of these parents as there are cells for; the last one takes what remains."""
    first_cell = np.concatenate(([0], np.cumsum(fan_out)))
    return np.append(first_cell[first_cell < CELLS], CELLS)


def sparse(seed: int, fan_out: IntArray, deviation: float) -> Workload:
    """Return parents of 1 to 100 records in at most three of their cells, and released totals that are noisy themselves."""
    random = np.random.default_rng(seed)
    first_cell = lay_out(fan_out)
    parents = len(first_cell) - 1
    records = np.minimum(random.pareto(0.8, parents) + 1, 100).astype(np.int64)
    true_counts = np.zeros(CELLS, dtype=np.int64)
    for part in (records // 2, records // 4, records - records // 2 - records // 4):
        np.add.at(true_counts, first_cell[:-1] + random.integers(0, np.diff(first_cell)), part)
    totals = np.maximum(records + np.rint(random.normal(0, deviation / 4, parents)).astype(np.int64), 1)
    return true_counts + np.rint(random.normal(0, deviation, CELLS)).astype(np.int64), first_cell, totals


def dense(seed: int, fan_out: IntArray, most: int, deviation: float) -> Workload:
    """Return parents whose children have up to so many records each."""
    random = np.random.default_rng(seed)
    first_cell = lay_out(fan_out)
    true_counts = random.integers(0, most, CELLS)
    noisy = true_counts + np.rint(random.normal(0, deviation, CELLS)).astype(np.int64)
    return noisy, first_cell, np.add.reduceat(true_counts, first_cell[:-1])


def workloads() -> dict[str, Workload]:
    """Return chunks as an O/D release has them at ε = 1 (σ of 60 to 190) and ε = 10 (σ of 6 to 19)."""
    random = np.random.default_rng(1)
    long_tailed = np.clip(random.lognormal(np.log(25), 1.0, CELLS // 20), 1, 500).astype(np.int64)
    few = random.integers(2, 5, CELLS // 2, endpoint=True)
    twenty, one = np.full(CELLS // 20, 20), np.ones(CELLS, dtype=np.int64)
    made = {}
    for deviation in (190, 60, 19, 6):
        made[f"about 40 children, long-tailed, mostly empty, sigma {deviation}"] = sparse(2, long_tailed, deviation)
    for deviation in (60, 6):
        made[f"2 to 5 children, mostly empty, sigma {deviation}"] = sparse(3, few, deviation)
        made[f"20 children with large counts, sigma {deviation}"] = dense(4, twenty, 100_000, deviation)
        made[f"1 child, sigma {deviation}"] = dense(5, one, 100, deviation)
    return made


def main() -> None:
    """Print a line per workload."""
    for name, workload in workloads().items():
        assert (nearest_in_chebyshev(*workload) == sort_everything(*workload)).all()
        seconds = np.empty((PAIRS, 2))
        for pair in seconds:
            for side, optimise in enumerate((sort_everything, nearest_in_chebyshev)):
                began = time.thread_time()
                optimise(*workload)
                pair[side] = time.thread_time() - began
        plain, fast = np.median(seconds, axis=0) / CELLS * 1e6
        ratio = np.median(seconds[:, 0] / seconds[:, 1])
        print(f"{name}: everything sorted {plain:.4f} µs a cell, IntOpt {fast:.4f} µs, {ratio:.1f} times less")


if __name__ == "__main__":
    main()
