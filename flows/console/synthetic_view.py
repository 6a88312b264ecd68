"""Synthetic sets as people see them in a terminal."""

from typing import TYPE_CHECKING

from flows.console.terminal import escaped, print_line

if TYPE_CHECKING:
    from flows.synthetic import SyntheticSet


def show_synthesised(drawn: "SyntheticSet") -> None:
    """Draw what a synthetic set holds, and where its spec is."""
    drawn = escaped(drawn)
    print_line(
        f"SYNTHETIC: the set [bold]{drawn.set}[/] with seed {drawn.seed}: {drawn.people:,} people in"
        f" {drawn.pairs:,} pairs of {drawn.areas:,} areas\nspec: {drawn.spec}"
    )
