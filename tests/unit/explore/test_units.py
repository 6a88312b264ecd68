"""What units are called in pages: one and several."""

import pytest

from tasks.words.units import unit_words

UNITS = {
    "one job": ("job", "jobs"),
    "one person": ("person", "people"),
    "One Person": ("Person", "People"),
    "one commuter": ("commuter", "commuters"),
    "a household": ("household", "households"),
    "one made-up person": ("made-up person", "made-up people"),
    "each company": ("company", "companies"),
    "one day": ("day", "days"),
    "one taxi": ("taxi", "taxis"),
    "one bus": ("bus", "buses"),
    "one child": ("child", "children"),
    "device": ("device", "devices"),
    "one person of the register": ("person of the register", "people of the register"),
}


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_with_one_record_names_the_records(unit: str) -> None:
    """The article goes, and the noun has its plural, with what stands around it."""
    assert unit_words(unit, 1) == UNITS[unit]


@pytest.mark.parametrize(("unit", "most"), [("one person", 3), ("", 1)])
def test_records_are_records_where_a_unit_has_several(unit: str, most: int) -> None:
    """Where a unit has several records, or no name, counts are of records."""
    assert unit_words(unit, most) == ("record", "records")
