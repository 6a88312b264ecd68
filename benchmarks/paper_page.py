"""Write benchmarks/paper.md: the results of `paper.py` under build/bench/ beside the figures that the paper's authors published.

If the authors' figures are missing, the page has only ours and says so.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from paper_figures import CLOSEST, Row, SideBySide, Theirs, theirs_at_hand
from results import excerpt, load, markdown

from tasks.pages.svg import Layer, chart, levels_axis, linear_axis, lines, style

HERE = Path(__file__).parent
REPOSITORY = "[aidaLabDEI/TDA_hierarchical](https://github.com/aidaLabDEI/TDA_hierarchical)"
SOURCE = f"""\
The authors' figures are the results of ten runs that they published in {REPOSITORY}
(F. Boninsegna and F. Silvestri, PoPETs 2025). We quote them as facts. We read their code there to learn what it does; we did not run
it."""
ABSENT = f"The authors' figures, published in {REPOSITORY}, were not at hand when this page was written. It has only our figures."
MECHANISMS = ("inftda", "tda_l2", "tda_linf", "gaussian", "stability_histogram")
SOLVER = "tda_linf"
RECONCILED = ("inftda_reconciled", "inftda_reconciled, pld")
SHOWN_LEVELS = {16: (1, 6, 11, 16), 8: (1, 4, 8)}  # of a tree of so many levels
RATES = ("false_discovery", "false_negative")
DRAWN = {  # in the pictures, at ε = 1
    "inftda, theirs": None,
    "inftda, half ρ": "inftda, half ρ",
    "inftda": "inftda",
    "inftda_reconciled, pld": "inftda_reconciled, pld",
}

PAGE = """\
# The paper's synthetic sets, beside the authors' figures

This page compares our mechanisms with the figures of the paper's authors, on the six made-up sets of Table 1 of Boninsegna and
Silvestri (2025). `python benchmarks/paper.py --page` writes it from the results of the last `python benchmarks/paper.py` in
`build/bench/`; do not edit it.

ε is 0.1, 1 and 10, δ = 10⁻⁸, under substitution of one trip. ρ is by the lemma as in the paper, or by privacy loss
distributions (`pld`). There are {runs}. The noise comes from the table sampler; for the histogram, from OpenDP. Sets, trees and measures
are the paper's: level 0 is the total, level 1 refines the destination, level 2 the origin, and so on.

{source}

“12 / 17” means ours / theirs. Errors are the largest absolute error of a level, averaged over the runs.

## Where they differ, and why

The table has the geometric mean, over levels from 3 on and over ε, of our largest error divided by theirs. “½ρ” and “Δ₁ = √2” are our
mechanisms changed in one thing to what their code does: experiments, not for release. “Closest” means the draws described below.

{ratios}

{reasons}

![Largest error by level at ε = 1, binary sets](paper-binary.svg)
![Largest error by level at ε = 1, random sets](paper-random.svg)

### Other draws of the same sets

A set is scaled by its largest pair, so one Pareto draw decides how many people it has; the random tree decides how much lies below its largest
area. The closest draw is the one of 100 draws of the people that best reproduces the loss of their histogram at ε = 0.1 (its error at level
0), on the one of 100 trees whose largest area has the share that their error at level 1 indicates. Nothing else was fitted. In the file, “lost” and
“misses” are closest draw / theirs, with the mechanisms changed to their code's way.

{others}

## Largest error, level by level

{errors}

## False discoveries and false negatives at the finest level

The false discovery rate is the share, in %, of released pairs that have no trips; the false negative rate that of pairs with trips that
are not released. A pair is released if its count is above 0, as in the authors' code.

False discovery rate (a complete set has none):

{discoveries}

False negative rate:

{negatives}

## Seconds

