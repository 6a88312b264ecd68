"""Codes that the spec takes from other columns: the vault holds the records under them, and what they cannot be is refused unseen."""

import itertools
from datetime import UTC, datetime, time, timedelta

import polars as pl
import pytest

from flows.api import open_release
from storage.errors import InputError
from tasks.folder.verify.folder import verify
from tests.support.spec import of_features
from tests.support.tables import AREAS, HEADER, N1, N2, S1, csv

NOON = datetime(2024, 5, 17, 12, 30)  # a Friday
MAY = {"first": "2024-05-01", "last": "2024-05-31", "step": "day"}
AGES = {"from": {"column": "years", "bins": [0, 18, 65]}}
HIERARCHY = {"hour": {"from": {"column": "started_at", "take": "hour"}}, "age": AGES}
FEATURES = of_features("people.csv", HIERARCHY)


def features(taken, **also):
    """Return the keys of a spec whose hour is taken in such a way."""
    return of_features("people.csv", HIERARCHY | {"hour": {"from": {"column": "started_at"} | taken} | also})


def write(place, times, years):
    """Write a table of people, as CSV."""
    place.write("people.csv", csv(["started_at", "years", "note"], zip(times, years, itertools.repeat("x"))))


def test_a_release_of_taken_codes_is_one_of_columns(place):
    """A spec that writes bins and an hour alone is released, verified and asked for ranges, under the names of its features."""
    write(place, [f"2024-05-17 {hour:02}:15" for hour in (7, 8, 8, 25 % 24)] * 500, [17, 18, 64.5, 99] * 500)
    folder = place.release("people", **FEATURES)
    assert verify(folder) == []
    released = open_release(folder)
    for asked, true in (({"hour": "7..8"}, 1500), ({"hour": "7", "age": "0-17"}, 500), ({"age": "18-64..65+"}, 1500)):
        found = released.query(**asked).row(0, named=True)
        assert found["low"] - 100 <= true <= found["high"] + 100
    assert place.problems(**FEATURES) == ""


@pytest.mark.parametrize(("column", "taken", "also", "codes"), [
    ([NOON, NOON + timedelta(hours=12)], {"take": "hour"}, {}, ["12", "0"]),
    ([time(8, 5), time(23, 59)], {"take": "hour"}, {}, ["8", "23"]),
    ([NOON.replace(tzinfo=UTC)] * 2, {"take": "hour", "zone": "Europe/Rome"}, {}, ["14", "14"]),
    (["25:10:00", "05:10:00"], {"take": "hour"}, {"ordered": 30}, ["25", "5"]),
    ([NOON.date(), NOON.date() + timedelta(2)], {"take": "weekday"}, {}, ["5", "7"]),
    ([NOON, NOON + timedelta(20)], {"take": "month"}, {"values": ["2024-05", "2024-06"]}, ["2024-05", "2024-06"]),
    ([NOON, NOON + timedelta(1)], {"take": "day"}, {"ordered": MAY, "calendar": ["month"]}, ["2024-05-17", "2024-05-18"]),
    (["10115", "80331"], {"first": 2}, {"values": ["10", "80", "99"]}, ["10", "80"]),
    (["a", "b"], {}, {"values": ["a", "b"]}, ["a", "b"]),
])  # fmt: skip
def test_each_type_of_column_gives_its_codes(place, column, taken, also, codes):
    """Times, days and texts of a typed table have the codes that their text has, and each record is counted once."""
    pl.DataFrame({"started_at": column, "years": [3, 70]}).write_parquet(place.folder / "people.parquet")
    found = place.ingested(**features(taken, **also) | {"table": "people.parquet"})
    assert found == {(codes[0], "0-17"): 1, (codes[1], "65+"): 1}


@pytest.mark.parametrize(("column", "kind", "cast"), [
    (pl.Series([6001, 60010], dtype=pl.Int32), "INTEGER", """lpad("started_at"::VARCHAR, 5, '0')"""),
    (pl.Series([6001.0, 6001.5]), "DOUBLE", """lpad("started_at"::BIGINT::VARCHAR, 5, '0')"""),
    (pl.Series(["6001", "60010"]).cast(pl.Decimal(8, 2)), "DECIMAL", "5, '0')"),
    (pl.Series([NOON.date()] * 2), "DATE", '"started_at"::VARCHAR in a view'),
    (pl.Series([True, False]), "BOOLEAN", '"started_at"::INT::VARCHAR in a view'),
])  # fmt: skip
@pytest.mark.parametrize("unlisted", [None, "OTHER"])
def test_only_text_has_a_beginning(place, capfd, column, kind, cast, unlisted):
    """A number has lost its zeros, and would be in the area of another: its type is refused, which does not depend on the records."""
    keys = features({"first": 2}, values=["06", "60"], **{"unlisted": unlisted} if unlisted else {})
    for rows in (column, column.head(0)):
        table = pl.DataFrame({"started_at": rows, "years": [3] * len(rows)}, schema_overrides={"years": pl.Int64})
        table.write_parquet(place.folder / "people.parquet")
        error, said = place.refusal(capfd, **keys | {"table": "people.parquet"})
        assert f"must hold text, of which first: 2 is the beginning; it is of type {kind}." in str(error)
        assert cast in error.hint
        assert said == ""


