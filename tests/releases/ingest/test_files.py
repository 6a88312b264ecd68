"""Files as people have them: how CSV is written, what a count is not, and which codes of a codebook are unclear."""

import gzip
from collections.abc import Sequence
from typing import Any

import pytest

from flows.answers.check import check_answer
from flows.specification.starter import starter
from storage.errors import InputError, SpecError
from tests.support.tables import AREAS, GOOD, LEVELS, N1, N2, S1, TRIPS, csv, trips


def lines(*rows: Sequence[object], separator: str = ",") -> str:
    """Return rows as lines of CSV."""
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


BESIDE: dict[
    str, tuple[Sequence[object], Sequence[object]]
] = {  # columns before and behind, in the header and in the rows
    "an index": (("",), (0,)),
    "a comma at the end": (("home", "work", "people", ""), ("",)),
    "two of one name": (("m", "m"), (1, 2)),
    "two blank names": (("", " "), (1, 2)),
    "names that differ in case": (("Mode", "mode"), ("a", "b")),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_columns_that_nobody_uses_may_have_any_name(place, kind):
    """Blank and repeated names beside the columns of the spec, in a table and in a codebook, in no way matter."""
    names, values = BESIDE[kind]
    own = ("home", "work", "people")
    if names[:3] == own:
        place.write("trips.csv", lines(names, *((*trip, *values) for trip in TRIPS)))
        place.write("codebook.csv", lines((*LEVELS, ""), *((*area, "") for area in AREAS)))
    else:
        place.write("trips.csv", lines((*names, *own), *((*values, *trip) for trip in TRIPS)))
        place.write("codebook.csv", lines((*names, *LEVELS), *((*values, *area) for area in AREAS)))
    assert check_answer(place.spec()).ok
    assert place.ingested() == GOOD
    begun = starter(str(place.folder / "trips.csv"), place.folder, str(place.folder / "codebook.csv")).spec
    assert "origin: home" in begun


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("home,work,people,people", "trips.csv has two columns people."),
        ("home,home,work,people", "trips.csv has two columns home."),
        (
            "home,People,work,people",
            "trips.csv has the columns People and people, which differ only in upper and lower",
        ),
    ],
)
def test_a_name_that_the_spec_uses_stands_there_once(place, header, told):
    """Where two columns have a name that the spec uses, that name is told, by `check` too."""
    place.write("trips.csv", lines(header.split(","), *((*trip, 1) for trip in TRIPS)))
    with pytest.raises(InputError, match=told):
        place.ingested()
    assert told in str(check_answer(place.spec()).problems)


@pytest.mark.parametrize(
    ("header", "hint"),
    [
        ("Home,WORK,People", "Did you mean Home?"),
        ("HOME,work,people", "Did you mean HOME?"),
        ("home ,work,people", 'Its name there is "home ": delete the blanks around it.'),
    ],
)
def test_a_header_in_other_letters_is_told(place, header, hint):
    """A name in letters of another case, or with blanks around it, is told; so the first line is a header."""
    place.write("trips.csv", lines(header.split(","), *TRIPS))
    with pytest.raises(InputError, match="has no column home") as refused:
        place.ingested()
    assert refused.value.hint == hint


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("name", ["wide.csv", "wide.csv.gz"])
def test_the_first_bytes_say_the_encoding(place, encoding, name):
    """Tables, codebooks and matrices with a mark of their encoding are read by it."""

    def encoded(text: str) -> bytes:
        mark = "\ufeff" if encoding == "utf-16-be" else ""
        content = (mark + text).encode(encoding)
        return gzip.compress(content) if name.endswith(".gz") else content

    place.write(name, encoded(trips(header=("home", "work", "people"))))
    place.write(f"areas_{name}", encoded(csv(LEVELS, AREAS)))
    assert place.ingested(table=name, codebook=f"areas_{name}") == GOOD
    zones = sorted({code for trip in TRIPS for code in trip[:2]})
    cells = {trip[:2]: trip[2] for trip in TRIPS}
    place.write(name, encoded(lines(["", *zones], *([a, *(cells.get((a, b), 0) for b in zones)] for a in zones))))
    of_matrix: dict[str, Any] = dict.fromkeys(("table", "origin", "destination", "count"))
    assert place.ingested(**of_matrix | {"matrix": name}) == GOOD


