"""Tables, views and queries of a real PostgreSQL: what is read, what is recognised, and what never leaves the environment."""

import hashlib
import json
import re
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import yaml

from flows.api import plan, release
from flows.execution.reservation import new_release
from flows.execution.resumption import check_unchanged
from flows.forecast.check import check_answer
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.spec.starter import starter
from storage.counts.shards import read_codebook
from storage.counts.vault import vault
from storage.database.connections import store
from storage.errors import InputError, UsageError
from storage.ledger.events import read_books
from storage.machine.claims import shard_folder
from storage.releases.register import find_release
from tasks.ingest.sources.locations import sha256_at, table_at
from tasks.ingest.tables import opened
from tasks.ingest.task import ingest, read_in_memory
from tests.support.exposure import Made
from tests.support.households import PRIVACY as OF_HOMES
from tests.support.postgresql import PASSWORD, USER, Postgres
from tests.support.spec import SPEC

pytestmark = pytest.mark.thorough  # a database's server; test_locations.py is about what needs none

AREAS = [("01", "0101"), ("01", "0102"), ("02", "0201")]
# The planted count of a pair of areas: a number that nothing else has.
TRIPS = [("0101", "0102", 271828), ("0102", "0201", 314159), ("0201", "0101", 141421), ("0101", "0102", 5)]
NOT_PLANTED = {("0101", "0102"): 271833, ("0102", "0201"): 314159, ("0201", "0101"): 141421}


