"""Which columns seem to say whose record a row is, by their names, and what the words for a unit name."""

import pytest

from flows.specification.units import is_of_events, is_unit, kinds_in

PEOPLE = "person user respondent individual rider customer traveller traveler employee worker patient member subscriber participant"
PEOPLE += " citizen student driver client subject resident child passenger commuter"
OTHERS = "household hh device card unit family account vehicle bike taxi"
ODD = (
    "AnonymisedCardID person_num person_idx traveller employee licence_plate imsi PERNO HHNO PersonenID idmen bikeId ID_MEN CardNo id_user"
    " HOUSEID hashedcardid IDIND ménage_id persona_id Haushaltsnr driver_license_no user_id_hash MSISDN"
    " id_osoby kişi_id henkilö_id emp_id veh_id hhold_id household_serial client_ref IMSI_hash VIN SSN cpr medallion CASEID fam_id"
)
NONE = (
    "trip_id ride_id passenger_count n_persons number_of_persons persons_num num_passengers VendorID RatecodeID member_casual user_type"
    " household_zone_id passengers workers vehicles sex education-num driver_age covid paid period period_id card_type_id station_id tour_id"
    " serial agent passport_type household_type_ref trip_num leg_no HHSIZE children home_id HomeID start_home_code taxi_zone_id bike_station_id men permit_id index"
)


@pytest.mark.parametrize("form", ["{}_id", "{}id", "{}ID", "{}_no", "hashed_{}_key", "{}s_id", "id_{}"])
def test_a_word_for_a_unit_beside_an_identifier_is_one(form):
    """Whoever is protected is known before an identifier, in one word or several, and behind `id`."""
    nouns = f"{PEOPLE} {OTHERS}".split()
    assert [noun for noun in nouns if not (is_unit(form.format(noun)) and is_unit(form.format(noun.title())))] == []


@pytest.mark.parametrize(("names", "are_units"), [(ODD, True), (NONE, False)], ids=["units", "none"])
def test_units_are_told_from_trips_counts_features_and_areas(names, are_units):
    """Short, glued and foreign names are units; numbers of units, what describes them, and where they live are none."""
    assert {name: is_unit(name) for name in names.split()} == dict.fromkeys(names.split(), are_units)


@pytest.mark.parametrize(("text", "kinds", "events"), [
    ("one resident", {"person"}, False), ("persons", {"person"}, False), ("one family", {"household"}, False),
    ("two children", {"person"}, False), ("all trips of one person", {"person"}, False),
    ("one trip of a person", {"person"}, True), ("one job", set(), True), ("one smartcard", {"card"}, False),
    ("PERNO", {"person"}, False),
])  # fmt: skip
def test_the_words_of_a_unit_say_whom_it_is_about(text, kinds, events):
    """Synonyms and plurals name the same, and a unit that happens, such as a trip, is nobody."""
    assert (kinds_in(text), is_of_events(text)) == (kinds, events)