def test_a_row_that_is_too_long_is_refused_in_any_encoding(refusing, capfd):
    """Rows that DuckDB does not decode are counted too, and none is shown."""
    refusing.write("trips.csv", (trips() + f"{N2},{N1},5,more\n").encode("utf-16"))
    error, _ = refusing.refusal(capfd)
    assert str(error) == "input.table: trips.csv cannot be read as CSV in UTF-16."
    assert "more or fewer fields" in error.hint


DIALECTS: dict[str, tuple[dict[str, Any], str, str]] = {  # how it is written, the content, the encoding
    "semicolons": ({"separator": ";"}, lines(("home", "work", "people"), *TRIPS, separator=";"), "utf-8"),
    "tabs": ({"separator": "\t"}, lines(("home", "work", "people"), *TRIPS, separator="\t"), "utf-8"),
    "an encoding": (
        {"encoding": "windows-1252"},
        lines(("home", "work", "people", "ü"), *((*t, "é") for t in TRIPS)),
        "cp1252",
    ),
    "everything": (
        {"separator": "|", "encoding": "iso-8859-15", "decimal": ",", "null": ["*", "NA"]},
        lines(("home", "€", "work", "people"), *((a, "*", b, f"{n},0") for a, b, n in TRIPS), separator="|"),
        "iso-8859-15",
    ),
}


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_spec_says_how_csv_is_written(place, kind):
    """What cannot be seen of CSV stands in the spec, for the table, for the codebook and for a matrix; `check` reads it too."""
    dialect, content, encoding = DIALECTS[kind]
    place.write("odd.csv", content.encode(encoding))
    assert place.ingested(table="odd.csv", csv=dialect) == GOOD
    assert check_answer(place.spec(table="odd.csv", csv=dialect)).ok
    separator = dialect.get("separator", ",")
    place.write("areas.csv", lines(LEVELS, *AREAS, separator=separator).encode(encoding))
    also = {"hierarchy": {"table": "areas.csv", "levels": LEVELS, "csv": dialect}}
    assert place.ingested(also=also) == GOOD
    assert check_answer(place.spec(also=also)).ok


def test_null_is_a_key_and_stands_for_nothing(place):
    """The key needs no quotes; a count and a code that it names are missing, and an area's parent may be."""
    spec = place.spec(table="odd.csv", csv={"null": "NA"})
    spec.write_text(spec.read_text().replace("'null'", "null").replace('"null"', "null"))
    place.write("odd.csv", csv(("home", "work", "people"), [*TRIPS, (N1, N2, "NA")]))
    assert check_answer(spec).ok
    with pytest.raises(InputError, match="column people must not be empty"):
        place.ingested(table="odd.csv", csv={"null": "NA"})


@pytest.mark.parametrize(
    ("keys", "field", "told"),
    [
        ({"csv": {"separator": ";;"}}, "input.csv.separator", "must be one character"),
        ({"csv": {"separator": '"'}}, "input.csv.separator", "must be one character"),
        ({"csv": {"encoding": "latin-99"}}, "input.csv.encoding", "must be an encoding such as windows-1252"),
        ({"csv": {"encoding": "base64"}}, "input.csv.encoding", "must be an encoding such as windows-1252"),
        ({"csv": {"decimal": ";"}}, "input.csv.decimal", "must be"),
        ({"csv": {}, "table": "trips.parquet"}, "input.csv", "must be left out, since input.table names no CSV file"),
    ],
)
def test_a_dialect_that_cannot_be_is_refused(place, keys, field, told):
    """Each key of `csv` is refused by its name, and all of them where the file is none."""
    with pytest.raises((SpecError, InputError), match=told) as refused:
        place.plan(**keys)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"home,""work"",people"\n"N1,""N2"",5"\n', "the lines of trips.csv are quoted whole"),
        ('"home,work,people"\n"N1,N2,5"\n', "the lines of trips.csv are quoted whole"),
        ("home;work;people\nN1;N2;5\n", "must use commas between columns; it seems to use `;`"),
    ],
)
def test_lines_that_are_one_field_are_told(place, text, told):
    """Lines quoted whole, and other separators, each have their own sentence and mend."""
    place.write("trips.csv", text)
    with pytest.raises(InputError, match=told) as refused:
        place.ingested()
    assert "quote" in refused.value.hint or 'csv: {separator: ";"}' in refused.value.hint


