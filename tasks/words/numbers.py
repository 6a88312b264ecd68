"""Numbers as text for people: privacy costs, small probabilities, noise, error bounds, cells and counts.

A cost is rounded up and a remaining budget down, so that rounding never flatters a release.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_UNREADABLE = 10**15  # cells; larger numbers use powers of ten

_LONG = 1e7  # records; larger numbers use powers of ten

NOT_STATED = "n/a"  # in place of a number that nothing states; "none" would be read as zero

_LARGE_UNITS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
_LARGEST_ODDS = 10**15


def rounded_up(value: float, digits: int = 6) -> str:
    """Return a privacy cost as text, never less than its value."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))):.{digits}g}"


def format_spent(epsilon: float) -> str:
    """Return what is spent of a cap as text: ε at its δ, rounded up, or that δ itself is exceeded, so that no ε holds."""
    return "more than that δ" if math.isinf(epsilon) else rounded_up(epsilon)


def rounded_down(value: float, digits: int = 6) -> str:
    """Return a remaining budget as text, never more than its value."""
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(value))):.{digits}g}"


def format_left(left: float, spent: float, cap: float) -> str:
    """Return what one more release may cost as text, and why that is more than the cap less what is spent, where it is; ε each."""
    why = ", because releases cost less together than the sum of their ε" if left > (cap - spent) * (1 + 1e-9) else ""
    return f"left {rounded_down(left)} for one more release{why}"


def format_probability(probability: float) -> str:
    """Return a small probability in words, such as 1 in 100 million for 1e-8.

    The words never state less than the probability: its inverse is rounded down to two digits.

    Args:
        probability: in [0, 1].
    """
    if probability <= 0:
        return "0"
    if probability > 0.1:
        return f"{rounded_up(100 * probability, 3)}%"
    odds = Context(prec=2, rounding=ROUND_FLOOR).divide(Decimal(1), Decimal(repr(probability)))
    if odds > _LARGEST_ODDS:
        return f"less than 1 in {_LARGEST_ODDS // 10**12:,} trillion"
    for size, name in _LARGE_UNITS:
        if odds >= size:
            return f"1 in a {name}" if odds == size else f"1 in {(odds / size).normalize():,f} {name}"
    return f"1 in {int(odds):,}"


def format_sigma(sigma: float, *, summed: bool, digits: int = 3) -> str:
    """Return the noise of a level as text; `n/a` for a sum without a stated σ."""
    if not sigma:
        return NOT_STATED if summed else "exact"
    return f"{sigma:.{digits}f}" if 10**-digits <= sigma < _LONG else f"{sigma:.3g}" if sigma < 1 else f"{sigma:.3e}"


def format_cost(rho: float, epsilon: float, *, of_epsilon: bool, same_as: int | None = None) -> str:
    """Return what a level costs as text: in ε where a table is of that, otherwise in ρ, and `n/a` where it has no ρ.

    Args:
        rho: of the level; likewise `epsilon`.
        of_epsilon: whether the table is of ε.
        same_as: the level that it repeats, at no cost.
    """
    if same_as is not None:
        return f"same as level {same_as}"
    if of_epsilon:
        return f"{epsilon:.4g}"
    return NOT_STATED if epsilon else f"{rho:.4g}"


def format_bound(sigma: float, bound: float | None, *, summed: bool) -> str:
    """Return a level's error bound as text; `n/a` where none is stated."""
    if not (sigma or summed):
        return "exact"
    if bound is None:
        return NOT_STATED
    return f"± {bound:,.0f}" if bound < _LONG else f"± {rounded_up(bound, 4)}"


def format_deviations(least: float, most: float) -> str:
    """Return the least and the most standard deviation of the counts of a level as text, one number where they are alike."""
    one, other = f"{least:,.3g}", f"{most:,.3g}"
    return one if one == other else f"{one} to {other}"


def format_cells(number: int | None) -> str:
    """Return a number of cells as text, in full unless it is very large."""
    if number is None:
        return "unknown"
    return f"{number:,}" if number < _UNREADABLE else f"{Decimal(number):.3e}"


def format_rounded(value: float, digits: int = 3) -> str:
    """Return a number >= 0 rounded to some digits, or to a whole number where that has at least as many."""
    if value >= _LONG or 0 < value < 1e-3:
        return f"{value:.2e}"
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def format_short(count: int) -> str:
    """Return a count as short text, such as 1.2M."""
    if abs(count) < 100_000:
        return f"{count:,}"
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12)):
        if abs(count) < 999.5 * size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.2e}"


def format_share(share: float) -> str:
    """Return a share as a percentage of two digits, or three from 10% on."""
    return f"{100 * share:.3g}%" if share >= 0.1 else f"{100 * share:.2g}%"


def format_noise_rows(estimate: float | None, at_most: float) -> str:
    """Return which share of the rows is noise alone: estimated where it can be, and at most, where that is less than all of them."""
    if not at_most:
        return "0%"
    if at_most >= 1:
        return NOT_STATED if estimate is None else format_share(estimate)
    most = f"at most {format_share(at_most)}"
    return most if estimate is None else f"{format_share(estimate)}, {most}"


def format_percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.6g}%"
