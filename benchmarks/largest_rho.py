"""The largest ρ that `pld` finds, against an exhaustive search, for every ε and δ that it accepts.

`python benchmarks/largest_rho.py` takes an hour or two; `--every 10` takes every tenth ε. It prints, per allocation and δ, how many ε
were planned, how many refused, and how far the ρ that was found is from the largest ρ that holds, at worst. The exhaustive search
(`tests/support/largest.py`) takes no part of the code that it checks.
"""

import argparse
import math
from collections.abc import Iterator, Sequence

import numpy as np
import repository  # noqa: F401, for tests.support

from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, uniform
from tests.support.largest import exhaustive

DELTAS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1)
EPSILONS = tuple(np.geomspace(100, 0.01, 200).tolist())
ALLOCATIONS = (
    *(Allocation(uniform(levels), (1,) * levels) for levels in (1, 2, 3, 4)),
    *(Allocation(uniform(levels), (2,) * levels) for levels in (1, 2, 3, 4)),
    *(Allocation(uniform(levels), (1,) + (2,) * (levels - 1), total=0) for levels in (2, 3, 4)),
)


def rows(epsilons: Sequence[float], deltas: Sequence[float], allocations: Sequence[Allocation]) -> Iterator[str]:
    """Yield a line per allocation and δ; an infinite ratio is a ρ that does not hold."""
    pld = ACCOUNTANTS["pld"]
    for allocation in allocations:
        for delta in deltas:
            within = [epsilon for epsilon in epsilons if 10 * delta <= min(epsilon, 1.0)]
            refused, ratios = 0, list[tuple[float, float]]()
            for epsilon, most in zip(within, exhaustive(allocation, delta, within), strict=True):
                try:
                    rho = pld.largest_rho(allocation, epsilon, delta)
                except ValueError:
                    refused += 1
                    continue
                is_held = pld.holds(allocation.measurements(rho), epsilon, delta)
                ratios.append((float(rho) / most if is_held else math.inf, epsilon))
            (least, at), (largest, _) = min(ratios), max(ratios)
            yield (
                f"{allocation.squares!s:14}{'' if allocation.total is None else 'total':6}{delta:6.0e} {len(ratios):5}"
                f" planned {refused:3} refused   ρ / largest: {least:.4f} (ε = {at:.4g}) to {largest:.4f}"
            )


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every so many-th ε")
    parser.add_argument("--delta", type=float, action="append", help="a δ; all if left out")
    parser.add_argument("--squares", help="Δ₂² of each measurement, such as 1,2,2; all if left out")
    given = parser.parse_args()
    chosen = [of for of in ALLOCATIONS if given.squares in {None, ",".join(map(str, of.squares))}]
    for row in rows(EPSILONS[:: given.every], given.delta or DELTAS, chosen):
        print(row, flush=True)


if __name__ == "__main__":
    main()