NO_TEXT, NO_GROUPS = "They cannot be read as 0", "thousands separators, as in 1,234"
COUNTS = {
    **dict.fromkeys(("*", "<5", "ND", "-", "..", "c", "n/a", "5 or so", "#####"), NO_TEXT),
    **dict.fromkeys(('"1,234"', "1 234", "1'234", "1.234.567", "1\u202f234", '"12,345,678.0"'), NO_GROUPS),
    **dict.fromkeys(("2.5", "1e5", '"1,5"', "nan", "1.234"), "are no counts of records"),
}


@pytest.mark.parametrize("count", COUNTS)
def test_what_is_no_count_is_told_as_what_it_is(refusing, capfd, count):
    """Marks of suppressed counts, thousands separators and fractions each have their own advice, and none is shown."""
    refusing.write("trips.csv", trips((N1, N1, count)))
    error, said = refusing.refusal(capfd)
    assert str(error) == "input.table: column people must hold whole numbers."
    assert COUNTS[count] in error.hint
    assert said == "1 row is at fault.\n"


@pytest.mark.parametrize(
    ("codebook", "levels", "named"),
    [
        ("code,tract\n09001,T1\n09190,T1\n", ["code", "tract"], "column tract repeats T1."),
        ("code,tract\nB1,T1\nB1,T2\nB2,T2\n", ["code", "tract"], "T2 has several rows"),
        ("city,borough,zone\nX,Bronx,Z1\nY,Bronx,Z2\n", ["city", "borough", "zone"], "Bronx under X and Y"),
        (
            "city,borough,zone\nX,Soho,Z1\nX,Mile End,Z2\nY,Mile End,Z3\n",
            ["city", "borough", "zone"],
            "Mile End under X and Y",
        ),
    ],
)
def test_an_unclear_area_of_a_codebook_is_named(place, codebook, levels, named):
    """A codebook is public: of an area that it has twice, or under two others, the code is told."""
    place.write("codebook.csv", codebook)
    with pytest.raises(InputError) as refused:
        place.plan(levels=levels)
    assert named in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize("code", [f"{N1} ", f" {N1}", f"{N1}\t"])
def test_blanks_around_the_codes_of_a_codebook_are_told(place, code):
    """Where codes of the table are not found, and the codebook has blanks around its codes, it is the codebook that is to be mended."""
    areas = [(*area[:2], code if area[2] == N1 else area[2]) for area in AREAS]
    place.write("codebook.csv", csv(LEVELS, areas))
    with pytest.raises(InputError, match="has codes that the codebook lacks") as refused:
        place.ingested()
    assert f'The codebook has codes with blanks around them, such as "{code}"' in refused.value.hint


@pytest.mark.parametrize("row", ["W,W9,", "E,E12,", "W,,"])
def test_an_area_without_children_is_told_how_to_be_written(place, row):
    """A row without a finest code may be an area without children: it is told how such an area is written."""
    place.write("codebook.csv", f"country,region,district\nE,E12,E0601\nE,E13,E0701\n{row}\n")
    with pytest.raises(InputError, match="column district has a blank code in 1 row: 3") as refused:
        place.plan(levels=["country", "region", "district"])
    assert "B,,B in place of B,B,, with blank: own_area" in refused.value.hint
    place.write("codebook.csv", f"country,region,district\nN,N1,{N1}\nN,N1,{N2}\nS,,{S1}\n")
    also = {"hierarchy": {"table": "codebook.csv", "levels": ["country", "region", "district"], "blank": "own_area"}}
    assert place.ingested(levels=["country", "region", "district"], also=also) == GOOD
