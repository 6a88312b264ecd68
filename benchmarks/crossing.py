"""Trips by mode and hour: how far off zone totals, pairs of zones, modes and hours are, by the order of the tree and the views beside it.

The city is that of `trellis synthesise city`: 48 zones in 8 districts, 4 modes, 24 hours with six peaks, 200,000 trips. Each error is the mean
absolute error over all cells of a table, zeros too, in trips, as a mean over both ends and all runs. Nothing is released or charged. The page is
benchmarks/crossing.md.
"""

import argparse
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from results import load, markdown, save

from flows.specification.file import load_spec
from flows.synthetic import synthesise_answer
from flows.trials.comparison import Comparison, make_comparison
from tasks.tree.views import Partition, sums_of_leaves, unnumbered

SEED = 2025
PAIRS = ["origin.district", "destination.district", "origin.zone", "destination.zone"]
ORDERS: Mapping[str, list[str] | None] = {
    "chosen by `plan`": None,
    "origin, destination, mode, hour": ["origin", "destination", "mode", "hour"],
    "pairs of districts, mode, hour, zones": [*PAIRS[:2], "mode", "hour", *PAIRS[2:]],
    "mode, hour, pairs of zones": ["mode", "hour", *PAIRS],
}
VIEWS = ("none", "margins", "attributes")  # as `release.views` has them
_END = ("origin", "destination")
TABLES: Mapping[str, list[dict[str, str]]] = {  # whose errors are measured, as means over both ends
    "zone totals": [{end: "zone"} for end in _END],
    "pairs of zones": [dict.fromkeys(_END, "zone")],
    "modes by district": [{end: "district", "mode": "mode"} for end in _END],
    "hours by district": [{end: "district", "hour": "hour"} for end in _END],
    "modes by hour": [{"mode": "mode", "hour": "hour"}],
    "leaves": [{**dict.fromkeys(_END, "zone"), "mode": "mode", "hour": "hour"}],
}

PAGE = """\
# Trips by mode and hour

This page shows how far off tables of trips with attributes are, by the order in which the tree refines them and by the views that are
measured beside it. `python benchmarks/crossing.py` writes it; do not edit it. The city is made up (`trellis synthesise city`): 200,000 trips
between 48 zones in 8 districts, by 4 modes in 24 hours with six peaks, at ε = {epsilon:g} and δ = 10⁻⁸ under substitution, {runs} runs each.

Each figure is the mean absolute error over all cells, zeros too, in trips, over both ends. In truth a zone has 4,167 trips on average, a pair of zones 87, a
mode in a district 6,250, an hour in a district 1,042, a mode in an hour 2,083, and a leaf 0.9.

{table}

**Leave `release.order` and `release.views` out.** What `plan` chooses then is the first order with `attributes`: the ends first, down to
zones, with the totals of each axis, of each attribute by the district of each end, and of modes by hour. Without views, what comes last in
the order is a sum of thousands of noisy counts: modes and hours of a district, and modes by hour, are off by hundreds of trips. Views repair this.
Pairs of zones and leaves are as good with them as without.

**Leave `mechanism` out** too: what `plan` chooses, `inftda_shrunk`, draws small counts together before they are settled
with the views. Pairs of zones and leaves are a quarter to a third nearer, and all else is within a tenth. **Take `views: margins`** if totals of zones
matter more than modes and hours by district: fewer views are measured, each with less noise. **Do not put attributes before zones**: pairs of
zones become more than twice as far off, with views too.

The order `origin, destination, mode, hour` refines one end after the other, and has no pairs of districts as a level. In all rows the error of a
leaf is about as large as the leaf: single leaves are for adding up.

Measured on {machine}.
"""


def main() -> None:
    """Try all orders and views with some mechanisms, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--mechanisms", default="inftda_reconciled,inftda_shrunk")
    options = parser.parse_args()
    rows = list[dict[str, Any]]()
    with TemporaryDirectory() as folder:
        synthesise_answer("city", Path(folder, "city"), SEED)
        tried = options.mechanisms.split(",")
        for order, views, comparison in comparisons(Path(folder, "city"), tried, options.epsilon):
            for entry in comparison.entries:
                errors = [errors_of(comparison, entry) for _ in range(options.runs)]
                row = {"order": order, "views": views, "mechanism": entry.name}
                rows.append(row | {table: fmean(of[table] for of in errors) for table in TABLES})
                print(rows[-1], flush=True)
    save("crossing", rows)
    write_page(options.runs, options.epsilon)


def comparisons(folder: Path, mechanisms: list[str], epsilon: float) -> Iterator[tuple[str, str, Comparison]]:
    """Yield for every order and all views what is tried."""
    keys = yaml.safe_load((folder / "spec.yaml").read_text(encoding="utf-8")) | {"noise": {"sampler": "table"}}
    for (order, levels), views in product(ORDERS.items(), VIEWS):
        keys["release"] = {"views": views} | ({"order": levels} if levels else {})
        spec = folder / "tried.yaml"
        spec.write_text(yaml.safe_dump(keys), encoding="utf-8")
        yield order, views, make_comparison(load_spec(spec), mechanisms, [epsilon], 1)


def errors_of(comparison: Comparison, entry: Any) -> dict[str, float]:
    """Return the mean absolute error of every table after one trial."""
    tree, true, found = comparison.table.tree, comparison.true_levels[-1], entry.try_on(comparison.table).released[-1]

    def error(levels: dict[str, str]) -> float:
        view = [1 + axis.level_names.index(levels[axis.name]) if axis.name in levels else 0 for axis in tree.axes]
        partition = Partition(tree, unnumbered(view))
        return float(np.abs(sums_of_leaves(partition, found) - sums_of_leaves(partition, true)).mean())

    return {table: fmean(map(error, of_ends)) for table, of_ends in TABLES.items()}


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return a table in Markdown, a line per order, views and mechanism."""
    lines = [[*rows[0]], ["---"] * 3 + ["---:"] * len(TABLES)]
    lines += [[of if isinstance(of, str) else f"{of:.3g}" for of in row.values()] for row in rows]
    return markdown(lines)


def write_page(runs: int, epsilon: float) -> None:
    """Write the page from what the last run has left."""
    last = load("crossing")
    if last:
        text = PAGE.format(runs=runs, epsilon=epsilon, table=table_of(last["rows"]), machine=last["machine"])
        Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
