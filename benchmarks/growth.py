"""Measure how computing time grows with cells: made-up nations from tiny to Italy's size, four decades of cells, and the slope of the fit.

Each nation has a share of Italy's flows and people, and the square root of that share of its areas, so the same share of the
possible pairs have people. ε = 1, all five levels, from the table in memory to the released levels in memory, on one thread
(`compute.release`). With OpenDP's sampler the largest nation is a tenth of Italy. The goal is a slope of log seconds over log
cells of at most 1.05.

`--releases` measures large releases from start to end instead (`large.py`): all of them, or those that it names.
"""

import argparse

import large
import numpy as np
from compute import measurements, samplers, typical
from italy import draw_share
from results import save

SHARES = {"table": np.logspace(-4.5, 0, 10), "opendp": np.logspace(-5.5, -1, 10)}


def slope(rows: list[dict]) -> float:
    """Return the slope of log CPU seconds over log cells, least squares."""
    cells, seconds = (np.log([row[key] for row in rows]) for key in ("cells", "cpu_seconds"))
    return float(np.polyfit(cells, seconds, 1)[0])


def main() -> None:
    """Release nations of every size with every sampler, and print and keep what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sampler", choices=("opendp", "table", "both"), default="both")
    parser.add_argument("--largest", type=float, default=1.0, help="largest share of the sizes to try")
    parser.add_argument("--releases", nargs="*", choices=[*large.LARGE, large.NATION], help="measure commands instead")
    parser.add_argument("--runs", type=int, default=3, help="of each release, but for that of the nation")
    parser.add_argument("--epsilon", type=float, default=3.0, help="of the release of the nation")
    arguments = parser.parse_args()
    if arguments.releases is not None:
        names = arguments.releases or [*large.LARGE, large.NATION]
        large.measure(names, arguments.runs, arguments.largest, arguments.epsilon)
        return
    rows = []
    for name, sampler in samplers(arguments.sampler).items():
        for share in SHARES[name] * arguments.largest:
            tree, records, people = draw_share(share).trips()
            done = typical(name, tree, records, people, measurements(tree.depth, 1.0), sampler)
            row = {"share": share, "sampler": name, "cells": done.cells, "rooms": dict(done.rooms)}
            row |= {"seconds": done.seconds, "cpu_seconds": done.cpu_seconds, "peak_bytes": done.peak_bytes}
            rows.append(row)
            print(
                f"{name}, {share:.5f} of Italy: {done.cells:,} cells, {done.cpu_seconds:.3f} s,"
                f" {done.peak_bytes / 2**30:.2f} GiB",
                flush=True,
            )
        own = [row for row in rows if row["sampler"] == name]
        print(f"{name}: slope {slope(own):.3f}, of the last decade {slope(own[-3:]):.3f}")
    save("growth", rows)


if __name__ == "__main__":
    main()
