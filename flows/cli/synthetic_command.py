"""The command that draws synthetic sets of tables."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.arguments import AsJson, print_answer
from flows.console.synthetic_view import show_synthesised


def synthesise(
    kind: Annotated[
        Literal["country", "binary", "random", "survey", "shuttle", "households", "taxis"],
        typer.Argument(
            help="The country of the demonstration, one of the paper's sets by its hierarchy, a travel survey of 150 zones, a"
            " city of 130 stops with shuttles and buses, households of a country, or what taxis do in the zones of a city."
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
