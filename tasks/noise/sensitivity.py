"""How far one privacy unit can move the histogram of a level, in the Euclidean norm."""

import math
from fractions import Fraction


def l2_sensitivity_squared() -> int:
    """Return Δ₂² of every level below the root under substitution of one unit with one record.

    The unit's record leaves one cell and enters another: two counts change by one each. The root is the public total
    and does not change.

    Source:
        Boninsegna and Silvestri (2025), section on privacy; docs/notation.md.
    """
    return 2


def square_root_up(square: int) -> float:
    """Return the least float that is not below the square root of `square`."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
