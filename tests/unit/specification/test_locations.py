"""Where a table is: how a location is understood, recognised and published, without a server."""

import pytest

from flows.specification.file import expand_variables, faults_of
from flows.specification.starters.starter import starter
from storage.errors import InputError
from tasks.ingest.sources.databases import fault_of_url, relation_at
from tasks.ingest.sources.locations import matrix_at, published_location, shapes_at, table_at

_OF_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE")


@pytest.fixture(autouse=True)
def _without_libpq(monkeypatch):
    """Let the environment say nothing of a server."""
    for name in _OF_LIBPQ:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("location", "published"), [
    ("data/trips.csv.gz", "trips.csv.gz"),
    ("/a/b.duckdb::trips", "b.duckdb::trips"),
    ("../codes.xlsx::Areas of 2025", "codes.xlsx::Areas of 2025"),
    ("${DATA}/od.omx::trips", "od.omx::trips"),
    ("postgresql://host:5432/people::survey.trips", "survey.trips"),
    ("postgresql://[::1]:5432/people::survey.trips", "survey.trips"),
    ("postgresql://host/people::SELECT home::text FROM trips WHERE name = 'x'", "a query"),
    ("postgresql://host/people::\n  (select 1)", "a query"),
    ("${DATABASE}::with t as (select 'x::y') select * from t", "a query"),
    ("${DATABASE}::survey.trips", "${DATABASE}::survey.trips"),
    ("postgresql://host/people::select.trips", "select.trips"),
])  # fmt: skip
def test_what_is_published_of_a_location(location, published):
    """The name of a file or a table, without folder and server; of a query no more than that it is one."""
    assert published_location(location) == published


@pytest.mark.parametrize(("location", "place"), [
    ("postgresql://Host.Example:5433/people::survey.trips", "postgresql://host.example:5433/people::survey.trips"),
    ("postgres://host/people::Survey.TRIPS", "postgresql://host:5432/people::survey.trips"),
    ('postgresql://host/people::"Survey" . "a""b"', 'postgresql://host:5432/people::Survey.a"b'),
    ("postgresql://[::1]/people::a.b", "postgresql://[::1]:5432/people::a.b"),
    ("postgresql:///people::a.b", "postgresql://local:5432/people::a.b"),
    ('postgresql://h:1/d::"A b"."c""d"', 'postgresql://h:1/d::A b.c"d'),
])  # fmt: skip
def test_a_table_is_recognised_by_names_as_the_server_reads_them(location, place, monkeypatch):
    """Names without quotes are in lower case, others as they stand; the place and the location lead back; a variable may hold it."""
    found = relation_at("input.table", location)
    assert found.at_place().place == place
    assert relation_at("input.table", found.location) == found
    server, _, inner = location.rpartition("::")
    monkeypatch.setenv("SERVER", server)  # is no path, which would be made absolute
    assert expand_variables("input.table", f"${{SERVER}}::{inner}") == f"{server}::{inner}"


def test_the_environment_names_what_a_location_leaves_out(monkeypatch):
    """Host, port and database are those of libpq's variables, or of the service that these name; without any a database is asked for."""
    with pytest.raises(InputError, match=r"input\.table must name a database"):
        relation_at("input.table", "postgresql://host::a.b")
    monkeypatch.setenv("PGSERVICE", "survey")
    of_service = relation_at("input.table", "postgresql://::a.b").at_place().place
    assert of_service == "postgresql://service=survey:/service=survey::a.b"
    for name, value in {"PGHOST": "host", "PGPORT": "1", "PGDATABASE": "people"}.items():
        monkeypatch.setenv(name, value)
    named = relation_at("input.table", "postgresql://host:1/people::a.b")
    assert named.is_same(relation_at("hierarchy.table", "postgresql:///::A.b"))


def test_queries_are_the_same_by_their_text():
    """Another text is another place, and no part of it is in the place; the query stands in the location, which is not published."""
    queries = ("SELECT 'secret'", " SELECT 'secret' ;", "SELECT 'other'")
    one, same, other = (relation_at("input.table", f"postgresql://h/d::{query}") for query in queries)
    assert one.is_same(same)
    assert not one.is_same(other)
    assert "secret" not in one.at_place().place
    assert (one.name, one.query) == ("the query", "SELECT 'secret'")
    again = relation_at("input.table", one.location)
    assert again == one


