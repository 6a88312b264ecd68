"""Codes that a spreadsheet takes for formulas."""

import polars as pl

from tasks.tree.order import Tree

_SHOWN = 3
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-]?[0-9]+([.,][0-9]+)?$"


def formulas_in(tree: Tree) -> str:
    """Return a warning about the codes of a tree that begin like a formula; empty if none does.

    Codes are published as the codebook has them. A spreadsheet that opens a CSV file evaluates what begins with =, +, - or @,
    unless it is a number.
    """
    finest = zip(tree.axes, tree.axis_levels(tree.depth), strict=True)
    codes = pl.concat([of_level for axis, level in finest for of_level in axis.codes[:level]], rechunk=False)
    found = codes.filter(codes.str.contains(_FORMULA) & ~codes.str.contains(_NUMBER)).unique().sort()
    if found.is_empty():
        return ""
    shown = ", ".join(f"`{code}`" for code in found.head(_SHOWN))
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return (
        f"- A spreadsheet takes codes that begin with =, +, - or @ for formulas, and computes them: {shown}{more}. Import the"
        " CSV\n  files as text."
    )
