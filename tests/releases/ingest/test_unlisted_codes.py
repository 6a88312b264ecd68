"""Codes that the codebook lacks: those of a public area for all others, and those that have changed."""

import pytest

from flows.answers.check import check_answer
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
