"""Trips of people in tables of any kind, over one codebook: a folder for them, what is in the vault of them, and how they are refused."""

import re
import sqlite3
import traceback
from collections.abc import Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from openpyxl import Workbook

from flows.answers.check import _check_tables, _Problems
from flows.planning.plan import make_plan
from flows.run.reservation import new_release, reserve_release
from flows.specification.file import load_spec
from storage.counts.shard_files import read_codebook
from storage.counts.vault import vault
from storage.database.connections import store
from storage.errors import InputError
from storage.ledger.events import head
from storage.machine.caller import heard_by_caller
from storage.machine.fingerprints import KEY
from storage.machine.home import shard_folder
from storage.releases.register import list_releases
from tasks.ingest.contents import read_content
from tasks.ingest.task import ingest, read_in_memory
from tasks.ingest.trips import Units
from tests.support.runs import make
from tests.support.spec import SPEC

N1, N2, S1, S2 = "0101001", "0101002", "0201001", "0201002"
LEVELS = ["region", "province", "municipality"]
AREAS = [(code[:2], code[:4], code) for code in (N1, N2, "0102001", S1, S2)]
HEADER = ("home", "work", "people")
TRIPS = [(N1, N2, 271828), (N2, S1, 314159), (S1, N1, 141421)]
GOOD = {(home, work): count for home, work, count in TRIPS}
Rows = Sequence[Sequence[Any]]
# Values of the confidential table that no message may show: they are in no path, line number or text.
UNKNOWN, SENTINEL = "0101777", "Zebedee-Quux"  # the second begins every unit's id
SECRETS = (N1, N2, S1, S2, UNKNOWN, "271828", "314159", "141421", SENTINEL)


def csv(header, rows):
    """Return a CSV file of values that need no quotes."""
    return "".join(",".join(str(value) for value in row) + "\n" for row in [header, *rows])


def trips(*rows, header=HEADER):
    """Return the table of trips, three good rows and then these, as CSV."""
    return csv(header, [*TRIPS, *rows])


def in_duckdb(path, *statements):
    """Run statements in a DuckDB file, and return its name."""
    with duckdb.connect(str(path)) as con:
        for statement in statements:
            con.execute(statement)
    return path.name


def write(path, tables, *more):
    """Write tables into one file, by its ending; run more statements, where it is a database; return its name."""
    # The first row of each table has the names of its columns.
    if path.suffix == ".xlsx":
        book = Workbook()
        book.remove(book.active)
        for name, rows in tables.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(list(row))
        book.save(path)
        return path.name
    path.unlink(missing_ok=True)
    kind = " VARCHAR" if path.suffix == ".duckdb" else ""
    with closing(duckdb.connect(str(path)) if kind else sqlite3.connect(path)) as base:
        for name, (columns, *rows) in tables.items():
            base.execute(f'CREATE TABLE "{name}" ({", ".join(f"{column}{kind}" for column in columns)})')
            if rows:
                base.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', rows)
        for statement in more:
            base.execute(statement)
        base.commit()
    return path.name


def shown_by(fault):
    """Return an exception as anybody could record it."""
    return f"{''.join(traceback.format_exception(fault))} {fault!r} {vars(fault)} {fault.args}"


def found_in(codebooks, rows, *, whole=False):
    """Return records of positive counts by the codes of both ends, or by whole paths."""
    homes, works = ([codes if whole else codes[-1:] for codes in of.rows()] for of in codebooks)
    found = {("/".join(homes[home]), "/".join(works[work])): int(count) for home, work, count in rows}
    assert len({tuple(ends) for *ends, _ in rows}) == len(rows), "a pair of areas appears twice"
    assert all(count > 0 for count in found.values())
    return found


