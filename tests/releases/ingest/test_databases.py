"""Tables, views and queries of a real PostgreSQL: what is read, what is recognised, and what never leaves the environment."""

import hashlib
import json
import re
import sys
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pytest
import yaml

from flows.answers.check import check_answer
from flows.planning.admission import check_unchanged
from flows.run.reservation import new_release
from flows.specification.starters.starter import starter
from storage.counts.vault import vault
from storage.database.connections import store
from storage.errors import InputError, UsageError
from storage.ledger.events import read_books
from storage.releases.register import find_release
from tasks.ingest.sources.locations import sha256_at, table_at
from tasks.ingest.tables import opened
from tasks.ingest.task import ingest, read_in_memory
from tests.support.exposure import Made
from tests.support.households import PRIVACY as OF_HOMES
from tests.support.many_rows import DUCKDB, filled, taken
from tests.support.postgresql import PASSWORD, USER, Postgres
from tests.support.tables import AREAS, GOOD, LEVELS, N1, N2, TRIPS, UNKNOWN, Place, settled, shown_by

pytestmark = pytest.mark.thorough  # a database's server; test_sources.py is about what needs none

SOME_MORE = GOOD | {(N1, N2): GOOD[N1, N2] + 5}


@dataclass(frozen=True)
class Desk(Place):
    """A folder with specs of tables in a database, in a schema of its own."""

    server: Postgres
    schema: str  # the schema of this test

    def at(self, inner):
        """Return the location of a table of the schema, or of a query."""
        return f"{self.server.url}::{inner if ' ' in inner else f'{self.schema}.{inner}'}"

    def run(self, *statements):
        """Run statements in the schema."""
        self.server.run(*(statement.replace("{s}", self.schema) for statement in statements))

    def spec(self, name="trips", **changes):
        """Write a spec over the tables of the schema, with so much noise that no count is right."""
        also = {"budget": {"epsilon": 1.0e-5, "delta": 1e-7}} | changes.pop("also", {})
        also |= {"privacy": {"epsilon": 1.0e-6} | also.get("privacy", {})}
        tables = {"table": self.at("trips"), "codebook": self.at("areas")}
        return super().spec(name, also=also, **tables | changes)


@pytest.fixture
def desk(tmp_path, monkeypatch, postgres, request):
    """Give a schema with a table of trips, and its codebook; and the credentials."""
    postgres.log_in(monkeypatch)
    schema = "s" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    with settled(tmp_path):
        desk = Desk(tmp_path, postgres, schema)
        desk.run(
            "CREATE SCHEMA {s}",
            "CREATE TABLE {s}.trips (home char(7), work text, people numeric(10, 2), note bytea)",
            *(f"INSERT INTO {{s}}.trips VALUES {row}" for row in [*TRIPS, (N1, N2, 5)]),
            f"CREATE TABLE {{s}}.areas ({', '.join(f'{level} text' for level in LEVELS)})",
            *(f"INSERT INTO {{s}}.areas VALUES {area}" for area in AREAS),
        )
        yield desk


def test_a_table_of_a_database_is_ingested_as_csv_is(desk):
    """The vault gets the same records from a table, a view and a query; integers are codes without leading zeros."""
    desk.run("CREATE VIEW {s}.seen AS SELECT * FROM {s}.trips WHERE people > 0")
    query = f"SELECT home, work, count(*) * 0 + sum(people) AS people FROM {desk.schema}.trips GROUP BY home, work -- a"
    for table in ("trips", "seen", query, f"({query}\n);", query.replace("SELECT", "WITH one AS (SELECT 1) SELECT", 1)):
        assert desk.ingested(table=desk.at(table)) == SOME_MORE
    assert desk.ingested(codebook="codebook.csv") == SOME_MORE
    desk.run("CREATE TABLE {s}.numbers AS SELECT home::int AS home, work::bigint AS work, people::int FROM {s}.trips")
    desk.run("CREATE TABLE {s}.numbered AS SELECT region, province, municipality::int AS municipality FROM {s}.areas")
    found = desk.ingested(table=desk.at("numbers"), codebook=desk.at("numbered"))
    assert found == {tuple(code.lstrip("0") for code in pair): count for pair, count in SOME_MORE.items()}
    plan = desk.plan(also={"public_data": True})  # what comparisons try mechanisms on is the same table
    _, _, counts = read_in_memory(plan.source, plan.units, plan.promised)
    assert np.sort(counts).tolist() == sorted(SOME_MORE.values())


