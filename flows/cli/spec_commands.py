"""The commands that release nothing: starters, checks, plans and comparisons of a spec, and synthetic sets of tables."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.arguments import DONE, WRONG, AsJson, SpecPath, print_answer, print_json
from flows.console import terminal
from flows.console.comparison_view import show_comparison
from flows.console.plan_view import show_check, show_decisions, show_plan, show_starter, show_synthesised
from storage.machine.caller import heard_by_caller

_EPSILONS = ["0.1,1,10"]  # of `compare`, unless others are named


def new(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="The confidential table: anything that input.table takes, such as trips.csv or file.duckdb::table.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The spec to write, a new file. Default: print the spec on stdout."),
    ] = None,
    codebook: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The public table of areas. Its columns become the levels, coarse to fine."),
    ] = None,
    every_key: Annotated[
        bool, typer.Option("--every-key", help="Write every key there is, each below its explanation.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Begin a spec for a table: guess its columns from the header. Reads no row of it."""
    from flows.specification.starters.starter import starter_answer

    with heard_by_caller():
        answer = starter_answer(table, out, codebook, every_key=every_key)
    if as_json:
        print_json(answer)
    else:
        show_starter(answer)  # a file, which is printed as it is


def check(spec: SpecPath, as_json: AsJson = False) -> int:
    """List every problem of a spec, or confirm that it can be released. Reads no row of the confidential table."""
    terminal.doing(f"checking {spec}")
    from flows.answers.check import check_answer

    with heard_by_caller():
        answer = check_answer(spec)
    print_answer(answer, as_json, show_check)
    return DONE if answer.ok else WRONG


def plan(
    spec: SpecPath,
    wanted: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="LEVEL=ERROR@CONFIDENCE",
            help="Also show which ε an error bound takes, such as county=50@95%.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Also write the plan as one page, for somebody who decides; replaces an earlier one.",
        ),
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Show all that the plan follows from.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show what a release would protect, what it would cost and how accurate it would be, or what its spec leaves undecided.

    Spends nothing and does not read the confidential table.
    """
    from flows.forecast.answer import plan_answer
    from flows.planning.plan import make_plan
    from flows.specification.file import load_spec, parse_target
    from flows.specification.undecided import Undecided

    target = parse_target(wanted) if wanted is not None else None
    try:
        file = load_spec(spec)
    except Undecided as fault:
        if not as_json:
            show_decisions(terminal.escaped(fault.decisions))
            raise
        error = {"error": str(fault), "field": fault.field, "hint": fault.hint}
        print_json(error | {"decisions": fault.decisions})
        return WRONG
    planned = make_plan(file)
    answer = plan_answer(planned, target)
    if html:
        from flows.forecast.page import write_plan_page

        terminal.doing(f"writing {html}")
        write_plan_page(html, planned, answer)
    print_answer(answer, as_json, partial(show_plan, details=details))
    if html:
        terminal.say(f"page: {html}")
    return DONE


def compare(
    spec: SpecPath,
    mechanisms: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,…",
            help="The mechanisms to try, as a spec names them; also the baselines laplace, hay, hay:pruned, hay:geometric,"
            " hay:pruned_geometric, binary_tree and eigen_design, by which no release is made. Default: inftda, inftda_reconciled,"
            " that of the spec, and optimal_ranges on one ordered axis; for group sizes, every mechanism that counts them.",
        ),
    ] = None,
    epsilon: Annotated[
        list[str], typer.Option(metavar="NUMBER,…", help="The values of ε to try. δ is the spec's.")
    ] = _EPSILONS,
    runs: Annotated[int, typer.Option(help="How often to try each.", min=1, max=10_000)] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to write the page and the rows; replaces earlier ones. Default: a new folder below the spec's output.",
        ),
    ] = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals", help="Also print the coverage and width of the intervals. The page always shows them."
        ),
    ] = False,
    utility: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,…", help="Also measure how useful the counts are, such as fleet; the spec's utility says how."
        ),
    ] = None,
    like: Annotated[
        bool,
        typer.Option(
            "--like",
            help="Compare on a made-up table of the same shape, from the spec and its public tables alone. The table itself is not"
            " opened, and need not be public or there.",
        ),
    ] = False,
    total: Annotated[
        int | None,
        typer.Option(help="With --like: how many records the made-up table has. Default: the spec's expected_total."),
    ] = None,
    skew: Annotated[
        float | None,
        typer.Option(
            help="With --like: how unequal its cells are, as the σ of their logarithms. 0 makes all alike; with 2, the default, one cell"
            " in forty has more than 50 times the records of the middle one."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try mechanisms on a public table or on a made-up one, and measure their errors against its counts. Charges and releases nothing."""
    from flows.cli.runs import compare_and_write, numbers_of
    from flows.specification.file import load_spec
    from flows.trials.made_up import made_up_of

    names, utilities = (
        [name.strip() for name in ",".join(of).split(",") if name.strip()] for of in (mechanisms or [], utility or [])
    )
    epsilons = numbers_of("--epsilon", ",".join(epsilon))
    file = load_spec(spec)
    made_up = made_up_of(file.spec, like=like, total=total, skew=skew)
    answer = compare_and_write(file, names, epsilons, runs, out, utilities, made_up)
    print_answer(answer, as_json, partial(show_comparison, intervals=intervals))


def synthesise(
    kind: Annotated[
        Literal["country", "binary", "random", "survey", "city", "shuttle", "households", "taxis"],
        typer.Argument(
            help="The country of the demonstration, one of the paper's sets by its hierarchy, a travel survey of 150 zones, the"
            " trips of a city of 48 zones by mode and hour, a city of 130 stops with shuttles and buses, households of a country, or"
            " what taxis do in the zones of a city."
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where to write the tables and the spec: a new or an empty folder.")
    ],
    density: Annotated[
        Literal["complete", "dense", "sparse"] | None,
        typer.Option(
            help="Of the paper's sets: how many pairs of areas have people: all (complete, the default), half of them, or one in a"
            " hundred."
        ),
    ] = None,
    day: Annotated[
        Literal["morning", "weekday", "weekend"] | None,
        typer.Option(
            help="Of the shuttle: the four half hours of a weekday from 08:00 to 10:00 (morning, the default), or all 48 of a"
            " weekday or of a weekend day."
        ),
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="How many households (20,000 if left out), or taxis (400 if left out).")
    ] = None,
    regions: Annotated[
        int | None, typer.Option(help="Of households and taxis: how many counties, or zones (40 if left out).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same set.")] = 2025,
    as_json: AsJson = False,
) -> None:
    """Draw a synthetic set of trips, households or taxis, with codebooks and the specs that release it."""
    from flows.synthetic import synthesise_answer

    answer = synthesise_answer(kind, out, seed, density=density, day=day, groups=groups, regions=regions)
    print_answer(answer, as_json, show_synthesised)
