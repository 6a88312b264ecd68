"""Guesses the use of a table's columns from common column names. Reads no row."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flows.specification.sections.views import NOT_OF_CODES
from flows.specification.units import is_unit
from tasks.words.spelling import words_of

# Words in the names of origin columns, each with its counterpart for destinations: LODES, taxis, shared bicycles, surveys, other languages.
_BEGIN_AND_END = (
    "h>w origin>destination origin>dest orig>dest o>d from>to home>work home>workplace residence>workplace residence>work resid>work"
    " residenza>lavoro domicile>travail wohnort>arbeitsort codgeo>dclt commune>dclt pickup>dropoff boarding>alighting pu>do"
    " start>end source>target departure>arrival entry>exit i>j dep>arr origine>destination depart>arrivee residence>travail"
    " origine>destinazione partenza>arrivo origen>destino residencia>trabajo origem>destino residencia>trabalho herkomst>bestemming"
    " res>dest res>work ur>pow vertrek>aankomst einstieg>ausstieg hem>arbets zamieszkania>pracy cikis>varis lahto>maara"
    " van>naar woon>werk quelle>ziel herkunft>ziel start>ziel von>nach wohnung>arbeit"
)
_ENDS = [(begin, end) for begin, _, end in (pair.partition(">") for pair in _BEGIN_AND_END.split())]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Weights are not here: a survey's weight says how many people a record represents, and is not a number of records.
_COUNTS = _words(
    "count counts cnt trips trip flow flows people persons jobs commuters value s000 n obs volume frequency freq total passengers workers"
    " riders travellers employees residents vehicles ridership boardings alightings individui individus effectif numero anzahl viajes"
    " viajeros desplazamientos viagens fluxo fluxos flujo flujos flux flussi spostamenti pendolari deplacements navetteurs aantal ritten"
    " reizen fahrten wege pendler personen antal liczba lkm"
)
_NUMBER_OF = _words("n no nb num number of count counts total numero di nombre de")
_WEIGHTS = _words("weight weights wgt wt expansion grossing gewicht poids peso hochrechnungsfaktor")
_SEQUENCE = _words("num number nr no seq")  # after what it counts along, as in `trip_num`
_RECORDS = _words("trip ride journey leg record row")  # where each has its id, a row is one record
_IDENTIFIERS = _words("id nr no key hash number")
_PLACES = _words("lat lng lon long latitude longitude easting northing")
_NO_AREA = _words("time date datetime timestamp at name") | _PLACES
_NO_END = _NO_AREA | _words(
    "label l lib libelle type mode purpose activity indicator sequence x y actividad atividade attivita activite aktivitat motivo motif"
    " zweck proposito"
)
_CODES = _words("id code geocode geoid number nr codigo codice")
_AREAS = _words(
    "area areas zone region district municipality tract county msoa lsoa comune provincia commune gemeinde taz station stop kommun"
)
_OF_EACH_ROW = (_NO_AREA - {"at"}) | _words(
    "uuid guid rowid ssn email mail phone telephone firstname surname lastname created updated iban url ip caseno serial serialno ref"
    " reference nino pin passport respondent record"
)
_ABOUT_AREAS = (_PLACES - {"lng", "long"}) | _words("unnamed index name label population pop households km2 hectares")
ABOUT_PEOPLE = _words(
    "sex gender age race ethnicity education income occupation marital nationality citizenship sexe sesso sexo geschlecht geslacht alter"
    " eta edad leeftijd"
)
_ABOUT_RECORDS = _words("hour weekday month purpose mode")

Words = tuple[str, ...]
Pairs = list[tuple[Words, Words]]  # of the words of an origin's name and those of a destination's
_GLUED = re.compile(
    rf"^(o|d|h|w|hem|arbets|orig|dest|origin|home|work|from|to)({'|'.join(_AREAS | _CODES - {'id', 'nr', 'number'})})$"
)
_NAME = re.compile(r"^(\w{3,})(?:name|namen|namn|naam|bezeichnung)$")


@dataclass(frozen=True, slots=True)
class GuessedColumns:
    """The columns of a table by their guessed use.

    Attributes:
        origin: the columns of codes where trips begin: one, or one per level; empty for a table without trips.
        destination: the columns of codes where trips end, in the same order.
        features: the columns of codes of a table without trips; none of a table that says neither.
        count: the column of counts; None where each row seems to be one record.
        unit: the column that identifies units; None where none does, or several may.
        left_over: all other columns.
        units: the columns that may identify units.
    """

    origin: tuple[str, ...]
    destination: tuple[str, ...]
    features: tuple[str, ...]
    count: str | None
    unit: str | None
    left_over: tuple[str, ...]
    units: tuple[str, ...] = ()


def guess_columns(names: Sequence[str], most_features: int) -> GuessedColumns:
    """Return the guessed use of columns, each named once; columns beyond `most_features` features are left over."""
    units = tuple(name for name in names if is_unit(name))
    of_records = any(len(words) == 2 and words[0] in _RECORDS and words[1] == "id" for words in map(words_of, names))
    count = next((name for name in names if name not in units and _is_count(name) and not of_records), None)
    others = [name for name in names if name not in {*units, count}]
    origin, destination = _ends(others)
    features = candidates(others) if not origin else []
    if len(features) > 1 and not any(map(_is_feature, features)):
        features = []  # nothing says whether they are the ends of trips
    unit = units[0] if len(units) == 1 else None
    used = {*origin, *destination, *features[:most_features], unit, count}
    left_over = tuple(name for name in names if name not in used)
    return GuessedColumns(
        tuple(origin), tuple(destination), tuple(features[:most_features]), count, unit, left_over, units
    )


def candidates(names: Sequence[str]) -> list[str]:
    """Return the columns that may hold codes, by their names, each name once whatever the case of its letters."""
    able = [name for name in names if _may_be_feature(name) and not is_unit(name) and not _is_count(name)]
    return list({name.casefold(): name for name in reversed(able)}.values())[::-1]


def is_about_people(name: str) -> bool:
    """Return whether a column seems to describe people, by a word of its name."""
    return not ABOUT_PEOPLE.isdisjoint(words_of(name))


def _is_feature(name: str) -> bool:
    return is_about_people(name) or not _ABOUT_RECORDS.isdisjoint(words_of(name))


def are_known(names: Sequence[str]) -> bool:
    """Return whether some names are surely those of columns: the two ends of trips, or two features of people."""
    return bool(_ends(names)[0]) or sum(map(is_about_people, names)) > 1


def level_names(columns: Sequence[str]) -> list[str]:
    """Return names for the levels of columns whose names hold an end and a level, such as `home_region`."""
    ends = {word for pair in _ENDS for word in pair}
    names = ["_".join(word for word in words_of(column) if word not in ends) for column in columns]
    return names if all(names) and len(set(names)) == len(names) else [f"level_{k + 1}" for k in range(len(columns))]


def _ends(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns of both ends: pairs of names that differ only in the word for the end, or else pairs that share a word."""
    by_words = {tuple(_words_of_end(name)): name for name in names}
    for begin, end in _ENDS:
        mirrored = ((words, tuple(end if word == begin else word for word in words)) for words in by_words)
        pairs = [pair for pair in mirrored if begin in pair[0] and pair[1] in by_words]
        areas = [pair for pair in pairs if _NO_END.isdisjoint(pair[0])] or [of for of in pairs if of[0][-1] == "name"]
        if areas:
            return _columns_of(areas, by_words)
    return _columns_of(_only_destination(by_words) or _alike(by_words), by_words)