def test_a_row_that_breaks_a_rule_is_refused_by_its_column(desk, capfd):
    """The rules of codes and counts are those of files, and nothing of the row is shown."""
    desk.run(f"INSERT INTO {{s}}.trips VALUES ('{N1}', '{UNKNOWN}', 3)")
    error, _ = desk.refusal(capfd)
    assert str(error) == "input.table: column work has codes that the codebook lacks."
    desk.run(f"UPDATE {{s}}.trips SET work = '{N1}', people = 2.5 WHERE work = '{UNKNOWN}'")
    error, _ = desk.refusal(capfd)
    assert str(error) == "input.table: column people must hold whole numbers."
    assert "modelled trips are no counts" in error.hint


def test_unlisted_codes_and_their_counts_are_of_one_moment(desk):
    """Where a table is read twice, for its codes and for its counts, a row that is written in between is in neither."""
    table = table_at("input.table", desk.at("trips"), desk.folder)
    with table.held() as held, duckdb.connect() as con:
        desk.run(f"INSERT INTO {{s}}.trips VALUES ('{N2}', '{N2}', 7)")
        for of, rows_there in ((held, 4), (table, 5)):
            with opened(con, of) as rows:
                assert con.execute(f"SELECT count(*) FROM {rows.scan(['home'])}").fetchall() == [(rows_there,)]
    unlisted = {"hierarchy": {"levels": ["area"]}, "privacy": {"epsilon": 1.0, "accountant": None}}
    plan = desk.plan(also={"mechanism": "stability_histogram", **unlisted}, finest="area")
    ingest.fn("a-release", plan.source, plan.units, plan.promised, 2**30)
    with vault("a-release") as con:
        assert con.execute("SELECT sum(true_count) FROM records").fetchall() == [(sum(SOME_MORE.values()) + 7,)]


def test_what_is_published_of_tables(desk):
    """A codebook has the hash that anybody with its rows can compute; the server stays unnamed; a query is only called one."""
    rows = [LEVELS, *sorted(AREAS)]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    assert sha256_at(desk.at("areas")) == hashlib.sha256(text.encode()).hexdigest()
    made = desk.release(table=desk.at(f"SELECT * FROM {desk.schema}.trips WHERE people <> 987654"))
    manifest = json.loads((made / "manifest.json").read_text())
    assert set(manifest["codebooks"].values()) == {hashlib.sha256(text.encode()).hexdigest()}
    assert manifest["spec"]["input"]["table"] == "a query"
    assert manifest["spec"]["hierarchy"]["table"] == f"{desk.schema}.areas"
    assert not any(b"987654" in path.read_bytes() for path in made.rglob("*") if path.is_file())
    with store() as con:
        (claim,) = read_books(con).accounts["trips"].claims.values()
    assert "987654" not in claim.table
    assert sha256_at(desk.at("nothing")) is None
    odd = 'ä",\\\n\x01'
    desk.run(f"CREATE TABLE {{s}}.odd AS SELECT E'{odd}'::text AS code, NULL::text AS none".replace("\\\n", "\\\\\n"))
    line = json.dumps([odd, None], ensure_ascii=False, separators=(",", ":"))
    assert sha256_at(desk.at("odd")) == hashlib.sha256(f'["code","none"]\n{line}\n'.encode()).hexdigest()


def test_a_public_table_that_changed_is_refused(desk):
    """Codebook, derived column or list of groups, by its key; before a release resumes too, where the server can be reached."""
    desk.run(
        "CREATE TABLE {s}.near AS SELECT a.municipality AS origin, b.municipality AS destination,"
        " (a.region = b.region)::text AS near FROM {s}.areas AS a, {s}.areas AS b",
        f"CREATE TABLE {{s}}.homes AS SELECT n AS home, '{N1}' AS municipality FROM generate_series(1, 5) AS n",
        "CREATE TABLE {s}.people AS SELECT n / 2 + 1 AS home FROM generate_series(1, 7) AS n",
    )
    of_views = {
        "mechanism": "cbdp",
        "release": {"tree": "destination", "finest": LEVELS[-1], "views": {"near": {"near": "near"}}},
        "derived": {"near": {"table": desk.at("near"), "of": ["origin", "destination"]}},
    }
    of_groups = {
        "mechanism": "group_sizes",
        "input": {
            "table": desk.at("people"),
            "group": "home",
            "groups": {"table": desk.at("homes"), "levels": LEVELS[-1]},
        },
        "hierarchy": {"region": {"table": desk.at("areas"), "levels": LEVELS}},
        "release": {"group_sizes": {"region": LEVELS[-1], "largest": 3}},
        "privacy": OF_HOMES | {"accountant": None},
        "budget": {"epsilon": 2.0, "delta": 1e-7},
    }
    plans = [desk.plan(name, also=keys) for name, keys in (("trips", of_views), ("homes", of_groups))]
    made = [desk.release("trips", also=of_views), desk.release("homes", also=of_groups)]
    assert (made[0] / "views" / "near.parquet").is_file()
    with store() as con:
        reserved = find_release(con, made[0].name)
    check_unchanged(reserved)
    for change, key, plan in (
        ("DELETE FROM {s}.homes WHERE home = 5", "input.groups.table", plans[1]),
        ("UPDATE {s}.near SET near = 'x'", "derived.near.table", plans[0]),
        ("INSERT INTO {s}.areas VALUES ('02', '0202', '0202009')", "hierarchy.table", plans[0]),
    ):
        desk.run(change)
        with pytest.raises(InputError, match=f"^{re.escape(key)} has changed since the release was planned"):
            ingest.fn("a-release", plan.source, plan.units, plan.promised, 2**30)
    with pytest.raises(InputError, match="was changed since"):
        check_unchanged(reserved)
    of, port = reserved.terms.files.tables.items(), f":{desk.server.port}/"
    gone = {key: replace(table, location=table.location.replace(port, ":1/")) for key, table in of}
    check_unchanged(replace(reserved, terms=replace(reserved.terms, files=replace(reserved.terms.files, tables=gone))))


