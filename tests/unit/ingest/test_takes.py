"""Codes that are taken from a column: each function gives one code or none, whatever a row has."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.tables import bin_codes, taken_codes
from tasks.ingest.takes import Take

HOURS, LATE = [str(hour) for hour in range(24)], [str(hour) for hour in range(30)]
MONTHS, DAYS = ["2024-05", "2024-06"], ["2024-05-17", "2024-05-18"]
ROME, NEW_YORK = Take("hour", "Europe/Rome"), Take("day", "America/New_York")
AGES, KM = (0.0, 18.0, 65.0), (0.0, 0.5, 2.5)

# how it is taken, the codes of the axis, and by value the code; None where there is none
TAKEN = [
    (Take("hour"), HOURS, {
        "2024-05-17 08:30:00": "8", "2024-05-17T23:59:59.999": "23", "2024/5/7 8:05": "8", " 08:30 ": "8", "24:00:00": "0", "25:10": "1",
        "47:59:59": "23", "48:00": None, "08:61": None, "00:00": "0", "2024-05-17": None, "8": None, "8:30 PM": None,
        "2024-05-17 8:30 PM": None, "17/05/2024 08:30": None, "2024-05-17T08:30:00Z": None, "2024-05-17 08:30:00+02": None,
        "2024-02-30 08:30": None, "": None, "2024-05-17 08:30 EST": None, "infinity": None, "epoch": None,
    }),
    (Take("hour"), LATE, {"25:10:00": "25", "29:59": "29", "05:00": "5", "2024-05-17 01:10": "1"}),
    (Take("hour"), [f"{hour:02}" for hour in range(24)], {"8:30": "08", "25:10": "01", "2024-05-17 17:00": "17"}),
    (ROME, HOURS, {
        "2024-05-17T08:30:00Z": "10", "2024-01-17T08:30:00Z": "9", "2024-05-17 08:30+02:00": "8", "2024-05-17 23:30:00 UTC": "1",
        "2024-05-17 08:30:00 Asia/Tokyo": "1", "2024-05-17 08:30-0500": "15", "2024-05-17 08:30:00": None, "08:30": None,
        "2024-05-17 08:30 PM": None, "2024-05-17": None,
    }),
    (NEW_YORK, DAYS, {"2024-05-18T03:59:00Z": "2024-05-17", "2024-05-18T04:00:00Z": "2024-05-18"}),
    (Take("weekday"), HOURS, {"2024-05-13": "1", "2024-05-19 12:00": "7", "12:00": None}),
    (Take("day"), DAYS, {"2024-05-17 00:00:00": "2024-05-17", "2024/5/7": "2024-05-07", "no day": None}),
    (Take("day"), LATE, {"2024-05-07": "7"}),
    (Take("month"), HOURS, {"2024-05-17": "5", "2024-12-31 23:59": "12"}),
    (Take("month"), MONTHS, {"2024-05-17": "2024-05", "1999-12-31": "1999-12"}),
    (Take("quarter"), ["1", "2"], {"2024-05-17": "2", "2024-12-01": "4"}),
    (Take("quarter"), ["2024-Q1"], {"2024-05-17": "2024-Q2", "2024-03-31": "2024-Q1"}),
    (Take("year"), ["2023", "2024"], {"2024-05-17 08:30": "2024", "999-01-01": None}),
    (Take(bins=AGES), [], {
        "0": "0-17", "17": "0-17", "17.9": "0-17", "18": "18-64", "18.0": "18-64", "64": "18-64", "65": "65+", "1e3": "65+",
        "-1": None, "nan": None, "inf": None, "old": None, "17,5": None, "": None,
    }),
    (Take(bins=KM), [], {"0.49": "0-0.5", "0.5": "0.5-2.5", "2.5": "2.5+", "-0.1": None}),
    (Take(first=2), [], {"09001": "09", "N1": "N1", "É1x": "É1", "7": "7"}),
    (Take(), [], {"N1": "N1", " x": " x"}),
]  # fmt: skip


@pytest.mark.parametrize(("take", "codes", "by_value"), TAKEN, ids=lambda of: getattr(of, "take", ""))
def test_what_is_taken(take, codes, by_value):
    """Each value has the code that its form says, and what has another form has none: nothing is guessed."""
    with duckdb.connect() as con:
        for session in ("UTC", "Asia/Tokyo"):  # of the machine, on which nothing depends
            con.execute(f"SET TimeZone = '{session}'")
            for value, code in by_value.items():
                sql = f"SELECT {take.sql('value', codes)} FROM (SELECT ?::VARCHAR AS value)"
                assert con.execute(sql, [value]).fetchall() == [(code,)], value


@given(st.lists(st.integers(-(10**5), 10**5), min_size=2, max_size=8, unique=True), st.integers(-(2 * 10**5), 2 * 10**5))  # fmt: skip
def test_each_number_is_in_one_bin(edges, number):
    """A number is in the last bin that begins at or below it, and in none below the first; all codes differ."""
    for unit in (1, 100):
        bins = tuple(edge / unit for edge in sorted(edges))
        codes = bin_codes(bins)
        assert len(set(codes)) == len(codes) == len(bins)
        below = sum(edge <= number / unit for edge in bins)
        with duckdb.connect() as con:
            sql = f"SELECT {Take(bins=bins).sql('value', [])} FROM (SELECT ? AS value)"
            assert con.execute(sql, [f"{number / unit:.2f}"]).fetchall() == [(codes[below - 1] if below else None,)]


@pytest.mark.parametrize("taken", [*map(Take, ("hour", "weekday", "month", "quarter")), Take(bins=AGES), Take(bins=KM), Take()])  # fmt: skip
def test_no_code_that_can_be_taken_is_a_fault(taken):
    """The codes that a spec need not list are never refused, with zeros before them or without; and they are where one lacks."""
    codes = taken_codes({"take": taken.take, "bins": taken.bins}) or ["N1"]
    assert taken.fault(codes) == taken.fault(codes, "OTHER") == taken.fault(codes[1:], codes[0]) == ""
    assert not taken.take or taken.fault([code.zfill(2) for code in codes]) == ""
    for code in codes if taken.take or taken.bins else ():
        assert f"must list {code}, " in taken.fault([other for other in codes if other != code], "OTHER")


@pytest.mark.parametrize(("taken", "codes", "says"), [
    (Take("month"), [str(month) for month in range(12)], "such as 5 or 2024-05; 0 is none"),
    (Take("weekday"), [str(day) for day in range(7)], "1 for Monday; 0 is none"),
    (Take("quarter"), ["01", "02", "03", "4"], "2 or 2024-Q2; 01 is none"),
    (Take("day"), [str(day) for day in range(31)], "17 or 2024-05-17; 0 is none"),
    (Take("month"), ["2024-05", "6"], "5 or 2024-05; 6 is none"),
    (Take("month"), ["2024-00"], "5 or 2024-05; 2024-00 is none"),
    (ROME, LATE, "8 or 08; 24 is none"),
    (Take("hour"), HOURS[:23], "must list 23, which records can have"),
    (Take("hour"), [*HOURS, "26"], "must list 24 and 25, which records can have"),
    (Take("hour"), [*HOURS, "999"], "8 or 08; 999 is none"),
    (Take("year"), [], "such as 2024"),
])  # fmt: skip
def test_codes_by_which_records_would_be_lost_are_a_fault(taken, codes, says):
    """A list that begins at 0, ends too early, or mixes forms would lose December or Sunday, refused or as unlisted."""
    for unlisted in (None, "OTHER"):
        assert taken.fault(codes, unlisted).endswith(says)


def test_bins_say_their_codes():
    """Whole numbers have the last number of a bin in its code, others the first of the next bin; one number alone is itself."""
    assert taken_codes({"bins": [0, 18, 65]}) == ["0-17", "18-64", "65+"]
    assert taken_codes({"bins": [0, 1, 2, 5]}) == ["0", "1", "2-4", "5+"]
    assert taken_codes({"bins": [-5, 0.5, 100.0]}) == ["-5-0.5", "0.5-100", "100+"]
    lengths = {"hour": 24, "weekday": 7, "month": 12, "quarter": 4, "day": 0, "year": 0}
    assert {part: len(taken_codes({"take": part})) for part in lengths} == lengths
