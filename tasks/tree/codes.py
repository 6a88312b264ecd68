"""Codes without a codebook: numbers the areas of the released codes."""

import numpy as np
import polars as pl

from tasks.tree.axis import IntArray


def numbered(paths: pl.DataFrame) -> tuple[pl.DataFrame, IntArray]:
    """Return the codebook of the areas that some rows have, and the finest area of each row.

    Areas are numbered in the order of their codes. So rows in the order of a tree over more areas are also in the order of
    the tree over these areas, and no gap in the numbers reveals that other areas exist.

    Args:
        paths: a row per leaf, a text column per level of one axis, coarse to fine; released. There may be no row.
    Returns:
        A row per finest area, sorted by all columns; and its number, int64, shape (rows,).
    """
    codebook = paths.unique().sort(paths.columns)
    names = {column: f"code_{number}" for number, column in enumerate(paths.columns)}
    areas = codebook.rename(names).with_row_index("area")
    found = paths.rename(names).join(areas, on=list(names.values()), how="left", maintain_order="left")
    return codebook, found["area"].to_numpy().astype(np.int64)
