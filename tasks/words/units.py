"""What a protected unit is called, one and several, from the spec's own words for it."""

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
        max_records: the most records that one unit has.
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
