"""Measure the table sampler for docs/proofs/sampler.md: the size of tables, τ, and the time of a draw. `make bench`.

Draws are measured in thread time, which other work on the machine disturbs least. Two processes share no interpreter's lock, only the
machine and its load. So comparing two threads with two processes shows whether two threads block each other.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from statistics import median

import numpy as np

from tasks.laws.samplers import LARGEST_TABLE_SCALE, discrete_gaussian, noise_table, system_words, table_noise

SCALES = [0.01, 0.7, 5.0, 50.0, 500.0, 4_096.0, LARGEST_TABLE_SCALE]
DRAWS = 4_000_000
DRAWS_OF_OPENDP = 50_000
BLOCK = 2**15  # words at a time, as the sampler asks for them
TIMES = 9


def draw_noise(scale: float) -> None:
    """Draw from a scale's table."""
    table_noise(np.zeros(DRAWS, dtype=np.int64), scale)


def draw_words() -> None:
    """Draw as many words as `draw_noise` does, and as many at a time."""
    for start in range(0, DRAWS, BLOCK):
        system_words(min(BLOCK, DRAWS - start))


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
    """Return how long some work takes: thread time, unless another clock is given."""
    start = clock()
    work()
    return clock() - start


def against_one(scale: float, pools: list[Executor]) -> list[float]:
    """Return, per pool of two, the elapsed time of two drawings at once, as a multiple of one after the other."""

    def at_once(pool: Executor) -> None:
        for drawing in [pool.submit(draw_noise, scale) for _ in range(2)]:
            drawing.result()

    def in_turn() -> None:
        draw_noise(scale)
        draw_noise(scale)

    for pool in pools:
        at_once(pool)  # builds the tables of its processes
    elapsed = partial(seconds, clock=time.perf_counter)
    rounds = [(elapsed(in_turn), *(elapsed(partial(at_once, pool)) for pool in pools)) for _ in range(TIMES)]
    return [median(times[1 + i] / times[0] for times in rounds) for i in range(len(pools))]


def least_power(tau: Fraction) -> int:
    """Return an integer p with τ <= 2**p < 4τ."""
    return 1 - (tau.denominator // tau.numerator).bit_length()


def line(scale: float, pools: list[Executor]) -> str:
    """Return the line of one scale."""
    noise_table.cache_clear()
    built = seconds(partial(noise_table, scale))
    table = noise_table(scale)
    times = [(seconds(partial(draw_noise, scale)), seconds(draw_words)) for _ in range(TIMES)]
    draw, entropy = median(of_noise for of_noise, _ in times), median(of_words / noise for noise, of_words in times)
    threads, processes = against_one(scale, pools)
    of_opendp = seconds(partial(discrete_gaussian, np.zeros(DRAWS_OF_OPENDP, dtype=np.int64), scale)) / DRAWS_OF_OPENDP
    return (
        f"| {scale:g} | {table.furthest:,} | {len(table.entries):,} | {built:.3f} | 2^{least_power(table.tau)} "
        f"| {draw / DRAWS * 1e6:.3f} | {entropy:.0%} | {threads:.2f} | {processes:.2f} | {of_opendp * 1e6:.1f} |"
    )


def main() -> None:
    """Print a table, a line per scale, and how busy the machine was."""
    with ProcessPoolExecutor(2) as processes, ThreadPoolExecutor(2) as threads:
        processes.submit(draw_words).result()  # forks before there are threads
        discrete_gaussian(np.zeros(1, dtype=np.int64), 1.0)  # loads OpenDP
        print("| σ | K | entries | built, s | τ ≤ | table, µs | entropy | 2 threads | 2 processes | OpenDP, µs |")
        print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
        for scale in SCALES:
            print(line(scale, [threads, processes]), flush=True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
