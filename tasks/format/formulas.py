"""Codes and names that a spreadsheet takes for formulas."""

import polars as pl

from tasks.atlas.names import NAME, Names
from tasks.tree.order import Tree

_SHOWN = 3
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[+-]?[0-9]+([.,][0-9]+)?$"


def formulas_in(tree: Tree, names: Names) -> str:
    """Return a warning about the codes of a tree, and the names of its areas, that begin like a formula; empty if none does.

    Codes and names are published as the codebook has them, and CSV files have the names beside the codes. A spreadsheet that opens a
    CSV file evaluates what begins with =, +, - or @, unless it is a number.
    """
    finest = zip(tree.axes, tree.axis_levels(tree.depth), strict=True)
    codes = [own for axis, level in finest for own in axis.codes[:level]]
    texts = pl.concat([*codes, *(areas[NAME].rename("") for areas in names.tables.values())], rechunk=False)
    found = texts.filter(texts.str.contains(_FORMULA) & ~texts.str.contains(_NUMBER)).unique().sort()
    if found.is_empty():
        return ""
    shown = ", ".join(f"`{text}`" for text in found.head(_SHOWN))
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return (
        f"- A spreadsheet takes codes and names that begin with =, +, - or @ for formulas, and computes them: {shown}{more}. Import"
        " the CSV\n  files as text."
    )
