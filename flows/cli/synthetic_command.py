"""The command that draws synthetic sets of tables."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.arguments import AsJson, print_answer
from flows.console.synthetic_view import show_synthesised


def synthesise(
    kind: Annotated[
        Literal["country", "binary", "random", "survey"],
        typer.Argument(
            help="The country of the demonstration, one of the paper's sets by its hierarchy, or a travel survey of 150 zones."
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
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same set.")] = 2025,
    as_json: AsJson = False,
) -> None:
    """Draw a synthetic set of trips, with a codebook and a spec that releases it."""
    from flows.synthetic import synthesise_answer

    print_answer(synthesise_answer(kind, density, out, seed), as_json, show_synthesised)
