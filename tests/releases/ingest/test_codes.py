"""Codes that the spec takes from other columns, and codes that the codebook lacks: the vault holds the records under them, or they are refused unseen."""

import itertools
from datetime import UTC, datetime, time, timedelta

import polars as pl
import pytest

from flows.answers.check import check_answer
from flows.answers.query import query_answer
from flows.api import open_release
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.counts.shard_files import read_codebook
from storage.errors import InputError, UsageError
from storage.machine.home import shard_folder
from tasks.folder.verify.folder import verify
from tasks.ingest.task import ingest, read_in_memory
from tests.support.households import LISTED, SPEC, draw_homes, write_spec, write_tables
from tests.support.spec import of_features
from tests.support.tables import AREAS, HEADER, LEVELS, N1, N2, S1, S2, UNKNOWN, csv, trips

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


def test_no_range_counts_what_stands_beside_the_order(place):
    """Ages from 60 on are those of the order; the last one holds all larger numbers, and unknown ones are asked for by their name."""
    bins = {"first": 0, "last": 90, "step": 5}
    age = {"from": {"column": "years", "bins": bins}, "ordered": {"beside": ["unknown"]}, "unlisted": "unknown"}
    keys = of_features("people.csv", {"age": age})
    keys["also"] |= {"mechanism": "unbiased_tree"}
    write(place, [""] * 3000, [61, 104, "", "none", 3, 59] * 500)
    folder = place.release("people", **keys)
    assert verify(folder) == []
    for asked, true in (("60..", 1000), ("90..", 500), ("unknown", 1000), ("60..+unknown", 2000), ("0..4", 500)):
        answer = query_answer(folder, None, None, [f"age={asked}"], simultaneous=False)
        assert answer.low - 60 <= true <= answer.high + 60
    for asked, says in (
        ("60..unknown", "unknown stands beside the order, and is in no range"),
        ("60..94", "94 in 60..94 is no"),
    ):
        with pytest.raises(UsageError, match=f"age: {says}"):
            query_answer(folder, None, None, [f"age={asked}"], simultaneous=False)