def test_the_confidential_table_is_no_codebook(desk):
    """It is refused by its place and by its content, also through views, and a table with all its columns by these."""

    def keys(codebook):
        hierarchy = {LEVELS[-1]: {"table": codebook, "levels": LEVELS}}
        single = {"input": {"table": desk.at("areas"), "features": LEVELS[-1:]}, "release": {"order": LEVELS[-1:]}}
        return single | {"hierarchy": hierarchy}

    rule = rf"hierarchy\.{LEVELS[-1]}\.table must not be the confidential table"
    for codebook in (desk.at("areas"), desk.at("AREAS"), f'{desk.server.url}::"{desk.schema}"."areas"'):
        with pytest.raises(InputError, match=rule):
            desk.plan(also=keys(codebook))
    desk.run(
        "CREATE TABLE {s}.copy AS SELECT * FROM {s}.areas ORDER BY municipality DESC",
        "CREATE VIEW {s}.seen AS SELECT DISTINCT region, province, municipality FROM {s}.areas",
        "CREATE MATERIALIZED VIEW {s}.kept AS SELECT * FROM {s}.seen",
        "CREATE TABLE {s}.listed AS SELECT * FROM {s}.seen",
        "CREATE VIEW {s}.public AS SELECT * FROM {s}.listed",
    )
    made_of_it = f"SELECT DISTINCT region, province, municipality FROM {desk.schema}.areas WHERE municipality <> 'x'"
    for codebook in ("copy", "seen", "kept", made_of_it, f"SELECT * FROM {desk.schema}.kept"):
        with pytest.raises(InputError, match=rule + " or a view of it"):
            desk.release(also=keys(desk.at(codebook)))
    desk.run("DELETE FROM {s}.areas WHERE municipality = (SELECT max(municipality) FROM {s}.areas)")
    assert desk.release(also=keys(desk.at("public"))).is_dir()  # it holds other rows by now
    desk.run("CREATE TABLE {s}.wide AS SELECT 1 AS more, * FROM {s}.trips, {s}.areas")
    with pytest.raises(InputError, match="the query has the columns of the confidential table"):
        desk.plan(codebook=desk.at(f"SELECT * FROM {desk.schema}.wide"))


def test_a_charged_table_is_recognised(desk, monkeypatch):
    """By its content wherever it lies and however it stands; by its place in any case, also where the environment names it."""
    desk.release("first")
    desk.run("CREATE TABLE {s}.copy AS SELECT * FROM {s}.trips ORDER BY people DESC")
    query = desk.at(f"SELECT * FROM {desk.schema}.trips ORDER BY people")
    under_another_host = desk.at("trips").replace("127.0.0.1", "localhost")
    for moved in (query, desk.at("copy"), under_another_host):
        with pytest.raises(UsageError, match="has the same content as a table that was used by dataset first"):
            desk.release("second", table=moved)
    desk.run("DELETE FROM {s}.trips WHERE people = 5")  # a row less is another table, as it is in a file
    for name, moved in (("second", query), ("third", under_another_host)):
        assert new_release(desk.plan(name, table=moved)).dataset == name
    for name, value in (("PGHOST", "127.0.0.1"), ("PGPORT", str(desk.server.port)), ("PGDATABASE", "postgres")):
        monkeypatch.setenv(name, value)
    for table in ("TRIPS", f'postgresql:///postgres::{desk.schema} . "trips"', f"postgres://::{desk.schema}.trips"):
        location = table if "::" in table else desk.at(table)
        with pytest.raises(UsageError, match=r"input\.table was used by dataset first"):
            desk.release("fourth", table=location)
        problems = check_answer(desk.spec("fourth", table=location)).problems
        assert [problem.field for problem in problems] == ["input.table"]


