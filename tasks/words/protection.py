"""What (ε, δ) means in words: whom it protects, and how well somebody can tell two neighbouring tables apart who has the release.

Somebody knows the whole table but for one thing, and holds two possibilities for it equally likely: which records a unit has, or whether
its records are there. The release tells them apart no better than (ε, δ) allows.
"""

import math
from decimal import ROUND_CEILING, Context

from tasks.words.numbers import format_probability, rounded_up

SUBSTITUTION = "substitution"

_ODDS = 2.0  # by which a belief may pass e^ε where there is a δ
_MOST_EXPONENT = 700.0  # beyond it the exponential of a float is infinite
_NO_LIMIT = 1e-9  # a guess that is wrong less often is as good as certain


def right_guess(epsilon: float, delta: float = 0.0) -> float:
    r"""Return the largest probability of a right guess between two neighbouring tables that are equally likely beforehand.

    .. math:: \frac{e^\epsilon + \delta}{1 + e^\epsilon}

    No reader does better, whatever they compute, and some release with this guarantee lets a reader do as well.

    Args:
        epsilon: ε >= 0.
        delta: δ in [0, 1].
    Source:
        Kairouz, Oh and Viswanath (2015), Theorem 2.1: the errors of any test between the two tables.
    """
    return 1 - wrong_guess(epsilon, delta)


def wrong_guess(epsilon: float, delta: float = 0.0) -> float:
    """Return the least probability of a wrong guess; one minus `right_guess`, without rounding to 0."""
    return (1 - delta) / (1 + math.exp(min(epsilon, _MOST_EXPONENT)))


def strongest_belief(epsilon: float, delta: float = 0.0, prior: float = 0.5) -> tuple[float, float]:
    r"""Return the belief in the truth that a reader may come to, and the probability with which it may be stronger than that.

    With the privacy loss L, which is the logarithm of how much more likely the release is under the truth than under the other table,

    .. math:: \Pr[L > \epsilon + t] \le \frac{\delta}{1 - e^{-t}}

    Without δ, L never exceeds ε. With it, t = ln 2 is taken: the odds of the belief exceed 2 e^ε times those beforehand with
    a probability of at most 2 δ. That they exceed e^ε times with a probability of at most δ does not follow from (ε, δ).

    Args:
        prior: the belief beforehand, in (0, 1). Other arguments are those of `right_guess`.
    """
    factor = _ODDS if delta else 1.0
    doubt = (1 - prior) / prior * math.exp(-min(epsilon, _MOST_EXPONENT)) / factor
    return 1 / (1 + doubt), min(1.0, 2 * delta)


def limits_guesses(epsilon: float, delta: float = 0.0) -> bool:
    """Return whether a guarantee keeps a reader from being as good as certain."""
    return wrong_guess(epsilon, delta) >= _NO_LIMIT


def format_right_guess(epsilon: float, delta: float = 0.0) -> str:
    """Return how often a reader guesses right at most, such as `73.2 of 100 times` or `2,999 of 3,000 times`; rounded up."""
    wrong = wrong_guess(epsilon, delta)
    if wrong >= 0.005:
        return f"{rounded_up(100 * (1 - wrong), 3)} of 100 times"
    if not limits_guesses(epsilon, delta):
        return "100 of 100 times"
    times = int(Context(prec=2, rounding=ROUND_CEILING).create_decimal(repr(1 / wrong)))
    return f"{times - 1:,} of {times:,} times"


def epsilon_in_words(epsilon: float, delta: float, unit: str, neighbours: str) -> list[str]:
    """Return what a guarantee means to one unit, sentence by sentence.

    Args:
        delta: of the guarantee; 0 where it has none.
        unit: whose records are protected, in words such as `one job`.
        neighbours: `substitution`, where the records of one unit are replaced by other records, or `add_remove`.
    """
    suppose = f"Suppose that somebody knows the whole table, but not whether the records of {unit} are in it, and holds both equally likely."
    if neighbours == SUBSTITUTION:
        suppose = (
            f"Suppose that somebody knows the whole table but the records of {unit}. They have two possibilities for these records in"
            " mind, and hold both equally likely."
        )
    without = "Without the release they guess right 50 of 100 times."
    if not limits_guesses(epsilon, delta):
        no_limit = "With it they may guess right every time: an ε as large as this limits nothing that matters."
        return [suppose, f"{without} {no_limit}"]
    guess = f"With it they guess right at most {format_right_guess(epsilon, delta)}, whatever they compute."
    strongest, stronger = strongest_belief(epsilon, delta)
    belief = f"No release makes them believe in the truth with more than {format_belief(strongest)}."
    if delta:
        belief = (
            f"They come to believe in the truth with more than {format_belief(strongest)} only with a probability of at most 2 δ, which"
            f" is {format_probability(stronger)}: this is what δ allows."
        )
    worst = (
        "This is the worst case: it holds whatever else they know. It does not cover what would be known without these records too,"
        f" such as what the release says about everybody together: {unit} may be like the others."
    )
    return [suppose, f"{without} {guess}", belief, worst]


def format_belief(belief: float) -> str:
    """Return a belief as a percentage that is never less, and is not rounded to certainty."""
    for digits in range(3, 13):
        text = rounded_up(100 * belief, digits)
        if float(text) < 100:
            return f"{text}%"
    return "99.9999999999%"


_ARTICLES = ("one ", "a ", "an ", "each ", "every ", "any ", "the ")
_RECORDS = ("record", "records")
_IRREGULAR = {
    "person": "people",
    "child": "children",
    "man": "men",
    "woman": "women",
    "wife": "wives",
    "life": "lives",
    "foot": "feet",
    "leaf": "leaves",
}
_ALIKE = frozenset({"people", "sheep", "fish", "series", "species", "aircraft"})
_VOWELS = "aeiou"
_PREPOSITIONS = (" of ", " in ", " at ", " with ", " on ", " from ", " per ", " by ", " who ", " that ", " which ")


def unit_words(unit: str, max_records: int) -> tuple[str, str]:
    """Return what to call one record and several: the unit where it has one record, otherwise a record.

    Args:
        unit: who or what is protected, as the spec says: `one job`.
    """
    text = " ".join(unit.split())
    named = next((text[len(article) :] for article in _ARTICLES if text.casefold().startswith(article)), text)
    if max_records != 1 or not named:
        return _RECORDS
    return named, plural(named)


def plural(words: str) -> str:
    """Return the plural of an English noun, with the words before it, and those that a preposition begins after it, as they are."""
    ends = [place for preposition in _PREPOSITIONS if (place := words.find(preposition)) > 0]
    end = min(ends, default=len(words))
    before, space, noun = words[:end].rpartition(" ")
    return f"{before}{space}{_plural(noun)}{words[end:]}"


def _plural(noun: str) -> str:
    before, dash, last = noun.rpartition("-")
    lower = last.casefold()
    if lower in _ALIKE:
        return noun
    if lower in _IRREGULAR:
        many = _IRREGULAR[lower]
        many = many.capitalize() if last[:1].isupper() else many
    elif lower.endswith("y") and lower[-2:-1] not in _VOWELS:
        many = f"{last[:-1]}ies"
    else:
        many = f"{last}es" if lower.endswith(("s", "x", "z", "ch", "sh")) else f"{last}s"
    return f"{before}{dash}{many}"