@dataclass(frozen=True)
class Place:
    """A folder with tables and specs over them, a store, and a place to publish."""

    folder: Path

    def write(self, name, content):
        """Write a file and return its name."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def spec(self, name="trips", *, codebook="codebook.csv", levels=LEVELS, finest="", also=None, **columns):
        """Write a spec with other keys, of which None takes one of `privacy` or `input` out, and return its path."""
        of_input = {"table": "trips.csv", "origin": "home", "destination": "work", "count": "people"} | columns
        keys = SPEC | {
            "name": name,
            "dataset": name,
            "input": {key: value for key, value in of_input.items() if value is not None},
            "hierarchy": {"table": codebook, "levels": list(levels)},
            "release": {"tree": "destination", "finest": finest or levels[-1]},
        }
        privacy = SPEC["privacy"] | (also or {}).get("privacy", {})
        keys |= (also or {}) | {"privacy": {key: value for key, value in privacy.items() if value is not None}}
        return self.folder / self.write(f"{name}.yaml", yaml.safe_dump(keys))

    def plan(self, name="trips", **changes):
        """Plan the release of such a spec."""
        return make_plan(load_spec(self.spec(name, **changes)))

    def ingested(self, *, whole=False, **changes):
        """Read the table of such a spec in memory as ingest does; return the codes of both ends, or whole paths, and the count."""
        file = load_spec(self.spec(**changes))
        source, keys, unit = file.source(), file.spec.privacy, file.spec.input.unit
        units = Units(unit, keys.max_records_per_unit, distinct=bool(keys.distinct), exact=keys.total_is_public)
        promised = make_plan(file).promised if keys.distinct else (0,) * len(source.axes)
        codebooks, areas, counts = read_in_memory(source, units, promised)
        return found_in(codebooks.values(), [*zip(*areas, counts, strict=True)], whole=whole)

    def in_vault(self, **changes):
        """Ingest the table of such a spec into a vault, and return what is there."""
        plan = self.plan(**changes)
        ingest.fn("a-release", plan.source, plan.units, plan.promised, 2**30)
        codebooks = [read_codebook(shard_folder("a-release"), end) for end in plan.source.codebooks]
        with vault("a-release") as con:
            return found_in(codebooks, con.execute("SELECT area_0, area_1, true_count FROM records").fetchall())

    def records(self, **changes):
        """Return by what the ledger knows the records of the table of such a spec."""
        source = load_spec(self.spec(**changes)).source()
        content = read_content(source.table, source.columns, []).content
        return content.records

    def problems(self, **changes):
        """Return what `check` finds wrong with the tables of such a spec and their columns, with what to do."""
        found = _Problems()
        _check_tables(yaml.safe_load(self.spec(**changes).read_text()), self.folder, found)
        return " ".join(f"{fault} {fault.hint}" for fault in found)

    def release(self, name="trips", output=None, **changes):
        """Release such a spec with threads and without Prefect; return the published folder."""
        plan = self.plan(name, **changes)
        made = new_release(plan, output)
        make(plan, made)
        return Path(made.folder)

    def reserve(self, name, **changes):
        """Reserve a release of such a spec, or be refused by the ledger."""
        plan = self.plan(name, **changes)
        reserve_release(new_release(plan), plan)

    def refusal(self, capfd, *, released=False, **changes):
        """Return the error of a table that is refused and what was said on the terminal: by its field, in one line, without a value; nothing was touched."""
        with pytest.raises(InputError) as caught:
            self.release(**changes) if released else [self.records(**changes), self.ingested(**changes)]
        error, (stdout, stderr) = caught.value, capfd.readouterr()
        assert error.field
        assert "\n" not in str(error)
        assert stdout == ""
        told = r"([0-9,]+ units? (was|were) cut to at most [^\n]*\.\n)?([0-9,]+ (row|unit)s? (is|are) at fault\.\n)?"
        assert re.fullmatch(told, stderr)
        assert [secret for secret in SECRETS if secret in shown_by(error) + stderr] == []
        if released:
            self.assert_untouched()
        return error, stderr

    def assert_untouched(self):
        """Check that nothing was spent and nothing left behind."""
        assert not (self.folder / "out").exists()
        left = {path.name for path in (self.folder / "home").rglob("*") if path.is_file()}
        assert left <= {"store.duckdb", KEY}
        assert [*(self.folder / "home" / "shards").glob("*"), *self.holding(SENTINEL)] == []
        with store() as con:
            assert head(con).length == 0
            assert list_releases(con) == []

    def holding(self, text):
        """Return the files below TRELLIS_HOME that are named for a text, or hold it."""
        files = (self.folder / "home").rglob("*")
        return [str(of) for of in files if text in of.name or (of.is_file() and text.encode() in of.read_bytes())]


@contextmanager
def settled(folder):
    """Give a folder with three good trips, their codebook, and a store of its own; a caller hears what is told."""
    place = Place(folder)
    place.write("trips.csv", trips())
    place.write("codebook.csv", csv(LEVELS, AREAS))
    with pytest.MonkeyPatch.context() as patch, heard_by_caller():
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        yield place
