"""Tables of noise, against the exact probabilities of a law."""

from decimal import Decimal
from itertools import pairwise

DIGITS = 150
WHOLE = 2**192
UNIT = Decimal(2) ** -192  # one step of an entry


def masses_of(table):
    """Return 2**192 P(noise = k) for k = −K … K, as the differences of the entries."""
    return [after - before for before, after in pairwise([0, *table.entries, WHOLE])]


def distance(table, law):
    """Return the total variation distance of a table's law from a law that is given for k = 0, 1, 2, …"""
    K = table.furthest
    of_table = {k: Decimal(mass) / WHOLE for k, mass in zip(range(-K, K + 1), masses_of(table), strict=True)}
    reach = max(K, len(law) - 1)
    true = dict(enumerate(law))
    return sum(abs(of_table.get(k, 0) - true.get(abs(k), 0)) for k in range(-reach, reach + 1)) / Decimal(2)


def decimal(value):
    """Return a fraction to the context's digits."""
    return Decimal(value.numerator) / Decimal(value.denominator)