@pytest.mark.parametrize(("column", "taken", "also", "codes"), [
    ([NOON, NOON + timedelta(hours=12)], {"take": "hour"}, {}, ["12", "0"]),
    ([time(8, 5), time(23, 59)], {"take": "hour"}, {}, ["8", "23"]),
    ([NOON.replace(tzinfo=UTC)] * 2, {"take": "hour", "zone": "Europe/Rome"}, {}, ["14", "14"]),
    (["25:10:00", "05:10:00"], {"take": "hour"}, {"ordered": 30}, ["25", "5"]),
    ([NOON.date(), NOON.date() + timedelta(2)], {"take": "weekday"}, {}, ["5", "7"]),
    ([NOON, NOON + timedelta(20)], {"take": "month"}, {"values": ["2024-05", "2024-06"]}, ["2024-05", "2024-06"]),
    ([NOON, NOON + timedelta(1)], {"take": "day"}, {"ordered": MAY, "calendar": ["month"]}, ["2024-05-17", "2024-05-18"]),
    ([NOON, NOON + timedelta(7)], {"take": "week"}, {"ordered": MAY | {"step": "week"}}, ["2024-W20", "2024-W21"]),
    ([NOON, NOON + timedelta(365)], {"take": "week"}, {}, ["20", "20"]),
    ([0.5, 1.0], {}, {"ordered": {"first": 0, "last": 1, "step": 0.25}}, ["0.5", "1"]),
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


OTHER = "OTHER"
CODEBOOK = {"table": "codebook.csv", "levels": LEVELS}


def hierarchy(**also):
    """Return the keys of a spec over the codebook with others beside it."""
    return {"also": {"hierarchy": CODEBOOK | also}}


def people(mode, age):
    """Return the keys of a spec of people by mode and age."""
    return of_features("people.csv", {"mode": mode, "age": age})


def codebooks(place, **keys):
    """Return the areas of both ends of an ingested table."""
    place.in_vault(**keys)
    return [read_codebook(shard_folder("a-release"), end).rows() for end in ("origin", "destination")]


@pytest.mark.parametrize("code", [OTHER, N2, "zz"])
def test_codes_that_nobody_lists_are_in_one_public_area(place, capfd, code):
    """Unknown and blank codes count there, on both ends, also where it is an area of the codebook; the terminal hears how many."""
    rows = [(N1, UNKNOWN, 7), ("", N1, 5), (" ", "12", 3), (UNKNOWN, N1, 2), (S1, S1, 1)]
    place.write("trips.csv", csv(HEADER, rows))
    found = place.ingested(**hierarchy(unlisted=code))
    assert found == {(N1, code): 7, (code, N1): 7, (code, code): 3, (S1, S1): 1}
    said = capfd.readouterr().err
    assert f"Rows that count as {code} of origin, because their codes are not listed: 3.\n" in said
    assert f"Rows that count as {code} of destination, because their codes are not listed: 2.\n" in said


@pytest.mark.parametrize(("taken", "domain", "column", "codes"), [
    ({"take": "month"}, {}, ["2024-05-17", "2024-12-01", "soon"], ["5", "12"]),
    ({"take": "month"}, {"values": ["2024-05", "2024-06"]}, ["2024-05-17", "2024-06-01", ""], ["2024-05", "2024-06"]),
    ({"take": "hour"}, {}, ["25:10", "24:00", "8"], ["1", "0"]),
    ({"take": "hour"}, {"values": [f"{hour:02}" for hour in range(24)]}, ["8:30", "25:10", "x"], ["08", "01"]),
    ({"take": "hour"}, {"ordered": 30}, ["25:10", "24:00", "40:00"], ["25", "24"]),
    ({"take": "weekday"}, {}, ["2024-05-17", "2024-05-19", "x"], ["5", "7"]),
    ({"take": "quarter"}, {}, ["2024-05-17", "2024-12-19", "x"], ["2", "4"]),
    ({"take": "day"}, {"ordered": {"first": 1, "last": 31}}, ["2024-05-17", "2024-12-31", "x"], ["17", "31"]),
    ({"take": "year"}, {"values": ["2023", "2024"]}, ["2023-05-17", "2024-12-31", "x"], ["2023", "2024"]),
    ({"bins": [0, 18, 65]}, {}, ["3", "70", "-1"], ["0-17", "65+"]),
    ({"first": 2}, {"values": ["01", "10"]}, ["0123", "10x", "99"], ["01", "10"]),
])  # fmt: skip
def test_the_name_of_that_area_changes_no_code_that_is_taken(place, taken, domain, column, codes):
    """Whatever the unlisted area is called, the codes of the axis alone say how times are written."""
    place.write("people.csv", csv(["mode", "at"], [("m", value) for value in column]))
    for code in (OTHER, "n-a", "9999", "000"):
        at = {"from": {"column": "at"} | taken, "unlisted": code} | domain
        found = place.ingested(**people({"values": ["m"]}, at))
        assert found == {("m", codes[0]): 1, ("m", codes[1]): 1, ("m", code): 1}, code


def test_the_area_is_there_whatever_the_table_has(place):
    """With and without a record in it, the areas are the same: at every level one more, and nothing is refused."""
    with_none = codebooks(place, **hierarchy(unlisted=OTHER))
    place.write("trips.csv", trips((UNKNOWN, N1, 5), ("", "", 1)))
    assert codebooks(place, **hierarchy(unlisted=OTHER)) == with_none == [sorted([*AREAS, (OTHER,) * 3])] * 2
    assert codebooks(place, **hierarchy(unlisted=S2)) == [sorted(AREAS)] * 2


def test_a_path_that_nobody_lists_is_there_too(place):
    """With a column per level, known codes in an unknown order, and gaps, are in the area of all others."""
    header = ["h1", "h2", "h3", "work", "people"]
    place.write("trips.csv", csv(header, [(*AREAS[0], N1, 4), ("01", "0102", N1, N1, 5), ("01", "", N1, N1, 6)]))
    found = place.ingested(**hierarchy(unlisted=OTHER), origin=header[:3])
    assert found == {(N1, N1): 4, (OTHER, N1): 11}


@pytest.mark.parametrize(("mode", "age", "found"), [
    ({"values": ["bus", "car"]}, {"ordered": 3}, {("car", "2"): 1, ("?", "none"): 2, ("bus", "none"): 1}),
    ({"values": ["bus", "car", "?"]}, {"values": 3}, {("car", "2"): 1, ("?", "none"): 2, ("bus", "none"): 1}),
    ({"values": 2}, {"from": {"column": "age", "bins": [0, 2]}}, {("?", "2+"): 2, ("?", "none"): 2}),
])  # fmt: skip
def test_features_have_such_an_area(place, mode, age, found):
    """It stands among listed codes, and behind those of an order; what cannot be taken is there too; the folder is whole, and answers."""
    place.write("people.csv", csv(["mode", "age"], [("car", 2), ("boat", -1), ("", ""), ("bus", 70)]))
    keys = people(mode | {"unlisted": "?"}, age | {"unlisted": "none"})
    assert place.ingested(**keys) == found
    place.write("people.csv", csv(["mode", "age"], [("boat", 70), ("car", 1)] * 1000))
    folder = place.release("people", **keys)
    assert verify(folder) == []
    answer = open_release(folder).query(mode="?").row(0, named=True)
    assert answer["low"] - 100 <= (2000 if mode["values"] == 2 else 1000) <= answer["high"] + 100


def test_that_area_is_asked_for_by_its_code(place):
    """It has one code at all levels, and is one area: nobody need name a level, as two areas of one code still need."""
    place.write("codebook.csv", csv(LEVELS, [*AREAS, ("05", "0501", "05"), ("05", "0501", "050102")]))
    place.write("trips.csv", trips((UNKNOWN, N1, 500), (N1, N1, 300)))
    released = open_release(place.release(**hierarchy(unlisted=OTHER)))
    areas = (OTHER, *(f"{level}={OTHER}" for level in LEVELS))
    plain, *named = (released.query(origin=asked).row(0, named=True) for asked in areas)
    assert plain["low"] - 100 <= 500 <= plain["high"] + 100
    assert all((of["count"], of["low"], of["high"]) == (plain["count"], plain["low"], plain["high"]) for of in named)
    with pytest.raises(UsageError, match="05 is a code at the levels"):
        released.query(origin="05")


def recoded(place, rows, **also):
    """Write a table of codes that have changed, and return the keys of a spec that names it."""
    place.write("changes.csv", csv(["was", "is", "since"], [(*row, "2025") for row in rows]))
    return hierarchy(recode={"table": "changes.csv", "from": "was", "to": "is"}, **also)


def test_codes_that_have_changed_are_replaced_once(place):
    """Several old codes may have one new code, a known code may have become another, and codes without a row stay."""
    rows = [("OLD1", N1), ("OLD2", N1), ("OLD2", N1), (N1, N2), (S1, S1)]
    place.write("trips.csv", csv(HEADER, [("OLD1", "OLD2", 1), (N1, S2, 2), (S1, N2, 4), ("OLD2", S2, 8)]))
    assert place.ingested(**recoded(place, rows)) == {(N1, N1): 1, (N2, S2): 2, (S1, N2): 4, (N1, S2): 8}
    place.write("trips.csv", csv(HEADER, [("OLD1", UNKNOWN, 1), (UNKNOWN, "OLD2", 2)]))
    assert place.ingested(**recoded(place, rows, unlisted=OTHER)) == {(N1, OTHER): 1, (OTHER, N1): 2}


SPLIT = (
    "hierarchy.recode.table: column was must have one new code for each old one; see row 1, 3, not counting the header."
)


@pytest.mark.parametrize(("rows", "says"), [
    ([("OLD", N1), ("X", N1), ("OLD", N2)], SPLIT),
    ([(UNKNOWN, N1), (S1, S1), (UNKNOWN, S2), (UNKNOWN, N1)], SPLIT.replace("1, 3", "1, 3, 4")),
    ([("OLD", N1), ("X", " ")], "column is must hold codes of the axis; see row 2,"),
    ([("", N1)], "column was must not be empty; see row 1,"),
    ([("OLD", "0101")], "column is must hold codes of the axis; see row 1,"),
    ([("OLD", OTHER)], "column is must hold codes of the axis; see row 1,"),
])  # fmt: skip
def test_a_change_that_is_no_function_is_refused(place, capfd, rows, says):
    """An old code with two new ones would need weights; the plan refuses it, and names rows and no value."""
    keys = recoded(place, rows)
    error, _ = place.refusal(capfd, **keys)
    assert says in str(error)
    assert ("weights" in error.hint) == ("one new code" in says)
    assert says in str(check_answer(place.spec(**keys)).problems)


def test_a_table_of_changes_is_a_public_table(place, capfd):
    """It is not the confidential table, has the columns that the spec names, and stays as it was planned."""
    recode = {"table": "trips.csv", "from": "home", "to": "work"}
    error, _ = place.refusal(capfd, released=True, **hierarchy(recode=recode))
    assert "must not be the confidential table" in str(error)
    keys = recoded(place, [("OLD", N1)])
    wrong = hierarchy(recode={"table": "changes.csv", "from": "was", "to": "now"})
    error, _ = place.refusal(capfd, **wrong)
    assert str(error) == "hierarchy.recode.table: changes.csv has no column now."
    assert "has no column now" in place.problems(**wrong)
    plan = place.plan(**keys)
    assert set(plan.source.hashes) == {"hierarchy.table", "hierarchy.recode.table"}
    recoded(place, [("OLD", N2)])
    with pytest.raises(InputError, match=r"hierarchy\.recode\.table has changed since the release was planned\."):
        ingest.fn("a-release", plan.source, plan.units, plan.promised, 2**30)


@pytest.mark.parametrize("code", ["01", "0101"])
def test_a_code_of_a_coarser_area_is_no_code_for_others(place, capfd, code):
    """The area of all others would be two areas; the spec names another code."""
    error, _ = place.refusal(capfd, **hierarchy(unlisted=code))
    assert str(error) == "hierarchy.unlisted must be a code of the finest level that one area has, or a new code."


def groups_of(folder, region, keys):
    """Return, by region and size, how many groups have at least this size, with other keys of the regions and of the spec."""
    domains = {"hierarchy": {"region": SPEC["hierarchy"]["region"] | region}}
    plan = make_plan(load_spec(write_spec(folder, **domains | keys)))
    books, areas, true_counts = read_in_memory(plan.source, plan.units, plan.promised)
    county, size = (book.to_series(-1).gather(of) for book, of in zip(books.values(), areas, strict=True))
    return dict(zip(zip(county, size, strict=True), true_counts.tolist(), strict=True))


@pytest.mark.parametrize("keys", [{}, LISTED], ids=["of records", "listed"])
def test_regions_of_groups_have_such_an_area_too(tmp_path, own_home, keys):
    """Groups in a region that the codebook lacks are in the area of all others, or where a table of changes has them."""
    write_tables(tmp_path, draw_homes(60))
    before = groups_of(tmp_path, {}, keys)
    for name in ("people.csv", "addresses.csv"):
        path = tmp_path / name
        path.write_text(path.read_text().replace(",A2", ",Z9"))
    (tmp_path / "changes.csv").write_text("was,is\nZ9,A2\n")
    assert groups_of(tmp_path, {"recode": {"table": "changes.csv", "from": "was", "to": "is"}}, keys) == before
    after = groups_of(tmp_path, {"unlisted": OTHER}, keys)
    assert after == {(OTHER if county == "A2" else county, size): of for (county, size), of in before.items()}