@dataclass(frozen=True)
class Desk:
    """A folder with specs of tables in a database of its own schema.

    Attributes:
        folder: holds the specs, `home` and `out`.
        server: the server.
        schema: the schema of this test.
    """

    folder: Path
    server: Postgres
    schema: str

    def at(self, inner: str) -> str:
        """Return the location of a table of the schema, or of a query."""
        return f"{self.server.url}::{inner if ' ' in inner else f'{self.schema}.{inner}'}"

    def run(self, *statements: str) -> None:
        """Run statements in the schema."""
        self.server.run(*(statement.replace("{s}", self.schema) for statement in statements))

    def spec(self, name: str = "trips", **changes: Any) -> Path:
        """Write a spec over the tables of the schema; keys of `input` and `hierarchy`, or others, in place of the usual ones."""
        columns = {"table": self.at("trips"), "origin": "home", "destination": "work", "count": "people"}
        codes = {"table": self.at("areas"), "levels": ["region", "area"]}
        own = {key: value for key, value in changes.items() if key not in columns | codes and key != "codebook"}
        keys = SPEC | {
            "name": name,
            "dataset": name,
            "input": columns | {key: value for key, value in changes.items() if key in columns},
            "hierarchy": codes | ({"table": changes["codebook"]} if "codebook" in changes else {}),
            "release": {"tree": "destination", "finest": "area"},
            "privacy": SPEC["privacy"] | {"epsilon": 1.0e-6},  # so much noise that no count is right
            "budget": {"epsilon": 1.0e-5, "delta": 1e-7},
            **own,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(keys))
        return path

    def ingested(self, spec: Path) -> dict[tuple[str, str], int]:
        """Ingest a table and return the records in the vault."""
        planned = make_plan(load_spec(spec))
        ingest.fn("a-release", planned.source, planned.units, planned.promised, 2**30)
        codes = [read_codebook(shard_folder("a-release"), end)["area"] for end in ("origin", "destination")]
        with vault("a-release") as con:
            records = con.execute("SELECT area_0, area_1, true_count FROM records").fetchall()
        return {(codes[0][home], codes[1][work]): count for home, work, count in records}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Postgres, request: pytest.FixtureRequest) -> Desk:
    """Give a schema with a table of trips, whose codes are numbers at one end, and its codebook; and the credentials."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    postgres.log_in(monkeypatch)
    schema = "s" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    desk = Desk(tmp_path, postgres, schema)
    desk.run(
        "CREATE SCHEMA {s}",
        "CREATE TABLE {s}.trips (home char(6), work text, people numeric(10, 2), note bytea)",
        *(f"INSERT INTO {{s}}.trips VALUES ('{home}', '{work}', {people})" for home, work, people in TRIPS),
        "CREATE TABLE {s}.areas (region text, area varchar)",
        *(f"INSERT INTO {{s}}.areas VALUES ('{region}', '{area}')" for region, area in AREAS),
    )
    return desk


def all_of(fault: BaseException) -> str:
    """Return an exception as anybody could record it."""
    return f"{''.join(traceback.format_exception(fault))} {fault!r} {vars(fault)}"


def test_a_table_of_a_database_is_ingested_as_csv_is(desk: Desk) -> None:
    """The vault gets the same records from a table, a view, a query and a CSV file; integers are codes without leading zeros."""
    (desk.folder / "trips.csv").write_text(
        "home,work,people\n" + "".join(f"{home},{work},{people}\n" for home, work, people in TRIPS)
    )
    (desk.folder / "areas.csv").write_text("region,area\n" + "".join(f"{region},{area}\n" for region, area in AREAS))
    expected = desk.ingested(desk.spec(table="trips.csv", codebook="areas.csv"))
    assert expected == NOT_PLANTED
    desk.run("CREATE VIEW {s}.seen AS SELECT * FROM {s}.trips WHERE people > 0")
    query = (
        f"SELECT home, work, count(*) * 0 + sum(people) AS people FROM {desk.schema}.trips GROUP BY home, work -- all"
    )
    for table in ("trips", "seen", query, f"({query}\n);", query.replace("SELECT", "WITH one AS (SELECT 1) SELECT", 1)):
        assert desk.ingested(desk.spec(table=desk.at(table))) == expected
    assert desk.ingested(desk.spec(table=desk.at("trips"), codebook="areas.csv")) == expected
    desk.run("CREATE TABLE {s}.numbers AS SELECT home::int AS home, work::bigint AS work, people::int FROM {s}.trips")
    desk.run("CREATE TABLE {s}.numbered AS SELECT region, area::int AS area FROM {s}.areas")
    found = desk.ingested(desk.spec(table=desk.at("numbers"), codebook=desk.at("numbered")))
    assert found == {tuple(code.lstrip("0") for code in pair): count for pair, count in NOT_PLANTED.items()}
    planned = make_plan(load_spec(desk.spec(public_data=True)))  # what comparisons try mechanisms on is the same table
    _, _, counts = read_in_memory(planned.source, planned.units, planned.promised)
    assert np.sort(counts).tolist() == sorted(NOT_PLANTED.values())


def test_a_row_that_breaks_a_rule_is_refused_by_its_column(desk: Desk) -> None:
    """The rules of codes and counts are those of files, and nothing of the row is shown."""
    desk.run("INSERT INTO {s}.trips VALUES ('0101', '0777', 3)")
    with pytest.raises(InputError, match=r"^input\.table: column work has codes that the codebook lacks\.") as refused:
        release(desk.spec())
    assert "0777" not in all_of(refused.value)
    desk.run("UPDATE {s}.trips SET work = '0101', people = 2.5 WHERE work = '0777'")
    with pytest.raises(InputError, match=r"column people must hold whole numbers\.") as refused:
        release(desk.spec())
    assert "modelled trips are no counts" in refused.value.hint


def test_unlisted_codes_and_their_counts_are_of_one_moment(desk: Desk) -> None:
    """Where a table is read twice, for its codes and for its counts, a row that is written in between is in neither."""
    table = table_at("input.table", desk.at("trips"), desk.folder)
    with table.held() as held, duckdb.connect() as con:
        desk.run("INSERT INTO {s}.trips VALUES ('0102', '0102', 7)")
        for of, rows_there in ((held, 4), (table, 5)):
            with opened(con, of) as rows:
                assert con.execute(f"SELECT count(*) FROM {rows.scan(['home'])}").fetchall() == [(rows_there,)]
    privacy = yaml.safe_load(desk.spec().read_text())["privacy"] | {"epsilon": 1.0}
    del privacy["accountant"]
    spec = desk.spec(mechanism="stability_histogram", hierarchy={"levels": ["area"]}, privacy=privacy)
    planned = make_plan(load_spec(spec))
    ingest.fn("a-release", planned.source, planned.units, planned.promised, 2**30)
    with vault("a-release") as con:
        assert con.execute("SELECT sum(true_count) FROM records").fetchall() == [(sum(NOT_PLANTED.values()) + 7,)]


def test_a_codebook_is_known_by_its_content(desk: Desk) -> None:
    """Anybody who has the rows can compute the hash in the manifest, whatever their order; the server stays unnamed there."""
    lines = sorted(json.dumps(row, separators=(",", ":")) for row in AREAS)
    text = "\n".join(['["region","area"]', *lines]) + "\n"
    location = desk.at("areas")
    assert sha256_at(location) == hashlib.sha256(text.encode()).hexdigest()
    manifest = json.loads((release(desk.spec()).folder / "manifest.json").read_text())
    assert set(manifest["codebooks"].values()) == {hashlib.sha256(text.encode()).hexdigest()}
    assert manifest["spec"]["input"]["table"] == f"{desk.schema}.trips"
    assert manifest["spec"]["hierarchy"]["table"] == f"{desk.schema}.areas"
    assert sha256_at(location.replace("areas", "nothing")) is None
    odd = 'ä",\\\n\x01'
    desk.run(f"CREATE TABLE {{s}}.odd AS SELECT E'{odd}'::text AS code, NULL::text AS none".replace("\\\n", "\\\\\n"))
    line = json.dumps([odd, None], ensure_ascii=False, separators=(",", ":"))
    assert sha256_at(desk.at("odd")) == hashlib.sha256(f'["code","none"]\n{line}\n'.encode()).hexdigest()


def test_a_query_is_not_published(desk: Desk) -> None:
    """It may name what is confidential, so the manifest says only that it was one."""
    table = desk.at(f"SELECT * FROM {desk.schema}.trips WHERE people <> 987654")
    made = release(desk.spec(table=table))
    assert json.loads((made.folder / "manifest.json").read_text())["spec"]["input"]["table"] == "a query"
    assert not any(b"987654" in path.read_bytes() for path in made.folder.rglob("*") if path.is_file())
    with store() as con:
        (claim,) = read_books(con).accounts["trips"].claims.values()
    assert "987654" not in claim.table


def test_a_codebook_that_changed_is_refused(desk: Desk) -> None:
    """A row more between plan and ingest is noticed, and so it is before a release resumes; an unreachable server is not."""
    planned = make_plan(load_spec(desk.spec()))
    made = release(desk.spec())
    with store() as con:
        reserved = find_release(con, made.id)
    check_unchanged(reserved)
    desk.run("INSERT INTO {s}.areas VALUES ('02', '0202')")
    with pytest.raises(InputError, match=r"hierarchy\.table has changed since the release was planned"):
        ingest.fn("another", planned.source, planned.units, planned.promised, 2**30)
    with pytest.raises(InputError, match="was changed since"):
        check_unchanged(reserved)
    ended = f":{desk.server.port}/"
    of = reserved.terms.files.tables.items()
    gone = {key: replace(table, location=table.location.replace(ended, ":1/")) for key, table in of}
    files = replace(reserved.terms.files, tables=gone)
    check_unchanged(replace(reserved, terms=replace(reserved.terms, files=files)))


def test_the_confidential_table_is_no_codebook(desk: Desk) -> None:
    """It is refused by its place and by its content, and a table with all its columns by these."""
    single = {"input": {"table": desk.at("areas"), "features": ["area"]}, "release": {"order": ["area"]}}
    for codebook in ("areas", "AREAS", f'"{desk.schema}"."areas"'):
        inner = f"{desk.server.url}::{codebook}" if '"' in codebook else desk.at(codebook)
        spec = desk.spec(hierarchy={"area": {"table": inner, "levels": ["region", "area"]}}, **single)
        with pytest.raises(InputError, match=r"hierarchy\.area\.table must not be the confidential table"):
            plan(spec)
    desk.run("CREATE TABLE {s}.copy AS SELECT * FROM {s}.areas ORDER BY area DESC")
    spec = desk.spec(hierarchy={"area": {"table": desk.at("copy"), "levels": ["region", "area"]}}, **single)
    with pytest.raises(InputError, match=r"hierarchy\.area\.table must not be the confidential table"):
        release(spec)
    desk.run(
        "CREATE VIEW {s}.seen AS SELECT DISTINCT region, area FROM {s}.areas",
        "CREATE MATERIALIZED VIEW {s}.kept AS SELECT * FROM {s}.seen",
        "CREATE TABLE {s}.listed AS SELECT * FROM {s}.seen",
        "CREATE VIEW {s}.public AS SELECT * FROM {s}.listed",
    )
    made_of_it = desk.at(f"SELECT DISTINCT region, area FROM {desk.schema}.areas WHERE area <> 'x'")
    for codebook in (desk.at("seen"), desk.at("kept"), made_of_it, desk.at(f"SELECT * FROM {desk.schema}.kept")):
        spec = desk.spec(hierarchy={"area": {"table": codebook, "levels": ["region", "area"]}}, **single)
        with pytest.raises(InputError, match=r"must not be the confidential table or a view of it"):
            release(spec)
    desk.run(
        "DELETE FROM {s}.areas WHERE area = (SELECT max(area) FROM {s}.areas)"
    )  # otherwise they hold the same rows
    assert release(
        desk.spec(hierarchy={"area": {"table": desk.at("public"), "levels": ["region", "area"]}}, **single)
    ).id
    desk.run("CREATE TABLE {s}.wide AS SELECT 1 AS more, * FROM {s}.trips, {s}.areas")
    with pytest.raises(InputError, match="the query has the columns of the confidential table"):
        plan(desk.spec(codebook=desk.at(f"SELECT * FROM {desk.schema}.wide")))


def test_derived_columns_and_lists_of_groups_may_be_in_a_database(desk: Desk) -> None:
    """Both are read as from files, and refused once they have changed."""
    desk.run(
        "CREATE TABLE {s}.near AS SELECT a.area AS origin, b.area AS destination, (a.region = b.region)::text AS near"
        " FROM {s}.areas AS a, {s}.areas AS b",
        "CREATE TABLE {s}.homes AS SELECT n AS home, '0101' AS area FROM generate_series(1, 5) AS n",
        "CREATE TABLE {s}.people AS SELECT n / 2 + 1 AS home FROM generate_series(1, 7) AS n",
    )
    of_views = desk.spec(
        "near",
        mechanism="cbdp",
        release={"tree": "destination", "finest": "area", "views": {"near": {"near": "near"}}},
        derived={"near": {"table": desk.at("near"), "of": ["origin", "destination"]}},
    )
    listed = {"table": desk.at("homes"), "levels": "area"}
    of_groups = desk.spec(
        "homes",
        mechanism="group_sizes",
        input={"table": desk.at("people"), "group": "home", "groups": listed},
        hierarchy={"region": {"table": desk.at("areas"), "levels": ["region", "area"]}},
        release={"group_sizes": {"region": "area", "largest": 3}},
        privacy=OF_HOMES,
        budget={"epsilon": 2.0, "delta": 1e-7},
    )
    planned = [make_plan(load_spec(spec)) for spec in (of_views, of_groups)]
    assert (release(of_views).folder / "views" / "near.parquet").is_file()
    assert release(of_groups).folder.is_dir()
    desk.run("UPDATE {s}.near SET near = 'x'", "DELETE FROM {s}.homes WHERE home = 5")
    for name, plan_ in zip(("derived.near.table", "input.groups.table"), planned, strict=True):
        with pytest.raises(InputError, match=f"^{re.escape(name)} has changed since the release was planned"):
            ingest.fn("a-release", plan_.source, plan_.units, plan_.promised, 2**30)


def test_a_charged_table_is_recognised_by_its_content(desk: Desk) -> None:
    """Another dataset's release of the same columns and rows is refused, wherever in a database they lie and however they stand."""
    release(desk.spec("first"))
    desk.run("CREATE TABLE {s}.copy AS SELECT * FROM {s}.trips ORDER BY people DESC")
    query = desk.at(f"SELECT * FROM {desk.schema}.trips ORDER BY people")
    under_another_host = desk.at("trips").replace("127.0.0.1", "localhost")
    for moved in (query, desk.at("copy"), under_another_host):
        with pytest.raises(UsageError, match="has the same content as a table that was used by dataset first"):
            release(desk.spec("second", table=moved))
    desk.run("DELETE FROM {s}.trips WHERE people = 5")
    for name, moved in (("second", query), ("third", under_another_host)):
        planned = make_plan(load_spec(desk.spec(name, table=moved)))
        assert new_release(planned).dataset == name  # a row less is another table, as it is in a file


