"""Synthetic sets as people see them in a terminal."""

from typing import TYPE_CHECKING

from flows.console.terminal import escaped, print_line

if TYPE_CHECKING:
    from flows.synthetic import SyntheticCity, SyntheticGroups, SyntheticSet


def show_synthesised(drawn: "SyntheticSet") -> None:
    """Draw what a synthetic set holds, and where its spec is."""
    drawn = escaped(drawn)
    print_line(
        f"SYNTHETIC: the set [bold]{drawn.set}[/] with seed {drawn.seed}: {drawn.people:,} people in"
        f" {drawn.pairs:,} pairs of {drawn.areas:,} areas\nspec: {drawn.spec}"
    )


def show_city(drawn: "SyntheticCity") -> None:
    """Draw what a made-up city holds, and where its specs are."""
    drawn = escaped(drawn)
    print_line(
        f"SYNTHETIC: the set [bold]{drawn.set}[/] ({drawn.day}) with seed {drawn.seed}: {drawn.trips:,} trips of"
        f" {drawn.travelled:,} types, of {drawn.trip_types:,} possible ones, between {drawn.stops:,} stops in {drawn.zones:,} zones\n"
        f"specs: {', '.join(drawn.specs)}"
    )


def show_groups(drawn: "SyntheticGroups") -> None:
    """Draw what a set of groups holds, and where its specs are."""
    drawn = escaped(drawn)
    print_line(
        f"SYNTHETIC: the set [bold]{drawn.set}[/] with seed {drawn.seed}: {drawn.records:,} records in {drawn.groups:,} groups of"
        f" {drawn.regions:,} regions; the largest group has {drawn.largest:,}\nspecs: {', '.join(drawn.specs)}"
    )
