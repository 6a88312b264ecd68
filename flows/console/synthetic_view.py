"""Synthetic sets as people see them in a terminal."""

from typing import TYPE_CHECKING

from flows.console.terminal import print_line

if TYPE_CHECKING:
    from flows.synthetic import SyntheticCity, SyntheticGroups, SyntheticSet


def show_synthesised(drawn: "SyntheticSet | SyntheticCity | SyntheticGroups") -> None:
    """Draw what a synthetic set holds, and where its specs are."""
    from flows.synthetic import SyntheticCity, SyntheticSet

    day = ""
    if isinstance(drawn, SyntheticSet):
        holds = f"{drawn.people:,} people in {drawn.pairs:,} pairs of {drawn.areas:,} areas\nspec: {drawn.spec}"
    elif isinstance(drawn, SyntheticCity):
        day = f" ({drawn.day})"
        holds = (
            f"{drawn.trips:,} trips of {drawn.travelled:,} types, of {drawn.trip_types:,} possible ones, between"
            f" {drawn.stops:,} stops in {drawn.zones:,} zones\nspecs: {', '.join(drawn.specs)}"
        )
    else:
        holds = (
            f"{drawn.records:,} records in {drawn.groups:,} groups of {drawn.regions:,} regions; the largest group has"
            f" {drawn.largest:,}\nspecs: {', '.join(drawn.specs)}"
        )
    print_line(f"SYNTHETIC: the set [bold]{drawn.set}[/]{day} with seed {drawn.seed}: {holds}")
