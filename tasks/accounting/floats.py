"""Exact numbers as floats, rounded to the safe side."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

DIGITS = 60  # of the decimal arithmetic; the results are floats with 17


def float_above(exact: Fraction) -> float:
    """Return the least float that is not below a number."""
    value = float(exact)
    return math.nextafter(value, math.inf) if Fraction(value) < exact else value


def float_below(exact: Fraction) -> float:
    """Return the largest float that is not above a number."""
    return -float_above(-exact)


def least_float(holds: Callable[[float], bool], start: float) -> float:
    """Return the least float for which a condition holds that is true from some float on; `start` is a few floats away at most."""
    while not holds(start):
        start = math.nextafter(start, math.inf)
    while holds(below := math.nextafter(start, 0.0)):
        start = below
    return start


def rounded_toward(exact: Decimal, toward: float) -> float:
    """Return the float nearest to `exact` on the side of `toward`."""
    value = float(exact)
    wrong_side = Decimal(value) > exact if toward < 0 else Decimal(value) < exact
    return math.nextafter(value, toward) if wrong_side else value