def test_credentials_are_left_nowhere(desk, capfd):
    """After a release no file and no record holds user, password or a true count, and no published file the server."""
    made = desk.release()
    seen = Made(made.name, desk.folder, {*SOME_MORE.values()}, None, "", set())
    assert seen.exposed() == set()
    files = [path for path in desk.folder.rglob("*") if path.is_file()]
    published = [path for path in made.rglob("*") if path.is_file()]
    assert len(files) > len(published) > 5
    assert [path for path in published if desk.server.url.split("/")[2].encode() in path.read_bytes()] == []
    with store() as con:
        tables = con.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        every = [con.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall() for schema, table in tables]
        stored = "".join(map(repr, every))
    assert f"{desk.schema}.trips" in stored
    said = "".join(capfd.readouterr())
    for secret in (PASSWORD, USER):
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
        assert secret not in said + stored


FAULTS = [  # the environment, the table, and the hint
    ({"PGPASSWORD": "wrong-273"}, "{url}::{s}.trips", "PGUSER"),
    ({"PGUSER": "nobody_273"}, "{url}::{s}.trips", "PGUSER"),
    ({}, "postgresql://127.0.0.1:1/postgres::{s}.trips", "No server answers"),
    ({}, "postgresql://127.0.0.1:{port}/nothing_273::{s}.trips", "no such database"),
    ({}, "{url}::{s}.nothing", "no such table"),
    ({}, "{url}::nothing.trips", "no such"),
    ({"PGUSER": "stranger_271", "PGPASSWORD": "x"}, "{url}::{s}.trips", "GRANT SELECT"),
    ({}, "{url}::SELECT nothing FROM {s}.trips", "a column that does not exist"),
    ({}, "{url}::SELECT FROM WHERE", "one SELECT that only reads"),
    ({}, "{url}::SELECT {s}.fill() AS home, '0101' AS work, 1 AS people", "only read"),
    ({}, "{url}::WITH gone AS (DELETE FROM {s}.trips RETURNING *) SELECT * FROM gone", "only reads, also in its WITH"),
    ({}, "{url}::SELECT home::int AS home, work, people FROM {s}.texts", ""),
]


def test_faults_of_the_server_are_told_by_their_cause(desk):
    """What the server says may quote rows and users: of it the cause alone is told, with what to do."""
    desk.run(
        "CREATE TABLE {s}.texts AS SELECT 'SECRET-ROW'::text AS home, '0101'::text AS work, 1 AS people",
        "DO $$ BEGIN CREATE ROLE stranger_271 LOGIN PASSWORD 'x'; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "GRANT USAGE ON SCHEMA {s} TO stranger_271",
        "CREATE FUNCTION {s}.fill() RETURNS text LANGUAGE sql VOLATILE AS"
        " $$ INSERT INTO {s}.areas VALUES ('x', 'y', 'z') RETURNING municipality $$",
    )
    for environment, table, hint in FAULTS:
        place = table.format(url=desk.server.url, s=desk.schema, port=desk.server.port)
        rule = r"^input\.table: .* cannot be read as a (table|query) of PostgreSQL\."
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(InputError, match=rule) as refused:
                desk.release(table=place, codebook="codebook.csv")
        assert hint in refused.value.hint
        for secret in (PASSWORD, USER, "wrong-273", "nobody_273", "stranger_271", "SECRET-ROW"):
            assert secret not in shown_by(refused.value)


def test_a_spec_is_begun_and_checked(desk, monkeypatch):
    """`new` reads the names of the columns, `check` says which the spec has wrong; without the driver it is asked for."""
    begun = yaml.safe_load(starter(desk.at("trips"), desk.folder, desk.at("areas")).spec)
    assert begun["input"]["table"] == f'{desk.server.url}::"{desk.schema}"."trips"'
    assert (begun["input"]["origin"], begun["hierarchy"]["levels"]) == ("home", LEVELS)
    assert check_answer(desk.spec()).ok
    (problem,) = check_answer(desk.spec(origin="homes")).problems
    assert problem.error == f"input.table: {desk.schema}.trips has no column homes."
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(InputError, match="Trellis needs its driver") as refused:
        desk.plan()
    assert "trellis[databases]" in refused.value.hint


@pytest.mark.heavy("ten million rows")
def test_ten_million_rows_need_no_more_memory_than_their_bound(postgres, tmp_path):
    """The fingerprint takes no more than some batches beside the plan; ingest that and DuckDB's share; every record arrives."""
    rows, batches = 10_000_000, 2**26  # the rows as Arrow would be 200 MB, and as Python's objects a gigabyte
    spec = filled(postgres, rows, 100_000, tmp_path)
    plan, fingerprint, taken_in = (taken(spec, step) for step in ("plan", "fingerprint", "ingest"))
    assert fingerprint.peak <= plan.peak + batches
    assert taken_in.peak <= plan.peak + DUCKDB + batches
    assert taken_in.records == sum(1 + n % 3 for n in range(1, rows + 1))
