"""Names as people write them: what somebody may have meant who misspelt one, and the order in which features are refined."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise, takewhile

_STROKES = {"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "ß": "ss"}  # which are no accents to Unicode
_PLAIN = str.maketrans(
    _STROKES | {letter.upper(): other.capitalize() for letter, other in _STROKES.items() if letter not in "ıß"}
)


def plain(text: str) -> str:
    """Return a text as suggestions compare it: without accents and outer blanks, upper and lower case alike."""
    return " ".join(_without_accents(text.casefold()).split())


def _without_accents(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text)
    return "".join(one for one in letters if not unicodedata.combining(one)).translate(_PLAIN)


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, without accents: `PULocationID` and `pu_location_id` have the same words."""
    separated = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", _without_accents(name))  # `PULocation` becomes `PU Location`
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+|\d+", separated)]


def closest(name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the known names that somebody may have meant, the likeliest first.

    Those that differ only by case, accents or leading zeros are meant before those that have another letter. A number beyond the end of
    numbers at equal distances means none of them.

    Args:
        name: as it was written.
        known: the names that there are; they must be public.
        cutoff: how similar names must be, between 0 and 1, as difflib measures it; or else one letter is wrong, missing or too much,
            or two have changed places.
    """
    text, by_plain = plain(name), dict[str, list[str]]()
    for one in known:
        by_plain.setdefault(plain(one), []).append(one)
    alike = [one for one in by_plain if one == text] or [one for one in by_plain if one.lstrip("0") == text.lstrip("0")]
    if not alike and not _beyond(text, by_plain):
        near = sorted((one for one in by_plain if _differs_once(text, one)), key=lambda one: -_shared(text, one))
        alike = [*dict.fromkeys([*get_close_matches(text, by_plain, most, cutoff), *near])]
    return [one for of in alike for one in by_plain[of]][:most]


def _differs_once(one: str, other: str) -> bool:
    """Return whether two texts that share a letter differ by one letter, or by two that have changed places."""
    before = _shared(one, other)
    after = _shared(one[before:][::-1], other[before:][::-1])
    left, right = one[before : len(one) - after], other[before : len(other) - after]
    return (before + after > 0 and max(len(left), len(right)) <= 1) or (len(left) == 2 and left == right[::-1])


def _shared(one: str, other: str) -> int:
    """Return with how many equal letters two texts begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _beyond(text: str, known: Iterable[str]) -> str:
    """Return what numbers at equal distances there are, where a text is a number beyond their end; empty where it is not."""
    numbers = sorted({int(one) for one in known if one.isdecimal()})
    if not re.fullmatch(r"-?[0-9]+", text) or len(numbers) < 3 or numbers[0] <= int(text) <= numbers[-1]:
        return ""
    is_even = len({later - earlier for earlier, later in pairwise(numbers)}) == 1
    return f"Its numbers go from {numbers[0]} to {numbers[-1]}." if is_even else ""


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the question whether somebody meant the known name that is closest; empty where none is close.

    Of a number beyond the end of those at equal distances, it is a sentence that says which there are. Arguments are those of `closest`.
    """
    known = [*known]
    alike = closest(name, known, 1, cutoff)
    return f"Did you mean {alike[0]}?" if alike else _beyond(plain(name), known)


def with_question(fault: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence on an unknown name, with `did_you_mean` behind it."""
    return f"{fault} {did_you_mean(name, known)}".rstrip()


Levels = Mapping[str, Sequence[str]]  # per feature, its levels, coarse to fine


def refinement(entry: str, levels: Levels) -> tuple[str, int] | None:
    """Return what an entry of `release.order` refines: a feature, down to which of its levels.

    Names may hold dots. A feature of exactly this name is meant first. Otherwise the feature with the longest name is meant
    that stands before a dot, with one of its levels after it.

    Returns:
        The feature, and the number of its level from 1 on, which is the finest one where the entry is a feature's name;
        None where the entry is neither.
    """
    if entry in levels:
        return entry, len(levels[entry])
    dots = (place for place in range(len(entry) - 1, 0, -1) if entry[place] == ".")
    for feature, level in ((entry[:dot], entry[dot + 1 :]) for dot in dots):
        if level in levels.get(feature, ()):
            return feature, levels[feature].index(level) + 1
    return None


def faults_of_order(order: Sequence[str], levels: Levels, finest: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with `release.order`, each fault with its rule and the next step, in a sentence or two.

    The order must refine every feature through its levels, coarse to fine, down to its finest released one, each level once.

    Args:
        levels: of all features, as in the codebooks.
        finest: the finest released level of each feature, one of its levels.
    """
    refined = {entry: refinement(entry, levels) for entry in order}
    unknown = [entry for entry, place in refined.items() if place is None]
    yield from (_unknown(entry, levels, finest) for entry in unknown)
    for feature, names in levels.items() if not unknown else ():  # a misspelt level is not also missing
        entries = [(entry, place[1]) for entry in order if (place := refined[entry]) and place[0] == feature]
        yield from _faults_of_feature(feature, entries, levels, names.index(finest[feature]) + 1)


def _faults_of_feature(feature: str, entries: Sequence[tuple[str, int]], levels: Levels, finest: int) -> Iterator[str]:
    """Yield what is wrong with the entries of one feature, each with the number of the level that it names."""
    stop, given = levels[feature][finest - 1], {level for entry, level in entries if entry != feature}
    reached, before, mentioned = 0, "", set[int]()
    for entry, level in entries:
        if entry != feature and level > finest:
            yield (
                f"release.order must end at the finest released level of {feature}, which is {stop}, got {entry}."
                f" Delete {entry}, or choose a finer level in release.finest."
            )
        elif reached >= min(level, finest):
            if level not in mentioned:
                again = "twice" if [named for named, _ in entries].count(entry) > 1 else f"after {before}"
                yield f"release.order must refine each level once, got {entry} {again}. Delete the later one."
        else:
            left_out = range(reached + 1, level if entry != feature else reached + 1)
            yield from (_left_out(entry_of(feature, of, levels), entry, of in given) for of in left_out)
            mentioned.update(left_out)
            reached, before = min(level, finest), entry
    if not before:
        yield f"release.order must refine every axis: {feature} is missing."
        return
    for of in range(reached + 1, finest + 1):
        missing, above = (
            entry_of(feature, of, levels),
            entry_of(feature, of - 1, levels) if of > reached + 1 else before,
        )
        yield f"release.order must refine {feature} down to {stop}: {missing} is missing. Write it after {above}."


def _left_out(missing: str, entry: str, is_given: bool) -> str:
    """Return the fault of a level that an entry leaves out; it may be given after that entry."""
    if is_given:
        return f"release.order must refine coarse levels first: {missing} must stand before {entry}. Move it there."
    return f"release.order must leave out no level: {missing} is missing. Write it before {entry}."


def _unknown(entry: str, levels: Levels, finest: Mapping[str, str]) -> str:
    """Return the fault of an entry that is neither a feature nor one of its levels, with the closest name."""
    known = [*levels]
    for feature, names in levels.items():
        known += [f"{feature}.{name}" for name in names[: names.index(finest[feature]) + 1] if len(names) > 1]
    features = [feature for feature in levels if entry.startswith(f"{feature}.")]
    rule = "release.order must hold axes, or levels as axis.level"
    if features:
        feature = max(features, key=len)
        names = levels[feature]
        rule = f"{rule}; {feature} has the {'level' if len(names) == 1 else 'levels'} {', '.join(names)}"
    return with_question(f"{rule}, got {entry}.", entry, known)


def entry_of(feature: str, level: int, levels: Levels) -> str:
    """Return the entry that refines a feature down to a level: the name of the axis where `axis.level` means another."""
    entry = f"{feature}.{levels[feature][level - 1]}"
    return entry if refinement(entry, levels) == (feature, level) else feature