def test_one_column_may_give_several_features(place):
    """The hour and the weekday of a trip come from the same column, and the record stays one."""
    write(place, ["2024-05-17 08:30", "2024-05-18 01:10"], [3, 4])
    both = {of: {"from": {"column": "started_at", "take": of}} for of in ("hour", "weekday")}
    assert place.ingested(**of_features("people.csv", both)) == {("8", "5"): 1, ("1", "6"): 1}


def test_both_ends_may_be_the_beginning_of_a_code(place):
    """Trips between municipalities are counted by their provinces, each trip once."""
    place.write("provinces.csv", csv(["region", "province"], sorted({area[:2] for area in AREAS})))
    place.write("trips.csv", csv(HEADER, [(N1, N2, 3), (N2, N1, 4), (N1, S1, 5)]))
    ends = {end: {"column": column, "first": 4} for end, column in (("origin", "home"), ("destination", "work"))}
    found = place.ingested(codebook="provinces.csv", levels=["region", "province"], **ends)
    assert found == {("0101", "0101"): 7, ("0101", "0201"): 5}


@pytest.mark.parametrize(("times", "years", "taken", "says"), [
    (["noon"], [3], {"take": "hour"}, "column started_at has values that give no code of hierarchy.hour."),
    (["2023-03-04 9:45 PM"], [3], {"take": "hour"}, "give no code of hierarchy.hour."),
    (["2023-03-04"], [3], {"take": "hour"}, "give no code of hierarchy.hour."),
    (["09:45"], [-3], {"take": "hour"}, "column years has values that give no code of hierarchy.age."),
    (["09:45"], ["aged"], {"take": "hour"}, "give no code of hierarchy.age."),
    ([""], [3], {"take": "hour"}, "column started_at must not be empty."),
    (["2023-03-04T09:45:00Z"], [3], {"take": "hour"}, "give no code of hierarchy.hour."),
    (["2023-03-04 09:45"], [3], {"take": "hour", "zone": "Asia/Tokyo"}, "give no code of hierarchy.hour."),
])  # fmt: skip
def test_a_value_that_cannot_be_taken_is_refused_unseen(place, capfd, times, years, taken, says):
    """The refusal names the column and what was to be taken, shows no value, and touches nothing."""
    write(place, [*times, *["2024-05-17 10:00Z" if "zone" in taken else "10:00"] * 2], [*years, 5, 6])
    error, said = place.refusal(capfd, **features(taken))
    assert says in str(error)
    assert ("strptime" in error.hint) == ("give no code of hierarchy.hour" in str(error))
    assert said == "1 row is at fault.\n"
    assert not any(str(value) in str(error) + error.hint for value in (*times, *years) if len(str(value)) > 1)


@pytest.mark.parametrize(("taken", "codes", "says"), [
    ({"take": "weekday"}, ["Mon", "Tue"], "such as 1 for Monday"),
    ({"take": "month"}, ["2024/05", "Jun"], "such as 5 or 2024-05"),
    ({"take": "hour"}, ["8h", "9h"], "such as 8 or 08"),
    ({"take": "quarter"}, ["Q1"], "such as 2 or 2024-Q2"),
    ({"take": "day"}, ["17.5."], "such as 17 or 2024-05-17"),
    ({"take": "year"}, ["24"], "such as 2024"),
    ({"first": 2}, ["101", "102"], "at most 2 letters or digits"),
    ({"bins": [0, 18, 65]}, ["0-17", "18-65", "65+"], "must list 18-64, the code of a bin"),
])  # fmt: skip
def test_codes_that_no_record_can_have_are_refused_by_the_spec(place, taken, codes, says):
    """Otherwise all records would be refused, or be in the area of all others; no row is read."""
    write(place, [], [])
    for also in ({"values": codes}, {"values": codes, "unlisted": "OTHER"}, {"ordered": codes}):
        with pytest.raises(InputError, match=r"hierarchy\.hour must list ") as refused:
            place.plan(**features(taken, **also) | {"table": "people.csv"})
        assert says in str(refused.value)


def test_a_column_that_is_not_there_is_named(place, capfd):
    """A plan may name any column; the check and the release say which one the table has not."""
    write(place, ["2024-05-17"], [3])
    keys = features({"take": "weekday", "column": "day"})
    error, _ = place.refusal(capfd, **keys)
    assert str(error) == "input.table: people.csv has no column day."
    assert "has no column day." in place.problems(**keys)
