"""Run our mechanisms on all six made-up sets of the paper's Table 1, to compare them with the authors' figures.

It runs every mechanism at ε = 0.1, 1 and 10 and δ = 10⁻⁸, through `flows/trials/comparison.py`, in two processes. It also runs
variants that each differ in one thing that the authors' code does differently, to see whether that thing explains the differences.
`--page` runs nothing. It writes `paper.md` from the results of the last run and from the authors' figures, if TRELLIS_DATA has them.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_args

import numpy as np
import paper_page
import polars as pl
from paper_draws import TheirHistogram, closest, draw_set, largest_share, people_of_draws
from paper_figures import CLOSEST, Theirs, theirs_at_hand
from paper_page import SOLVER
from results import save

from flows.cli.arguments import json_object
from flows.planning.shares import parts_of
from flows.specification.file import parse_spec
from flows.synthetic import write_ready
from flows.trials.comparison import comparison_answer, make_comparison, trials_of
from flows.trials.entries import Entry
from tasks.laws.law import Sampling
from tasks.synthesize.areas import Country, PaperDensity, PaperKind
from tasks.tree.axis import IntArray

EPSILONS = (0.1, 1.0, 10.0)
SEED = 2025
QUICK = ("inftda", "tda_l2", "gaussian", "stability_histogram", "inftda_reconciled")
NAMES = {f"{kind}_{density}": (kind, density) for kind, density in product(get_args(PaperKind), get_args(PaperDensity))}


def half_rho(entry: Entry) -> Entry:
    """Return an entry that spends half of its ρ, as the authors' top-down code does."""
    plan = entry.plan
    rho = plan.guarantee.rho / 2
    guarantee = replace(plan.guarantee, measurements=plan.scheme.allocation.measurements(rho))
    plan = replace(plan, guarantee=guarantee, parts=parts_of(plan.scheme, guarantee))
    return replace(entry, name=f"{entry.name}, half ρ", plan=plan)


def their_histogram(entry: Entry) -> Entry:
    """Return a histogram with the noise and the threshold of the authors', which do not keep (ε, δ) under substitution."""
    law, generator = TheirHistogram(entry.epsilon), np.random.default_rng(SEED)

    def sampler(true_counts: IntArray, _scale: float, _threshold: int) -> tuple[IntArray, IntArray]:
        return law.draw(true_counts, generator)

    scheme = entry.plan.scheme
    theirs = replace(scheme.law, samplers=dict.fromkeys(scheme.law.samplers, Sampling(sampler)))
    plan = replace(entry.plan, scheme=replace(scheme, law=theirs))
    return replace(entry, name=f"{entry.name}, Δ₁ = √2", plan=plan)


VARIANTS: dict[str, Callable[[Entry], Entry]] = {
    "inftda": half_rho,
    "tda_l2": half_rho,
    "tda_linf": half_rho,
    "stability_histogram": their_histogram,
}


def rows_of(spec: Path, mechanisms: Sequence[str], accountant: str, epsilons: Sequence[float], runs: int) -> list[dict]:
    """Return a row per mechanism, variant and ε of one set: the mean, the least and the most of every error, and seconds.

    A set that is the closest draw to the authors' gets what explains their figures alone: `gaussian`, and all variants.
    """
    terms = f"noise: {{sampler: table}}\nprivacy:\n  accountant: {accountant}\n"
    text = spec.read_text(encoding="utf-8").replace("privacy:\n", terms)
    comparison = make_comparison(parse_spec(text, spec), mechanisms, epsilons, runs)
    assert not comparison.refused, comparison.refused
    entries = comparison.entries
    variants = tuple(VARIANTS[entry.name](entry) for entry in entries if entry.name in VARIANTS)
    if accountant != "lemma":
        entries, variants = tuple(replace(entry, name=f"{entry.name}, {accountant}") for entry in entries), ()
    if spec.parent.name.startswith(CLOSEST):
        entries = tuple(entry for entry in entries if entry.name == "gaussian")
    tried = replace(comparison, entries=entries + variants)
    rows = [row for entry in tried.entries for row in trials_of(tried, entry, range(1, runs + 1))]
    trials = pl.DataFrame(rows, infer_schema_length=None)
    results = comparison_answer(tried, trials, "").results
    return [{"set": spec.parent.name, "runs": runs} | json_object(result) for result in results]


def facts_of(country: Country) -> dict[str, Any]:
    """Return what a set is: pairs with people, people, areas of level 1, and the share of the finest below the largest."""
    people, tree = country.trips["people"], country.codebook
    facts = {"pairs": len(people), "people": int(people.sum())}
    return facts | {"top_areas": tree[tree.columns[0]].n_unique(), "share": largest_share(country)}


def write_sets(folder: Path, theirs: Theirs) -> list[dict[str, Any]]:
    """Write each set, and the closest draw to the authors' where their figures are at hand; return what they are."""
    facts = []
    for of, (kind, density) in NAMES.items():
        drawn = {of: draw_set(kind, density, SEED)}
        lost = [theirs.errors.get((of, "stability_histogram", 0.1, level)) for level in (0, 1)]
        if all(lost):
            everywhere, largest = (float(row["max_error_mean"]) for row in lost)
            drawn[f"{CLOSEST}{of}"] = closest(kind, density, everywhere, largest / everywhere)
        for name, country in drawn.items():
            write_ready(country, folder / name, name.replace("_", "-"), "made-up", 1.0)
            facts.append({"set": name} | facts_of(country))
            print(facts[-1], flush=True)
        facts[-len(drawn)]["draws"] = people_of_draws(kind, density)
    return facts


def jobs(folder: Path, runs: int) -> Iterator[tuple]:
    """Yield what is to be run, the longest first."""
    specs = sorted(folder.glob("*/spec.yaml"), key=lambda spec: -(spec.parent / "data" / "trips.csv").stat().st_size)
    yield from ((spec, QUICK, "lemma", EPSILONS, runs) for spec in specs)
    own = [spec for spec in specs if not spec.parent.name.startswith(CLOSEST)]
    yield from ((spec, ["inftda_reconciled"], "pld", EPSILONS, runs) for spec in own)


def run(name: str, todo: Iterable[tuple], rows: list[dict[str, Any]]) -> None:
    """Run jobs in two processes, and keep what is there after each of them, behind some rows, under a name."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(rows_of, *job) for job in todo]):
            rows += future.result()
            save(name, rows)
            print("\n".join(line_of(row) for row in future.result()), flush=True)


def line_of(row: dict[str, Any]) -> str:
    """Return a row as a line."""
    errors = ", ".join(f"{level['max_absolute']['mean']:.0f}" for level in row["levels"])
    return f"{row['set']}, {row['mechanism']}, epsilon {row['epsilon']:g}: {errors}; {row['seconds']['mean']:.2f} s"


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--runs", type=int, default=10, help="runs of every mechanism at every ε; 0 keeps the last results"
    )
    parser.add_argument(
        "--solver-runs", type=int, default=1, help="runs of tda_linf, at ε = 1 only; 0 keeps the last results"
    )
    parser.add_argument("--page", action="store_true", help="only write paper.md")
    arguments = parser.parse_args()
    if arguments.page:
        paper_page.main()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = write_sets(folder, theirs_at_hand())
        if arguments.runs:
            run("paper", jobs(folder, arguments.runs), facts)
        if arguments.solver_runs:
            specs = [folder / of / "spec.yaml" for of in reversed(NAMES)]
            run("paper-solver", [(spec, [SOLVER], "lemma", [1.0], arguments.solver_runs) for spec in specs], [])


if __name__ == "__main__":
    main()