def test_a_charged_table_is_recognised_by_its_place(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names without quotes may be in any case, and host, port and database may come from the environment; `check` says so too."""
    release(desk.spec("first"))
    desk.run("DELETE FROM {s}.trips WHERE people = 5")  # so that its content is another
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(desk.server.port))
    for table in (
        desk.at("TRIPS"),
        f'postgresql:///postgres::{desk.schema} . "trips"',
        f"postgres://::{desk.schema}.trips",
    ):
        monkeypatch.setenv("PGDATABASE", "postgres")
        with pytest.raises(UsageError, match=r"input\.table was used by dataset first"):
            release(desk.spec("second", table=table))
        assert [problem.field for problem in check_answer(desk.spec("second", table=table)).problems] == ["input.table"]


def test_a_location_may_come_from_the_environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable may hold the server, which is then no path, and a part of it."""
    monkeypatch.setenv("SERVER", desk.server.url)
    monkeypatch.setenv("PORT", str(desk.server.port))
    assert desk.ingested(desk.spec(table=f"${{SERVER}}::{desk.schema}.trips")) == NOT_PLANTED
    whole = f"postgresql://127.0.0.1:${{PORT}}/postgres::{desk.schema}.trips"
    assert desk.ingested(desk.spec(table=whole)) == NOT_PLANTED


def test_credentials_are_left_nowhere(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    """After a release no file and no record holds user, password or a true count, and no published file the server."""
    made = release(desk.spec())
    assert load_spec(desk.spec()).text in find_text(made.id)
    seen = Made(made.id, desk.folder, {*NOT_PLANTED.values()}, None, "", set())
    assert seen.exposed() == set()
    files = [path for path in desk.folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    published = [path for path in made.folder.rglob("*") if path.is_file()]
    assert [path for path in published if desk.server.url.split("/")[2].encode() in path.read_bytes()] == []
    for secret in (PASSWORD, USER):
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
        assert secret not in "".join(capfd.readouterr())
    with store() as con:
        tables = con.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
        stored = "".join(
            repr(con.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall()) for schema, table in tables
        )
    assert f"{desk.schema}.trips" in stored
    assert PASSWORD not in stored
    assert USER not in stored


def find_text(release_id: str) -> str:
    """Return the spec that the store keeps."""
    with store() as con:
        return find_release(con, release_id).spec


FAULTS: dict[str, tuple[dict[str, str], str, str]] = {  # the environment, the table, and the hint
    "wrong password": ({"PGPASSWORD": "wrong-273"}, "{url}::{s}.trips", "PGUSER"),
    "no user": ({"PGUSER": "nobody_273"}, "{url}::{s}.trips", "PGUSER"),
    "no server": ({}, "postgresql://127.0.0.1:1/postgres::{s}.trips", "No server answers"),
    "no database": ({}, "postgresql://127.0.0.1:{port}/nothing_273::{s}.trips", "no such database"),
    "no table": ({}, "{url}::{s}.nothing", "no such table"),
    "no schema": ({}, "{url}::nothing.trips", "no such"),
    "no right": ({"PGUSER": "stranger_271", "PGPASSWORD": "x"}, "{url}::{s}.trips", "GRANT SELECT"),
    "no column": ({}, "{url}::SELECT nothing FROM {s}.trips", "a column that does not exist"),
    "no SELECT": ({}, "{url}::SELECT FROM WHERE", "one SELECT that only reads"),
    "a query that writes": ({}, "{url}::SELECT {s}.fill() AS home, '0101' AS work, 1 AS people", "only read"),
    "a query that deletes": (
        {},
        "{url}::WITH gone AS (DELETE FROM {s}.trips RETURNING *) SELECT * FROM gone",
        "one SELECT that only reads, also in its WITH",
    ),
    "a row that is no number": ({}, "{url}::SELECT home::int AS home, work, people FROM {s}.texts", ""),
}


def test_faults_of_the_server_are_told_by_their_cause(desk: Desk) -> None:
    """What the server says may quote rows and users: of it the cause alone is told, with what to do."""
    desk.run(
        "CREATE TABLE {s}.texts AS SELECT 'SECRET-ROW'::text AS home, '0101'::text AS work, 1 AS people",
        "DO $$ BEGIN CREATE ROLE stranger_271 LOGIN PASSWORD 'x'; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "GRANT USAGE ON SCHEMA {s} TO stranger_271",
        "CREATE FUNCTION {s}.fill() RETURNS text LANGUAGE sql VOLATILE AS $$ INSERT INTO {s}.areas VALUES ('x', 'y') RETURNING area $$",
    )
    (desk.folder / "areas.csv").write_text("region,area\n" + "".join(f"{region},{area}\n" for region, area in AREAS))
    for environment, table, hint in FAULTS.values():
        place = table.format(url=desk.server.url, s=desk.schema, port=desk.server.port)
        rule = r"^input\.table: .* cannot be read as a (table|query) of PostgreSQL\."
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(InputError, match=rule) as refused:
                release(desk.spec(table=place, codebook="areas.csv"))
        assert hint in refused.value.hint
        for secret in (PASSWORD, USER, "wrong-273", "nobody_273", "stranger_271", "SECRET-ROW"):
            assert secret not in all_of(refused.value)


def test_the_driver_is_asked_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver the error says what to install."""
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(InputError, match="Trellis needs its driver") as refused:
        make_plan(load_spec(desk.spec()))
    assert "trellis[databases]" in refused.value.hint


def test_a_spec_is_begun_and_checked(desk: Desk) -> None:
    """`trellis new` reads the names of the columns, and `trellis check` says which the spec has wrong."""
    desk.run("INSERT INTO {s}.areas SELECT '02', '020' || n FROM generate_series(2, 5) AS n")
    begun = starter(desk.at("trips"), desk.folder, desk.at("areas"))
    keys = yaml.safe_load(begun.text)
    assert keys["name"] == "trips"
    of_query = starter(desk.at(f"SELECT * FROM {desk.schema}.trips"), desk.folder)
    assert yaml.safe_load(of_query.text)["name"] == "the-query"
    assert keys["input"]["table"] == f'{desk.server.url}::"{desk.schema}"."trips"'
    assert (keys["input"]["origin"], keys["input"]["destination"]) == ("home", "work")
    assert keys["hierarchy"]["levels"] == ["region", "area"]
    assert check_answer(desk.spec()).ok
    answer = check_answer(desk.spec(origin="homes"))
    assert [problem.error for problem in answer.problems] == [f"input.table: {desk.schema}.trips has no column homes."]