Mean seconds of a run. Ours ran in memory, with noise from the table, in two processes on {machine}, which other programs used too. Theirs ran on
the authors' machine with OpenDP's noise, for which our seconds are in [speed.md](speed.md#the-papers-synthetic-sets).

{seconds}

## Italy

The paper's seventh set, Italy's commuters, is not public in the form that the authors used. The time for a nation of its shape is in
[speed.md](speed.md#a-nation-of-italys-shape).
"""


def is_shown(line: Sequence[str]) -> bool:
    """Return whether the page shows a line of a table: those at ε = 1."""
    return line[1] == "1"


def table(
    file: str,
    heads: Sequence[str],
    lines: Iterable[Sequence[str]],
    is_shown: Callable[[Sequence[str]], bool],
) -> str:
    """Write a table as CSV and return what is shown of it; all but the first column to the right."""
    return excerpt(file, [heads, ["---", *["---:"] * (len(heads) - 1)], *lines], is_shown)


def beside(ours: float | None, theirs: float | None) -> str:
    """Return ours / theirs, as far as they are there."""
    if ours is None:
        return "–" if theirs is None else f"– / {number(theirs)}"
    return number(ours) if theirs is None else f"{number(ours)} / {number(theirs)}"


def number(value: float) -> str:
    """Return a number with as many digits as it deserves."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


RATIOS = {  # head of a column: what of ours, against what of theirs
    "inftda": ("inftda", "inftda"),
    "½ρ": ("inftda, half ρ", "inftda"),
    "tda_l2": ("tda_l2", "tda_l2"),
    "½ρ ": ("tda_l2, half ρ", "tda_l2"),
    "tda_linf": ("tda_linf", "tda_linf"),
    "½ρ  ": ("tda_linf, half ρ", "tda_linf"),
    "gaussian": ("gaussian", "gaussian"),
    "histogram": ("stability_histogram", "stability_histogram"),
    "Δ₁ = √2": ("stability_histogram, Δ₁ = √2", "stability_histogram"),
    "reconciled, pld, over their inftda": ("inftda_reconciled, pld", "inftda"),
}


def ratios(figures: SideBySide) -> str:
    """Return how ours compare with theirs, a row per set and one for all; then the same of the closest draws."""
    lines = []
    for of_all, sets in (("all", figures.sets), ("all closest", closest_sets(figures))):
        for name, of in ({of: [of] for of in sets} | {of_all: sets}).items() if sets else ():
            of_set = [figures.ratio(of, *pair) for pair in RATIOS.values()]
            lines.append([name.replace("_", " "), *("–" if ratio is None else f"{ratio:.2f}" for ratio in of_set)])
    return markdown([["", *(head.strip() for head in RATIOS)], ["---", *["---:"] * len(RATIOS)], *lines])


def closest_sets(figures: SideBySide) -> list[str]:
    """Return the closest draws that were run."""
    return [of for of in figures.facts if of.startswith(CLOSEST)]


REASONS = """\
- **Top-down: half of ρ.** For T levels their code asks for 2T shares of ρ and spends T of them, so σ is √2 times what (ε, δ) asks for.
  At full ρ our errors are {inftda} (`inftda`), {tda_l2} (`tda_l2`) and {tda_linf} (`tda_linf`) of theirs; 1/√2 is 0.71. With half of ρ,
  our errors are {inftda_half}, {tda_l2_half} and {tda_linf_half} of theirs, and on the closest draws {inftda_closest} and
  {tda_l2_closest}. No other difference is visible.
- **`tda_linf`: any optimum.** There are many Chebyshev optima. GLPK chose theirs, and HiGHS chooses ours. On the random sets both choose
  worse optima than IntOpt further down. At level 8 of random dense and ε = 1, their solver errs by {their_solver} and their IntOpt by
  {their_intopt}; ours err by {our_solver} and {our_intopt}. We ran it at ε = 1 only, with {solver_runs}, because one run takes minutes.
- **`gaussian`: none.** One level takes all of ρ in both. Our errors are {gaussian} of theirs on our draws, and {gaussian_closest} on the
  closest draws, whose random trees are more like theirs (the error of upper levels depends on how many pairs lie below a cell).
- **Levels 1 and 2 of the random sets: the tree.** The more areas, the larger the largest error. At level 1, the error of `inftda` with
  half of ρ is {first} of theirs on our tree of {areas} areas, and {first_closest} of theirs on the closest draws' tree of {areas_closest}
  areas. The authors did not publish how many areas theirs has. From level 3 on both are as in the table.
- **`stability_histogram`: a shorter distance.** Their code gives √2 to a map that asks for the ℓ₁ distance of neighbours. That distance
  is 2 under substitution. So their scale is √2/ε in place of 2/ε, and their threshold is smaller in proportion, which keeps less than
  (ε, δ). At the finest level our error is {histogram} of theirs, and with their scale and threshold {histogram_theirs}. Above the finest
  level, most of the error is what lies below the threshold, which depends on the draw: on the closest draws our error is
  {histogram_closest} of theirs over all levels.
- **Rates: the draw.** On the closest draws of complete and dense sets, our shares of missed pairs and of false discoveries are within
  {apart} percentage points of theirs, for `gaussian`, `inftda` and `tda_l2` with half of ρ, and the histogram with Δ₁ = √2, at every ε.
  On the sparse sets, where few pairs are drawn, they are within {apart_sparse}.
- **Not the levels**: their level 0 is the total too, exact top-down and noisy in `gaussian`; level 1 is the destination's."""

EXPERIMENTS = {  # of the rates: what of ours is held against what of theirs
    "gaussian": "gaussian",
    "inftda, half ρ": "inftda",
    "tda_l2, half ρ": "tda_l2",
    "stability_histogram, Δ₁ = √2": "stability_histogram",
}


def reasons(figures: SideBySide) -> str:
    """Return why ours differ from theirs, with what the experiments came to."""
    near = closest_sets(figures)
    if not figures.theirs.errors or not near:
        return "The authors' figures were not at hand, so this page does not explain the differences."

    def ratio_text(mechanism: str, sets: Sequence[str] = figures.sets, levels: Sequence[int] | None = None) -> str:
        ratio = figures.ratio(sets, mechanism, mechanism.partition(",")[0], levels)
        return "–" if ratio is None else f"{ratio:.2f}"

    finest = figures.depth("random_dense") if "random_dense" in figures.sets else 0
    solver = [row["runs"] for (_, mechanism, _), row in figures.ours.items() if mechanism == SOLVER]
    return REASONS.format(
        inftda=ratio_text("inftda"),
        inftda_half=ratio_text("inftda, half ρ"),
        tda_l2=ratio_text("tda_l2"),
        tda_l2_half=ratio_text("tda_l2, half ρ"),
        inftda_closest=ratio_text("inftda, half ρ", near),
        tda_l2_closest=ratio_text("tda_l2, half ρ", near),
        tda_linf=ratio_text("tda_linf"),
        tda_linf_half=ratio_text("tda_linf, half ρ"),
        their_solver=beside(figures.their("random_dense", "tda_linf", 1.0, finest), None),
        their_intopt=beside(figures.their("random_dense", "inftda", 1.0, finest), None),
        our_solver=beside(figures.our("random_dense", "tda_linf", 1.0, finest), None),
        our_intopt=beside(figures.our("random_dense", "inftda", 1.0, finest), None),
        solver_runs=counted(solver[0]) if solver else "not run",
        gaussian=ratio_text("gaussian"),
        gaussian_closest=ratio_text("gaussian", near),
        histogram=ratio_text("stability_histogram", levels=[-1]),
        histogram_theirs=ratio_text("stability_histogram, Δ₁ = √2", near, levels=[-1]),
        histogram_closest=ratio_text("stability_histogram, Δ₁ = √2", near),
        first=over_theirs(figures, [of for of in figures.sets if of.startswith("random")]),
        first_closest=over_theirs(figures, [of for of in near if "random" in of]),
        areas=top_areas(figures, figures.sets),
        areas_closest=top_areas(figures, near),
        apart=f"{max(rates_apart(figures, [of for of in near if not of.endswith('sparse')]), default=0):.1f}",
        apart_sparse=f"{max(rates_apart(figures, [of for of in near if of.endswith('sparse')]), default=0):.1f}",
    )


def over_theirs(figures: SideBySide, sets: Iterable[str]) -> str:
    """Return the ratio at level 1 of what spends half of ρ, over some sets and all ε."""
    ratio = figures.ratio(sets, "inftda, half ρ", "inftda", [1])
    return "–" if ratio is None else f"{ratio:.2f}"


def top_areas(figures: SideBySide, sets: Iterable[str]) -> str:
    """Return how many areas the random trees of some sets have at level 1."""
    return " or ".join(dict.fromkeys(str(figures.facts[of]["top_areas"]) for of in sets if "random" in of))


def rates_apart(figures: SideBySide, sets: Iterable[str]) -> list[float]:
    """Return by how many percentage points the rates of the experiments differ from theirs, at the finest level."""
    apart = []
    for of in sets:
        for (ours, theirs), epsilon, rate in product(EXPERIMENTS.items(), figures.epsilons, RATES):
            at = epsilon, figures.depth(of)
            our, their = figures.our(of, ours, *at, rate), figures.their(of, theirs, *at, f"{rate}_percent_mean")
            if our is not None and their is not None:
                apart.append(abs(100 * our - their))
    return apart


def counted(runs: int) -> str:
    """Return a number of runs in words."""
    return f"{runs} run{'' if runs == 1 else 's'}"


def others(figures: SideBySide) -> str:
    """Return, per set, how far apart draws of it are, and what the draw closest to theirs makes of theirs."""
    lines = []
    for of in figures.sets:
        facts, near = figures.facts[of], f"{CLOSEST}{of}"
        there, people = figures.facts.get(near), sorted(facts["draws"])
        line = [of.replace("_", " "), f"{facts['people']:,}", f"{people[0]:,} to {people[-1]:,}"]
        line.append(f"{there['people']:,}" if there else "–")
        below = [figures.their(of, "stability_histogram", 0.1, level) for level in (0, 1)]
        share = below[1] / below[0] if below[0] and below[1] else None
        line.append(
            f"{facts['share']:.0%}, {there['share']:.0%} / {share:.0%}" if there and share else f"{facts['share']:.0%}"
        )
        for epsilon in (1.0, 10.0):
            ours = figures.our(near, "stability_histogram, Δ₁ = √2", epsilon, 0)
            line.append(beside(ours, figures.their(of, "stability_histogram", epsilon, 0)))
        for ours, theirs in EXPERIMENTS.items():
            missed = figures.our(near, ours, 1.0, figures.depth(of), "false_negative")
            their = figures.their(of, theirs, 1.0, figures.depth(of), "false_negative_percent_mean")
            line.append(beside(None if missed is None else 100 * missed, their))
        lines.append(line)
    heads = [
        "",
        "people, ours",
        "of 100 draws",
        "closest",
        "largest area, ours, closest / theirs",
        "lost, ε = 1",
        "lost, ε = 10",
    ]
    heads += [f"{name} misses, %" for name in EXPERIMENTS.values()]
    return table("paper-draws.csv", heads, lines, lambda _: False)


def errors(figures: SideBySide) -> str:
    """Return a table of set, ε and level by mechanism."""
    lines = []
    for of in figures.sets:
        for epsilon in figures.epsilons:
            for level in SHOWN_LEVELS.get(figures.depth(of), range(1, figures.depth(of) + 1)):
                line = [of.replace("_", " "), f"{epsilon:g}", f"{level}"]
                line += [
                    beside(figures.our(of, name, epsilon, level), figures.their(of, name, epsilon, level))
                    for name in MECHANISMS
                ]
                line += [beside(figures.our(of, name, epsilon, level), None) for name in RECONCILED]
                lines.append(line)
    return table(
        "paper-errors.csv",
        ["set", "ε", "level", *MECHANISMS, *RECONCILED],
        lines,
        lambda line: line[1] == "1" and line[2] in ("8", "16"),
    )


def rates(figures: SideBySide, measure: str, sets: Iterable[str]) -> str:
    """Return a row per set and ε, of a rate at the finest level, by mechanism."""
    lines = []
    for of, epsilon in product(sets, figures.epsilons):
        line, at = [of.replace("_", " "), f"{epsilon:g}"], (epsilon, figures.depth(of))
        for name in (*MECHANISMS, *RECONCILED):
            ours = figures.our(of, name, *at, measure)
            theirs = figures.their(of, name, *at, f"{measure}_percent_mean")
            line.append(beside(None if ours is None else 100 * ours, theirs))
        lines.append(line)
    return table(f"paper-{measure}.csv", ["set", "ε", *MECHANISMS, *RECONCILED], lines, is_shown)


def seconds(figures: SideBySide) -> str:
    """Return a row per set and ε, by mechanism."""
    lines = []
    for of in figures.sets:
        for epsilon in figures.epsilons:
            line = [of.replace("_", " "), f"{epsilon:g}"]
            for name in (*MECHANISMS, RECONCILED[0]):
                row = figures.ours.get((of, name, epsilon))
                line.append(
                    beside(row["seconds"]["mean"] if row else None, figures.theirs.seconds.get((of, name, epsilon)))
                )
            lines.append(line)
    return table("paper-seconds.csv", ["set", "ε", *MECHANISMS, RECONCILED[0]], lines, is_shown)


def draw(figures: SideBySide, kind: str) -> str:
    """Return a picture of the sets of a kind: the largest error by level at ε = 1."""
    sets = [of for of in figures.sets if of.startswith(kind)]
    panels, values, levels = list[tuple[str, list[Layer]]](), [0.0], 1
    for of in sets:
        rows = list[dict[str, Any]]()
        for name, ours in DRAWN.items():
            means = [
                figures.our(of, ours, 1.0, level) if ours else figures.their(of, "inftda", 1.0, level)
                for level in range(1, figures.depth(of) + 1)
            ]
            if None not in means:
                rows += [{"x": level, "y": mean, "of": name} for level, mean in enumerate(means, 1)]
        panels.append((of.replace("_", " "), lines(rows)))
        values += [row["y"] for row in rows]
        levels = max(levels, figures.depth(of))
    wide, named = 320 * len(sets), [(name, style(number)) for number, name in enumerate(DRAWN)]
    axes = levels_axis(range(levels + 1)), linear_axis("records", values)
    return chart(panels, axes, named, f"Largest error by level at epsilon 1, {kind} sets", wide)


def page(rows: Sequence[Row], machine: str, theirs: Theirs) -> str:
    """Return the page.

    Args:
        rows: what `paper.py` has left: what each set is, and means per set, mechanism and ε.
        machine: on which they were run.
        theirs: the authors' figures; may be empty.
    """
    figures = SideBySide(rows, theirs)
    runs = {mechanism: row["runs"] for (_, mechanism, _), row in figures.ours.items()}
    return PAGE.format(
        runs=f"{counted(max(runs.values()))} of each{f', {runs[SOLVER]} of `{SOLVER}`' if SOLVER in runs else ''}",
        source=SOURCE if theirs.errors else ABSENT,
        ratios=ratios(figures),
        reasons=reasons(figures),
        others=others(figures),
        errors=errors(figures),
        discoveries=rates(figures, "false_discovery", [of for of in figures.sets if not of.endswith("complete")]),
        negatives=rates(figures, "false_negative", figures.sets),
        machine=machine,
        seconds=seconds(figures),
    )


def main() -> None:
    """Write the page and its pictures."""
    results, solver = load("paper"), load("paper-solver")
    if results is None:
        raise SystemExit("Nothing is measured yet: run `python benchmarks/paper.py` first.")
    rows, theirs = results["rows"] + (solver["rows"] if solver else []), theirs_at_hand()
    (HERE / "paper.md").write_text(page(rows, results["machine"], theirs), encoding="utf-8")
    for kind in ("binary", "random"):
        (HERE / f"paper-{kind}.svg").write_text(draw(SideBySide(rows, theirs), kind) + "\n", encoding="utf-8")
    print(HERE / "paper.md")


if __name__ == "__main__":
    main()
