"""Run the published package inf-tda once. `peers.py` calls this with the interpreter of the environment that it made.

python inf_tda.py TABLE.npy RELEASED.npy EPSILON DELTA [AREAS.npy]: the table is dense, int64, with one dimension per level; or has one
dimension, and AREAS.npy the area of each level of each cell, shape (levels, cells). It prints the wall seconds and the CPU seconds of
the call alone, from a sorted pandas Series with every cell to the released Series.
"""

import sys
import time

import numpy as np
import pandas as pd
from InfTDA import inf_tda


def series(table: np.ndarray, areas: np.ndarray | None = None) -> pd.Series:
    """Return a table as the package wants it: indexed by a number per level, zeros included."""
    if areas is not None:
        return pd.Series(table, index=pd.MultiIndex.from_arrays(areas))
    return pd.Series(table.ravel(), index=pd.MultiIndex.from_product([range(size) for size in table.shape]))


def main() -> None:
    """Release the table, after a small one that loads what is loaded lazily."""
    table_file, released_file, epsilon, delta, *areas_file = sys.argv[1:]
    budget = (float(epsilon), float(delta))
    inf_tda(series(np.full((2, 2), 1000)), budget, contribution=1)
    table = np.load(table_file)
    data = series(table, *map(np.load, areas_file))
    wall, cpu = time.perf_counter(), time.process_time()
    released = inf_tda(data, budget, contribution=1)
    print(time.perf_counter() - wall, time.process_time() - cpu)
    if areas_file:
        np.save(released_file, released.to_numpy())
        return
    counts = np.zeros_like(table)
    counts[tuple(np.array(released.index.to_list()).T)] = released.to_numpy()
    np.save(released_file, counts)


if __name__ == "__main__":
    main()
