"""Try other weights and another rounding for counts of groupings that overlap, on the morning of the made-up city of shuttles.

The leaves are 67,600 trip types. The groupings are those of the spec o5.yaml of `trellis synthesise shuttle`: everything, half hours,
pairs of zones, and modes. Everything is measured with discrete Laplace noise, with equal shares of ε, one trip being added or removed.
It prints the mean absolute error per cell of each grouping and of the leaves, in records:

- nearest: the weights of a release, 1/(√n σ²), and each leaf rounded to the nearest whole number;
- controlled: the same weights, rounded as in a release;
- paper: the weights of Fioretto, Lee and Van Hentenryck (2018), 1/(n σ²), rounded as in a release;
- variances: each squared deviation divided by the variance of its noise alone, rounded as in a release;
- empty: a table without any trip.

Nothing is released or charged. The noise has a seed, unlike that of a release.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from results import save

from tasks.laws.laplace import laplace_variance
from tasks.settle.controlled import round_controlled
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.synthesize.shuttle import ZONES, City, draw_city, draw_trips, periods_of, stop_codes

FloatArray = NDArray[np.float64]
GROUPINGS = ("total", "period", "zones", "mode")


@dataclass(frozen=True, slots=True)
class Demand:
    """The trips of a morning.

    Attributes:
        trips: int64, shape (trip types,).
        labels: for each of `GROUPINGS`, int32, shape (trip types,): the cell of each type.
    """

    trips: NDArray[np.int64]
    labels: tuple[NDArray[np.int32], ...]

    def sums(self, of_leaves: NDArray[np.generic]) -> list[FloatArray]:
        """Return what leaves add up to in each cell of each grouping."""
        return [np.bincount(label, of_leaves, int(label.max()) + 1).astype(np.float64) for label in self.labels]

    def errors(self, released: NDArray[np.generic]) -> dict[str, float]:
        """Return the mean absolute error per cell of each grouping, and of the leaves."""
        difference = released.astype(np.float64) - self.trips
        means = [float(np.abs(of_cells).mean()) for of_cells in [*self.sums(difference), difference]]
        return dict(zip([*GROUPINGS, "leaf"], means, strict=True))


def draw_demand(seed: int) -> Demand:
    """Return the trips that `trellis synthesise shuttle --seed` draws, with the cells of the groupings in which they lie."""
    generator = np.random.default_rng(seed)
    city = draw_city(generator=generator)
    table = draw_trips(city, "morning", generator=generator)
    stops, periods = stop_codes(city).to_list(), periods_of("morning")
    place = {stop: number for number, stop in enumerate(stops)}
    at = [table[end].replace_strict(place).to_numpy() for end in ("origin", "destination")]
    period = table["period"].replace_strict({name: number for number, name in enumerate(periods)}).to_numpy()
    trips = np.zeros((len(periods), len(stops), len(stops)), dtype=np.int64)
    trips[period, at[0], at[1]] = table["trips"].to_numpy()
    return Demand(trips.ravel(), _labels(city, len(periods)))


def _labels(city: City, periods: int) -> tuple[NDArray[np.int32], ...]:
    stops = len(city.zone)
    period = np.repeat(np.arange(periods), stops * stops)
    zones = np.add.outer(city.zone * len(ZONES), city.zone).ravel()
    modes = city.modes().ravel()
    cells = (
        np.zeros_like(period),
        period,
        period * len(ZONES) ** 2 + np.tile(zones, periods),
        period * (int(modes.max()) + 1) + np.tile(modes, periods),
    )
    return tuple(of.astype(np.int32) for of in cells)


def try_once(demand: Demand, epsilon: float, generator: np.random.Generator) -> Mapping[str, dict[str, float]]:
    """Return the errors of one draw of noise, by what is done with it."""
    scale = (len(GROUPINGS) + 1) / epsilon
    variance = laplace_variance(scale)
    noisy = [_noisy(of, scale, generator) for of in [*demand.sums(demand.trips), demand.trips]]
    found = {}
    for name, power in (("controlled", 0.5), ("paper", 1.0), ("variances", 0.0)):
        weights = [1 / (variance * len(of) ** power) for of in noisy]
        groupings = [
            Grouping(cell, of, weight) for cell, of, weight in zip(demand.labels, noisy[:-1], weights[:-1], strict=True)
        ]
        values = settle_overlapping(noisy[-1], weights[-1], groupings)
        found[name] = demand.errors(round_controlled(values, demand.labels).counts)
        if name == "controlled":
            found["nearest"] = demand.errors(np.rint(values))
    return found | {"empty": demand.errors(np.zeros_like(demand.trips))}


def _noisy(counts: NDArray[np.generic], scale: float, generator: np.random.Generator) -> FloatArray:
    """Return counts with discrete Laplace noise: the difference of two geometric variables."""
    success = -np.expm1(-1 / scale)
    noise = generator.geometric(success, len(counts)) - generator.geometric(success, len(counts))
    return counts.astype(np.float64) + noise


def _mean(runs: Sequence[Mapping[str, dict[str, float]]], name: str) -> dict[str, float]:
    return {of: float(np.mean([run[name][of] for run in runs])) for of in runs[0][name]}


def main() -> None:
    """Print a line per ε and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the city; the noise takes the seeds that follow")
    asked = parser.parse_args()
    demand, rows = draw_demand(asked.seed), []
    print(f"{'ε':>5} {'':10}" + "".join(f"{of:>10}" for of in [*GROUPINGS, "leaf"]))
    for epsilon in (1.0, 0.1):
        generators = (np.random.default_rng([asked.seed, run]) for run in range(1, asked.runs + 1))
        runs = [try_once(demand, epsilon, generator) for generator in generators]
        for name in ("nearest", "controlled", "paper", "variances", "empty"):
            errors = _mean(runs, name)
            rows.append({"epsilon": epsilon, "method": name, **errors})
            print(f"{epsilon:5} {name:10}" + "".join(f"{errors[of]:10.3f}" for of in errors))
    save("settling", rows)


if __name__ == "__main__":
    main()
