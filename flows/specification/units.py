"""Words for those whom a release protects, in the names of columns and in `privacy.unit`: people, households, cards, vehicles."""

import re

from tasks.words.spelling import plain, words_of

_PERSONS = (
    "person people human individual resident inhabitant citizen user respondent participant customer client subject member subscriber"
    " commuter rider passenger traveller traveler driver cyclist visitor tourist patient student pupil child adult employee worker staff"
    " teacher tenant owner holder voter learner panelist applicant candidate somebody anyone everyone pid uid"
    " personne individu usager abonne habitant utente individuo persona abitante cliente usuario habitante pessoa utilizador persoon"
    " osoba osoby kisi henkilo agent membership passport"
    " reiziger reisende kunde nutzer einwohner bewohner befragte mitglied"
)
_HOUSEHOLDS = (
    "household hh family dwelling menage foyer famille famiglia familia hogar haushalt huishouden vivienda hhold"
)
_CARDS = "card smartcard device phone handset account licence license carte compte tessera tarjeta kaart karte gerat"
_VEHICLES = "vehicle car bike bicycle taxi cab scooter truck lorry ship vessel plate vehicule veicolo vehiculo fahrzeug voertuig"
_SHORT = {
    "per": "person",
    "emp": "person",
    "resp": "person",
    "trav": "person",
    "pess": "person",
    "pers": "person",
    "ind": "person",
    "men": "household",
    "hld": "household",
    "psn": "person",
    "fam": "household",
    "acct": "card",
    "veh": "vehicle",
}
_KINDS = {
    word: kind
    for kind, words in (
        ("person", _PERSONS),
        ("household", _HOUSEHOLDS),
        ("card", _CARDS),
        ("vehicle", _VEHICLES),
        ("unit", "unit"),
    )
    for word in words.split()
}


def _words(text: str) -> set[str]:
    return {*text.split()}


_EVENTS = _words(
    "trip journey ride leg tour stage job visit stay record row transaction tap flight delivery order event"
)
_NUMBERS = _words("no nr num number nummer numero")
_IDENTIFIERS = _NUMBERS | _words("id ids idx index key hash uuid guid token identifier pseudonym serial ref reference")
_BETWEEN = _words("unique anonymous anonymised anonymized anon pseudo hashed record")
# These need no identifier beside them, in the singular: the plural is a count, and the others are features as often.
_ALONE = _words(
    "person individual user respondent participant customer client citizen rider passenger traveller traveler commuter employee patient"
    " subscriber panelist household hh family hhid houseid card smartcard device handset account pid uid pnum sampno caseid pseudonym ssn phone serialno"
    " nino cpr imsi imei msisdn mmsi vin medallion plate licenceplate licenseplate numberplate personne individu usager utente cliente"
    " menage famiglia hogar haushalt carte tessera tarjeta karte"
)
_NOUNS = "|".join(sorted(_KINDS, key=len, reverse=True))
_LONG_NOUNS = "|".join(word for word in _KINDS if len(word) > 3)
_GLUED = re.compile(
    rf"(?P<before>id)?(?P<noun>{_NOUNS}|{'|'.join(_SHORT)})(e?[sn]|r)?(?P<after>id|idx|no|nr|num|key|hash|number|nummer)?"
)
_GLUED_ID = re.compile(rf"\w*?(?P<noun>{_LONG_NOUNS})(e?[sn])?id")


def is_unit(column: str) -> bool:
    """Return whether a column seems to say whose record a row is, by its name: a person, a household, a card, a vehicle.

    Its name is a word for these in the singular; or has an identifier behind such a word, or `id` before it, in one word or several.
    """
    words = _parts(column)
    if {"".join(words), plain(column)} & _ALONE or {"imsi", "imei", "msisdn"} & {*words} or words[-1:] == ["plate"]:
        return True
    nouns = [at for at, word in enumerate(words) if kind_of(word) or (len(words) == 2 and word in _SHORT)]
    for at in nouns:
        behind = [word for word in words[at + 1 :] if word not in _BETWEEN and not kind_of(word)][:1]
        is_many = words[at].endswith("s") and words[at] not in _SHORT  # persons_num is a number of persons
        if {*behind} & (_IDENTIFIERS - _NUMBERS if is_many else _IDENTIFIERS):
            return True
    return bool(nouns) and words[0] in {"id", "key", "hash"}


def kind_of(word: str) -> str:
    """Return what a word names, in the singular or the plural: person, household, card, vehicle or unit; empty for another word."""
    forms = [word.removesuffix(ending) for ending in ("", "s", "es", "n", "en", "e", "ren")]
    return next((_KINDS[form] for form in (*forms, f"{word.removesuffix('ies')}y") if form in _KINDS), "")


def kinds_in(text: str) -> set[str]:
    """Return what the words of a column's name or of a text name, as `kind_of` does."""
    words = _parts(text)
    short = [_SHORT.get(word, "") for word in words] if len(words) == 2 else []
    return {*map(kind_of, words), *short} - {""}


def is_of_events(unit: str) -> bool:
    """Return whether the words for a unit name what happens, such as one trip of a person, and not whoever it happens to."""
    words = [plain(word) for word in words_of(unit)]
    events = [at for at, word in enumerate(words) if word.removesuffix("s") in _EVENTS]
    before = [at for at, word in enumerate(words) if kind_of(word)]
    return bool(events) and {"all", "every", "whole"}.isdisjoint(words) and events[0] < min(before, default=len(words))


def _parts(name: str) -> list[str]:
    """Return the words of a name, and apart what it writes as one word, such as `PERNO`, `idmen` and `hashedcardid`."""
    parts = list[str]()
    for word in map(plain, words_of(name)):
        glued = _GLUED.fullmatch(word)
        of_id = _GLUED_ID.fullmatch(word)
        if glued and (glued["before"] or glued["after"]):
            parts += filter(None, [glued["before"], glued["noun"], glued["after"]])
        elif of_id:
            parts += [of_id["noun"], "id"]
        else:
            parts.append(word)
    return parts
