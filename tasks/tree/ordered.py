"""Ordered axes: ages, hours, days or weeks, whose public levels are made by halving, from everything to single codes."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from hashlib import sha256
from itertools import islice, pairwise
from typing import Any
from unicodedata import normalize

import numpy as np
import polars as pl

from storage.tables import code_of, domains_of, is_ordered, numbers_between
from tasks.tree.axis import IntArray
from tasks.tree.order import Tree
from tasks.words.spelling import plain, words_of

MOST_CODES = 2**20

RANGE = ".."  # between the first and the last code of a made area, and of a range that a question names

# how many codes go round, by a word in the name of an axis, or by what is taken of a time
_ROUND = {
    60: "minute",
    24: "hour hr heure ora hora stunde uur",
    12: "month mois mese mes monat maand",
    4: "quarter trimestre quartal",
}
_ROUND |= {7: "weekday wday dow wochentag weekdag giorno jour"}
_ROUND_BY_WORD = {word: number for number, words in _ROUND.items() for word in words.split()} | {"dayofweek": 7}
_YEAR = re.compile(r"(19|20)\d\d")  # on a month or a quarter, which does not come again
_OF_DURATIONS = {
    "duration",
    "wait",
    "waiting",
    "tenure",
    "elapsed",
    "delay",
    "lag",
    "since",
    "until",
    "worked",
    "travel",
    "duree",
    "dauer",
}
_NAMED_ROUND = [  # by their first letters: English, German, Dutch, French, Italian, Spanish, Portuguese
    of.split()
    for of in (
        *(
            "mo tu we th fr sa su",
            "mo di mi do fr sa so",
            "ma di wo do vr za zo",
            "lu ma me je ve sa di",
            "lu ma me gi ve sa do",
        ),
        *("lu ma mi ju vi sa do", "se te qu qu se sa do"),
        *("jan feb mar apr may jun jul aug sep oct nov dec", "jan feb mar apr mai jun jul aug sep okt nov dez"),
        *("jan feb maa apr mei jun jul aug sep okt nov dec", "jan fev mar avr mai jui jui aou sep oct nov dec"),
        *("gen feb mar apr mag giu lug ago set ott nov dic", "ene feb mar abr may jun jul ago sep oct nov dic"),
        "jan fev mar abr mai jun jul ago set out nov dez",
    )
]
_CLOCK = re.compile(r"([01]?\d|2[0-3]) ?(?::([0-5]\d)|[hu](?:hr)?([0-5]\d)?)", re.IGNORECASE)
_DAY = 24 * 60  # minutes

# the levels that a calendar can put above days, coarse to fine
CALENDAR = ("year", "quarter", "month", "week")


@dataclass(frozen=True)
class OrderedAxis:
    """An axis whose codes have an order.

    Each area of a made level is a run of codes, named by its first and its last one, and is halved into the areas of the next.
    A run of one code goes down as an only child, so that all codes are at one level. So does each code beside the order: no area holds it
    and others, other than everything.

    Attributes:
        name: of the axis, and of its finest level.
        codes: in their order; behind them those beside it.
        branching: into how many parts a run is cut, whose sizes differ by at most one.
        calendar: the levels above the made ones, of `CALENDAR`; only for days.
        beside: how many codes stand beside the order.
    """

    name: str
    codes: tuple[str, ...]
    branching: int = 2
    calendar: tuple[str, ...] = ()
    beside: int = 0

    @cached_property
    def runs(self) -> tuple[IntArray, ...]:
        """Where the runs of every level begin among the codes, coarse to fine, int64, shape (areas of the level,)."""
        ordered = len(self.codes) - self.beside
        runs = [_runs_of_equal([_period(code, of) for code in self.codes[:ordered]]) for of in self.calendar]
        starts = runs[-1] if runs else np.zeros(1, dtype=np.int64)
        while len(runs) == len(self.calendar) or len(starts) < ordered:
            starts = parts_of_runs(starts, ordered, self.branching)
            runs.append(starts)
        return tuple(np.append(of, np.arange(ordered, len(self.codes))) for of in runs)

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of its levels, coarse to fine: those of the calendar, `<name>_1`, `<name>_2`, … and its own name."""
        made = len(self.runs) - len(self.calendar) - 1
        return (*self.calendar, *(f"{self.name}_{number}" for number in range(1, made + 1)), self.name)

    def codebook(self) -> pl.DataFrame:
        """Return the codebook: a row per code in their order, a text column per level, coarse to fine."""
        return pl.DataFrame(
            {
                name: codes.gather(np.searchsorted(starts, np.arange(len(self.codes)), side="right") - 1)
                for (name, codes), starts in zip(self.levels(), self.runs, strict=True)
            }
        )

    def levels(self) -> Iterator[tuple[str, pl.Series]]:
        """Yield the name of every level, coarse to fine, and the codes of its areas in their order, text."""
        codes = pl.Series(self.codes, dtype=pl.String)
        for number, (name, starts) in enumerate(zip(self.level_names, self.runs, strict=True)):
            first = codes.gather(starts)
            if number < len(self.calendar):
                apart = len(starts) - self.beside
                periods = [_period(code, name) if place < apart else code for place, code in enumerate(first)]
                yield name, pl.Series(periods, dtype=pl.String)
            elif name == self.name:
                yield name, codes
            else:
                yield name, first + RANGE + codes.gather(np.append(starts[1:], len(codes)) - 1)

    @property
    def sha256(self) -> str:
        """The sha256 of its codes, branching, calendar and codes beside, as canonical JSON, in place of that of a codebook's file."""
        content = [self.codes, self.branching, self.calendar, *([self.beside] if self.beside else [])]
        return sha256(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def parts_of_runs(starts: IntArray, end: int, branching: int) -> IntArray:
    r"""Return where the parts of some runs begin when each run is cut: part i of b of a run of n begins at :math:`\lfloor n i / b \rfloor`.

    Args:
        starts: where the runs begin, int64, shape (runs,).
        end: where the last one ends.
        branching: the most parts of a run, >= 2; a shorter run has one part per code.
    """
    sizes = np.diff(np.append(starts, end))
    parts = np.minimum(sizes, branching)
    run = np.repeat(np.arange(len(starts)), parts)
    part = np.arange(len(run)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins: IntArray = starts[run] + sizes[run] * part // parts[run]
    return begins


def ordered_axes(spec: Mapping[str, Any]) -> dict[str, OrderedAxis]:
    """Return the ordered axes of a spec, by name, from the spec as it is published."""
    domains = domains_of(spec).items()
    return {name: ordered_axis(name, domain) for name, domain in domains if is_ordered(domain)}


def ordered_axis(name: str, domain: Mapping[str, Any]) -> OrderedAxis:
    """Return an ordered axis from the keys `ordered`, `branching` and `calendar` of a spec."""
    calendar = tuple(domain.get("calendar") or ())
    ordered, beside = ordered_codes(domain["ordered"]), codes_beside(domain["ordered"])
    codes = with_unlisted([*ordered, *beside], domain.get("unlisted"))
    return OrderedAxis(name, codes, domain.get("branching", 2), calendar, len(codes) - len(ordered) if beside else 0)


def in_order(tree: Tree, spec: Mapping[str, Any]) -> Tree:
    """Return a tree whose axes say whether they have an order, from the spec as it is published."""
    domains = domains_of(spec)
    axes = (replace(axis, is_ordered=is_ordered(domains.get(axis.name))) for axis in tree.axes)
    return replace(tree, axes=tuple(axes))


def with_unlisted(codes: int | Sequence[object], unlisted: object) -> tuple[str, ...]:
    """Return the codes that a spec lists, or that many, and behind them that of records whose code is not listed, where it has one."""
    listed = tuple(normalize("NFC", str(code)) for code in (range(codes) if isinstance(codes, int) else codes))
    others = [] if unlisted is None else [normalize("NFC", str(unlisted))]
    return tuple(dict.fromkeys([*listed, *others]))


def ordered_codes(ordered: object) -> tuple[str, ...]:
    """Return the codes that the key `ordered` of a spec names, in their order.

    Args:
        ordered: a number n, for the codes 0 to n − 1; a list of codes; or a mapping of `first` and `last`, two days or two numbers, and `step`,
            or of `codes`, a number or a list; and of `beside`, which stand outside of the order.
    Raises:
        ValueError: the value is none of these. The message goes on after the name of the key.
    """
    if isinstance(ordered, Mapping):
        ordered = {key: value for key, value in ordered.items() if value is not None}
        if unknown := ordered.keys() - {"codes", "first", "last", "step", "beside"}:
            keys = ", ".join(map(str, sorted(unknown)))
            raise ValueError(f"must have the keys first, last and step, or codes, and beside, got {keys}.")
        if "codes" in ordered and len(ordered.keys() - {"beside"}) > 1:
            raise ValueError("must have either codes, or first and last.")
        codes = ordered_codes(ordered["codes"]) if "codes" in ordered else tuple(_run(ordered))
        if not set(codes).isdisjoint(codes_beside(ordered)):
            raise ValueError("must have codes beside the order that are none of it.")
    elif isinstance(ordered, list | tuple):
        codes = _listed(ordered)
    elif isinstance(ordered, bool) or not isinstance(ordered, int) or ordered < 1:
        raise ValueError(f"must be a number of codes >= 1, a list of codes, or {{first: …, last: …}}, got {ordered}.")
    else:
        codes = tuple(map(str, range(min(ordered, MOST_CODES + 1))))
    if len(codes) > MOST_CODES:
        raise ValueError("must have at most 2**20 codes.")
    return codes


def codes_beside(ordered: object) -> tuple[str, ...]:
    """Return the codes that stand beside those that the key `ordered` of a spec names; arguments and errors as those of `ordered_codes`."""
    beside = ordered.get("beside") if isinstance(ordered, Mapping) else None
    if isinstance(beside, list | tuple):
        return _listed(beside)
    if beside is None:
        return ()
    raise ValueError(f"must have a list of codes beside the order, such as [unknown], got {beside}.")


def _listed(codes: Sequence[object]) -> tuple[str, ...]:
    if not codes:
        raise ValueError("must list at least one code.")
    wrong = next((code for code in codes if isinstance(code, bool) or not isinstance(code, str | int)), codes)
    if wrong is not codes:
        raise ValueError(f"must list codes as text, got {wrong}; put it in quotes.")
    texts = tuple(normalize("NFC", str(code)) for code in codes)
    if any(not code.strip() for code in texts) or len(set(texts)) < len(texts):
        raise ValueError("must list each code once, in their order, and no blank code.")
    if any(RANGE in code for code in texts):
        raise ValueError(f"must list codes without {RANGE}, which stands between the ends of a range.")
    return texts


def _run(ordered: Mapping[str, object]) -> Iterator[str]:
    """Yield the codes from `first` to `last`, one too many where there are too many."""
    first, last, step = (ordered.get(key) for key in ("first", "last", "step"))
    if _is_number(first) and _is_number(last):
        stride = 1 if step is None else step
        if not _is_number(stride) or float(str(stride)) <= 0:
            raise ValueError(f"must have a step that is a number above 0, got {step}.")
        codes: Iterator[str] = map(code_of, numbers_between(*map(str, (first, last, stride))))
    else:
        begin, end = _day(first), _day(last)
        if step not in {None, "day", "week"}:
            raise ValueError(f"must have step day or week between two days, got {step}.")
        days = ((begin + timedelta(number)).isoformat() for number in range((end - begin).days + 1))
        codes = iter(dict.fromkeys([_period(day, "week") for day in days])) if step == "week" else days
    listed = tuple(islice(codes, MOST_CODES + 1))
    if not listed:
        raise ValueError(f"must have a last that is not before first, got first {first} and last {last}.")
    yield from listed


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _day(value: object) -> date:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise ValueError(
            f"must have first and last as two days such as 2024-01-31, or as two numbers, got {value}."
        ) from None


def codes_apart(domain: Mapping[str, Any]) -> int:
    """Return how many codes of an ordered axis stand behind those of its order, in no range: beside it, or that of records whose code is not listed."""
    codes = ordered_codes(domain["ordered"])
    return len(with_unlisted([*codes, *codes_beside(domain["ordered"])], domain.get("unlisted"))) - len(codes)


def goes_round(name: str, domain: Mapping[str, Any]) -> bool:
    """Return whether the first code of an ordered axis follows on its last one, as midnight follows on 23 o'clock.

    So it is if its spec says it, or says nothing and the axis has all hours, weekdays, months, quarters or minutes, by its name or by
    what `from` takes; the names of weekdays or months; or times of day at equal distances. Durations and months of a year do not go round.
    """
    codes, source = ordered_codes(domain["ordered"]), domain.get("from")
    if domain.get("unlisted") not in {None, *codes} and not codes_beside(domain["ordered"]):
        return False  # its code lies between the last one and the first
    if domain.get("round") is not None:
        return bool(domain["round"])
    taken = source["take"] if isinstance(source, Mapping) and "take" in source else name
    words = words_of(str(taken))
    if not _OF_DURATIONS.isdisjoint(words) or all(map(_YEAR.search, codes)):
        return False
    if any(len(codes) == _ROUND_BY_WORD.get(word) for word in [*words, "".join(words)]):
        return True
    for named in _NAMED_ROUND:
        begins = [plain(code)[: len(named[0])] for code in codes]
        if any(begins == named[first:] + named[:first] for first in range(len(named))):
            return True
    times = [_CLOCK.match(code) for code in codes]
    minutes = [60 * int(at[1]) + int(at[2] or at[3] or 0) for at in times if at]
    steps = {(after - before) % _DAY for before, after in pairwise([*minutes, *minutes[:1]])}
    return len(minutes) == len(codes) and steps == {_DAY // len(codes)}


def faults_of_calendar(ordered: object, calendar: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the calendar levels of an ordered axis; each message begins with the name of the key."""
    is_of_days = (
        isinstance(ordered, Mapping) and isinstance(ordered.get("first"), str | date) and ordered.get("step") != "week"
    )
    if calendar and not is_of_days:
        yield "calendar must be left out unless ordered has a first and a last day."
    if list(calendar) != [level for level in CALENDAR if level in calendar]:
        yield f"calendar must list levels from coarse to fine, each once: {', '.join(CALENDAR)}."
    if "week" in calendar and len(calendar) > 1:
        yield "calendar must have week alone: a week may lie in two months, quarters or years."


def _period(day: str, of: str) -> str:
    """Return the year, quarter, month or week of a day, the last by ISO 8601, which begins with a Monday."""
    if of == "week":
        year, week, _ = date.fromisoformat(day).isocalendar()
        return f"{year}-W{week:02}"
    if of == "quarter":
        return f"{day[:4]}-Q{(int(day[5:7]) + 2) // 3}"
    return day[:4] if of == "year" else day[:7]


def _runs_of_equal(codes: Sequence[str]) -> IntArray:
    begins = [0, *(number for number, (one, other) in enumerate(pairwise(codes), 1) if one != other)]
    return np.array(begins, dtype=np.int64)
