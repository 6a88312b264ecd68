"""The library of published folders covers every pair of what a release can be, but for the pairs that are listed here."""

from itertools import combinations

from tests.support.library import LAND, LAW, NEIGHBOURS, RECORDS, ROWS, VIEWS

UNCOVERED = {
    ("margins", "both"),  # shapes are written beside names, whatever the views
    ("one", "names"),
}


def test_every_pair_of_choices_is_in_the_library():
    """Every two values of two factors stand together in a row, but for those that are listed, which stand in none."""
    missing = set()
    for one, other in combinations((LAW, NEIGHBOURS, RECORDS, VIEWS, LAND), 2):
        wanted = {(a[one], b[other]) for a in ROWS.values() for b in ROWS.values()}
        missing |= wanted - {(row[one], row[other]) for row in ROWS.values()}
    assert missing == UNCOVERED