def _columns_of(pairs: Pairs, by_words: Mapping[Words, str]) -> tuple[list[str], list[str]]:
    """Return the columns of pairs: those that hold codes, if their names say so of some."""
    coded = [pair for pair in pairs if not _CODES.isdisjoint(pair[0])] or pairs
    return [by_words[begin] for begin, _ in coded], [by_words[end] for _, end in coded]


def _words_of_end(name: str) -> list[str]:
    """Return the words of a name; of two in one, such as `OTAZ`, `htract` or `Zonenname`, both."""
    name = re.sub(r"^(PU|DO)(?=[a-z])", r"\1 ", name)  # as in PUlocationID
    words = (_NAME.sub(r"\1 name", _GLUED.sub(r"\1 \2", word)) for word in words_of(name))
    return [part for word in words for part in word.split()]


def _sides(names: Iterable[Words]) -> tuple[list[Words], list[Words], list[Words]]:
    """Return the names, as words, with a word for origins alone, for destinations alone, and of areas without either."""
    begins, ends = ({pair[side] for pair in _ENDS if len(pair[side]) > 2} - _AREAS for side in (0, 1))
    known = [words for words in names if _NO_END.isdisjoint(words)]
    return (
        [words for words in known if not begins.isdisjoint(words) and ends.isdisjoint(words)],
        [words for words in known if not ends.isdisjoint(words) and begins.isdisjoint(words)],
        [words for words in known if not _AREAS.isdisjoint(words) and (begins | ends).isdisjoint(words)],
    )


def _only_destination(names: Iterable[Words]) -> Pairs:
    """Return the pair of the only destination and a column of areas, where no column says that it is an origin and none describes people."""
    origins, left, areas = _sides(names)
    is_only = not origins and len(left) == 1 and areas and not any(ABOUT_PEOPLE & {*words} for words in names)
    return [(areas[0], left[0])] if is_only else []


def _alike(names: Iterable[Words]) -> Pairs:
    """Return pairs of an origin and a destination that share a word for areas."""
    origins, left, _ = _sides(names)
    pairs = []
    for words in origins:
        other = max(left, key=lambda of: len({*words} & {*of}), default=())
        if {*words} & {*other} & (_AREAS | _CODES):
            left.remove(other)
            pairs.append((words, other))
    return pairs


def _is_count(name: str) -> bool:
    words = words_of(name)
    bare = "".join(words) in _COUNTS or words[:1] == ["nbflux"]
    is_sequence = len(words) > 1 and words[-1] in _SEQUENCE and words[-2] in _RECORDS
    return bare or (len(words) > 1 and not is_sequence and all(word in _COUNTS | _NUMBER_OF for word in words))


def is_weight(name: str) -> bool:
    """Return whether a column seems to say how many people an answer stands for, by its name."""
    return not _WEIGHTS.isdisjoint(words_of(name))


def is_no_level(name: str) -> bool:
    """Return whether a column of a codebook seems to describe its areas, by its name, rather than to hold them."""
    return not _ABOUT_AREAS.isdisjoint(_words_of_end(name))


def is_identifier(name: str) -> bool:
    """Return whether a column seems to have a value of its own in every row, or nearly, by its name: ids, times, addresses."""
    words = words_of(name)
    is_area = len(words) > 1 and words[-1] in _CODES and words[-2] in _AREAS
    return (
        bool(words)
        and not is_area
        and (words[-1] in _IDENTIFIERS or not _OF_EACH_ROW.isdisjoint({*words, "".join(words)}))
    )


def _may_be_feature(name: str) -> bool:
    """Return whether a feature may have this name, which becomes a column name and part of file names."""
    return (
        bool(name.strip())
        and not is_identifier(name)
        and not is_weight(name)
        and name.isprintable()
        and "/" not in name
        and name.casefold() not in NOT_OF_CODES
    )
