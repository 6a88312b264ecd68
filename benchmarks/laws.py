"""Compare discrete Laplace with discrete Gaussian noise, on Rhode Island's block groups at ε = 1 and δ = 10⁻⁸, under add_remove.

It prints σ at the leaves, how many such releases a cap of (10, 10⁻⁷) holds, and the ratio of the mean absolute errors at the leaves:
over the cells that are released, over those with ten true records or more, over those with any, and over all that have a true or a
released count, most of which count one and are released as zero by any noise. It needs TRELLIS_DATA, the folder that contains
lodes_ri_2019/. The noise is the table sampler's, and nothing is released or charged.

With `--ratios` it needs no data: it prints how large Laplace noise is beside Gaussian noise, by the number of levels and views that
are measured with equal shares.
"""

import argparse
import math
import os
import tempfile
from fractions import Fraction
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import yaml
from results import save

from flows.planning.composition import cap_of, releases_within
from flows.specification.file import load_spec
from flows.trials.comparison import Comparison, make_comparison
from flows.trials.contestants import Contestant
from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, laplace_scale_for, uniform
from tasks.accounting.sensitivity import sensitivity_of
from tasks.laws.gaussian import gaussian_variance
from tasks.laws.laplace import standard_deviation
from tasks.tree.frontier import locate

SPEC = Path(__file__).parent.parent / "deployments/specs/rhode-island.yaml"
LAWS = ("gaussian", "laplace")
MEASURED = (1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 20)  # numbers of levels and views, for --ratios


def write_spec(folder: Path, law: str) -> Path:
    """Write the example spec for one unit that comes or goes, down to the block group, with noise of a law."""
    keys = yaml.safe_load(SPEC.read_text()) | {"public_data": True, "noise": {"law": law, "sampler": "table"}}
    keys["release"]["finest"] = "bgrp"
    keys["privacy"] = keys["privacy"] | {"neighbours": "add_remove", "epsilon": 1.0, "delta": 1e-8}
    keys["budget"] = {"epsilon": 10.0, "delta": 1e-7}
    (folder / f"{law}.yaml").write_text(yaml.safe_dump(keys))
    return folder / f"{law}.yaml"


def leaf_errors(comparison: Comparison, entry: Contestant) -> dict[str, float]:
    """Return the mean absolute error of the leaves of one trial, over some sets of cells."""
    table = comparison.table
    true = table.levels[-1]
    released = entry.try_on(table).released[-1]
    row = locate(released.areas, true.areas, table.tree.sizes(table.tree.depth))
    found = row >= 0
    of_released = released.counts.copy()
    of_released[found] -= true.true_counts[row[found]]
    of_true = true.true_counts.copy()
    of_true[row[found]] -= released.counts[found]
    of_either = np.concatenate((of_true, of_released[~found]))
    return {
        "released cells": float(np.abs(of_released).mean()),
        "cells with 10 records or more": float(np.abs(of_true[true.true_counts >= 10]).mean()),
        "cells with records": float(np.abs(of_true).mean()),
        "cells with a true or a released count": float(np.abs(of_either).mean()),
    }


def noise_ratio(neighbours: str, measured: int, epsilon: float = 1.0, delta: float = 1e-8) -> float:
    """Return the standard deviation of Laplace noise divided by that of Gaussian noise, for as many measurements with equal shares.

    A unit has one record, the accountant is `pld`, and none of the measurements is the total.
    """
    sensitivity = sensitivity_of(neighbours, 1, None, is_root=False)
    allocation = Allocation(uniform(measured), (sensitivity.l2_squared,) * measured)
    rho = ACCOUNTANTS["pld"].largest_rho(allocation, epsilon, delta)
    sigma = allocation.measurements(Fraction(rho))[0].sigma
    laplace = standard_deviation(laplace_scale_for(epsilon / measured, sensitivity.l1))
    return laplace / math.sqrt(gaussian_variance(sigma))


def print_ratios() -> None:
    """Print `noise_ratio` by the number of measurements, for both kinds of neighbours."""
    print("measured   " + "".join(f"{measured:6}" for measured in MEASURED))
    for neighbours in ("add_remove", "substitution"):
        ratios = (noise_ratio(neighbours, measured) for measured in MEASURED)
        print(f"{neighbours:12}" + "".join(f"{ratio:6.2f}" for ratio in ratios))


def main() -> None:
    """Try both laws, and print a line per set of cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mechanism", default="inftda_reconciled")
    parser.add_argument("--ratios", action="store_true", help="print ratios of noise, which need no data")
    asked = parser.parse_args()
    if asked.ratios:
        print_ratios()
        return
    errors: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRELLIS_HOME"] = f"{folder}/home"
        for law in LAWS:
            comparison = make_comparison(load_spec(write_spec(Path(folder), law)), [asked.mechanism], [1.0], asked.runs)
            (entry,) = comparison.entries
            many = releases_within(cap_of(10.0, 1e-7), entry.plan.spending)
            print(f"{law}: σ = {entry.sigmas[-1]:.2f} at the leaves; a cap of (10, 1e-7) holds {many} such releases")
            errors[law] = [leaf_errors(comparison, entry) for _ in range(asked.runs)]
    rows = []
    for cells in errors["gaussian"][0]:
        of = {law: [run[cells] for run in errors[law]] for law in LAWS}
        means = {law: fmean(of[law]) for law in LAWS}
        spread = max(stdev(of[law]) / means[law] for law in LAWS) / asked.runs**0.5 if asked.runs > 1 else 0.0
        ratio = means["laplace"] / means["gaussian"]
        rows.append({"cells": cells, **means, "ratio": ratio})
        print(
            f"{cells}: mean absolute error {means['gaussian']:.3f} by gaussian, {means['laplace']:.3f} by laplace, ratio"
            f" {ratio:.3f} (standard errors at most {100 * spread:.2f} %)"
        )
    save("laws", rows)


if __name__ == "__main__":
    main()