def test_what_is_no_server_holds_no_credentials():
    """An @ or a ? in a query, or in the name of a file, is seen as neither a user nor a setting."""
    for location in ("postgresql://host/d::SELECT 'me@host?'", "me@host.csv"):
        assert fault_of_url(location) == ""
    found = fault_of_url("postgresql://me:pw@[::1]/d::a.b")
    assert "no user and no password" in found
    assert "pw" not in found


SECRETS = (
    "host=localhost password=pw-918 dbname=x::s.t",
    "host=localhost user = pw-918 dbname=x",
    "dbname=x sslpassword=pw-918",
    "Server=host;Uid=pw-918;Pwd=pw-918;Database=x::s.t",
    "me:pw-918@host/d::a.b",
    "pw-918@host/d::a.b",
    " postgresql://me:pw-918@host/d::a.b",
    "jdbc:postgresql://host/d?token=pw-918",
    "oracle:me/pw-918@//host:1521/d",
    f"{'x' * 300} password=pw-918",  # too long for a file name
)


@pytest.mark.parametrize("location", SECRETS)
def test_what_may_hold_a_password_is_not_repeated(location, tmp_path):
    """What is no file and looks as if it held a user or a password is refused by what the key takes, wherever a place is named."""
    takes = {
        table_at: r"a file, or a table at postgresql://",
        matrix_at: r"a file that ends in \.csv, \.csv\.gz, \.csv\.zst or \.omx::<matrix>",
        shapes_at: r"a file that ends in \.geojson, \.parquet or \.gpkg",
    }
    for at, words in takes.items():
        with pytest.raises(InputError, match=rf"^a\.key must be {words}, got a location that seems to hold") as refused:
            at("a.key", location, tmp_path)
        assert refused.value.hint
        assert "pw-918" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"
    with pytest.raises(InputError, match=r"^TABLE must be a file"):
        starter(location, tmp_path)


def test_other_servers_are_refused(tmp_path):
    """A URL of another kind is no path; of it the kind alone is said. A database is no place for matrices and boundaries."""
    for location in ("mysql://me:pw@host/d::a.b", "https://me:pw@host/x.csv", "s3://bucket/pw.csv"):
        with pytest.raises(InputError, match=r"^input\.table must be a file, or a table at postgresql://") as refused:
            table_at("input.table", location, tmp_path)
        assert "pw" not in str(refused.value)
    for at, what in ((matrix_at, "Matrices"), (shapes_at, "Boundaries")):
        told = r"^a\.key must be a file that ends in .*begins with postgresql:"
        with pytest.raises(InputError, match=told) as refused:
            at("a.key", "postgresql://host/d::a.b", tmp_path)
        assert refused.value.hint.startswith(f"{what} come from files only.")
        assert "or a table" not in str(refused.value)


def test_a_matrix_in_place_of_a_table_is_sent_to_its_key(tmp_path):
    """An OMX file is refused where a table is asked for, by a starter too; a spec is told that first, and alone."""
    (tmp_path / "od.OMX").touch()
    with pytest.raises(InputError, match=r"^TABLE must be a table, and an OMX file holds matrices: name one by input"):
        starter(str(tmp_path / "od.OMX::trips"), tmp_path)
    faults = faults_of("input: {table: 'od.omx'}\nrelease: {tree: origin, finest: zone}")
    first, *others = [fault for fault in faults if fault.field.startswith(("input", "release"))]
    assert (first.field, others) == ("input.table", [])
    assert "name one by input.matrix (file.omx::matrix)" in str(first)


@pytest.mark.parametrize("location", ["postgresql://me:pw-918@host/d::a.b", "dbname=d password=pw-918"])
@pytest.mark.parametrize(
    "text", ["input: {}", "input: {{origin: {{a: 1}}, table: {}}}", "hierarchy: {}", "privacy: {{epsilon: '{}'}}"]
)
def test_a_location_in_the_wrong_place_is_not_repeated(text, location):
    """Where keys, a list or a number are wanted, a location is refused as such."""
    faults = faults_of(text.format(location))
    assert faults
    assert "pw-918" not in "".join(f"{fault} {fault.hint}" for fault in faults)
