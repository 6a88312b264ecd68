"""Trips of people in tables of any kind, over one codebook: a folder for them, what is in the vault of them, and how they are refused."""

import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from flows.planning.plan import Plan, make_plan
from flows.run.driver import make_release
from flows.run.reservation import new_release
from flows.run.runner import report_nothing, submit_to
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
from tasks.ingest.task import ingest
from tests.support.spec import SPEC

N1, N2, S1, S2 = "0101001", "0101002", "0201001", "0201002"
LEVELS = ["region", "province", "municipality"]
AREAS = [(code[:2], code[:4], code) for code in (N1, N2, "0102001", S1, S2)]
HEADER = ("home", "work", "people")
TRIPS = [(N1, N2, 271828), (N2, S1, 314159), (S1, N1, 141421)]
GOOD = {(home, work): count for home, work, count in TRIPS}
# Values of the confidential table that no message may show: they are in no path, line number or text.
UNKNOWN, SENTINEL = "0101777", "Zebedee-Quux"  # the second begins every unit's id
SECRETS = (N1, N2, S1, S2, UNKNOWN, "271828", "314159", "141421", SENTINEL)


def csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a CSV file of values that need no quotes."""
    return "".join(",".join(str(value) for value in row) + "\n" for row in [header, *rows])


def trips(*rows: Sequence[object], header: Sequence[str] = HEADER) -> str:
    """Return the table of trips, three good rows and then these, as CSV."""
    return csv(header, [*TRIPS, *rows])


def in_duckdb(path: Path, *statements: str) -> str:
    """Run statements in a DuckDB file, and return its name."""
    with duckdb.connect(str(path)) as con:
        for statement in statements:
            con.execute(statement)
    return path.name


def shown_by(fault: BaseException) -> str:
    """Return an exception as anybody could record it."""
    return f"{''.join(traceback.format_exception(fault))} {fault!r} {vars(fault)} {fault.args}"


@dataclass(frozen=True)
class Place:
    """A folder with tables and specs over them, a store, and a place to publish."""

    folder: Path

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file and return its name."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def spec(
        self,
        name: str = "trips",
        *,
        codebook: str = "codebook.csv",
        levels: Sequence[str] = LEVELS,
        finest: str = "",
        also: dict[str, Any] | None = None,
        **columns: Any,
    ) -> Path:
        """Write a spec, and return its path.

        Args:
            name: of the spec and its dataset.
            codebook: the public table.
            levels: its columns.
            finest: the released level, the last one if left out.
            also: other keys; those of `privacy` beside the usual ones, of which None takes one out.
            columns: keys of `input` beside the usual ones; likewise.
        """
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

    def plan(self, name: str = "trips", **changes: Any) -> Plan:
        """Plan the release of such a spec."""
        return make_plan(load_spec(self.spec(name, **changes)))

    def ingested(self, *, whole: bool = False, **changes: Any) -> dict[tuple[str, str], int]:
        """Ingest the table of such a spec, and return the vault's records: the codes of both ends, or whole paths, and the count."""
        plan = self.plan(**changes)
        ingest.fn("a-release", plan.source, plan.units, plan.promised, 2**30)
        home, work = (read_codebook(shard_folder("a-release"), end).rows() for end in plan.source.codebooks)
        with vault("a-release") as con:
            records = con.execute("SELECT area_0, area_1, true_count FROM records").fetchall()
        found = {("/".join(home[one]), "/".join(work[other])): count for one, other, count in records}
        assert len(found) == len(records), "a pair of areas appears twice"
        assert all(count > 0 for count in found.values())
        return found if whole else {(one.split("/")[-1], other.split("/")[-1]): n for (one, other), n in found.items()}

    def release(self, name: str = "trips", output: Path | None = None, **changes: Any) -> Path:
        """Release such a spec with threads and without Prefect; return the published folder."""
        plan = self.plan(name, **changes)
        made = new_release(plan, output)
        with ThreadPoolExecutor(2) as threads:
            make_release(plan, made, submit_to(threads), report_nothing)
        return Path(made.folder)

    def refusal(self, capfd: pytest.CaptureFixture[str], **changes: Any) -> tuple[InputError, str]:
        """Release a spec that is refused for its input; return the error and what was said on the terminal.

        Checks what holds of every refusal: it names a field and says so in one line, shows no confidential value, says
        nothing on stdout and at most how many are at fault on stderr, and touches nothing.
        """
        with pytest.raises(InputError) as caught:
            self.release(**changes)
        error, (stdout, stderr) = caught.value, capfd.readouterr()
        assert error.field
        assert "\n" not in str(error)
        assert stdout == ""
        told = r"([0-9,]+ units? (was|were) cut to at most [^\n]*\.\n)?([0-9,]+ (row|unit)s? (is|are) at fault\.\n)?"
        assert re.fullmatch(told, stderr)
        assert [secret for secret in SECRETS if secret in shown_by(error) + stderr] == []
        self.assert_untouched()
        return error, stderr

    def assert_untouched(self) -> None:
        """Check that nothing was spent and nothing left behind."""
        assert not (self.folder / "out").exists()
        left = {path.name for path in (self.folder / "home").rglob("*") if path.is_file()}
        assert left <= {"store.duckdb", KEY}
        assert [*(self.folder / "home" / "shards").glob("*"), *self.holding(SENTINEL)] == []
        with store() as con:
            assert head(con).length == 0
            assert list_releases(con) == []

    def holding(self, text: str) -> list[str]:
        """Return the files below TRELLIS_HOME that are named for a text, or hold it."""
        files = (self.folder / "home").rglob("*")
        return [str(of) for of in files if text in of.name or (of.is_file() and text.encode() in of.read_bytes())]


@contextmanager
def settled(folder: Path) -> Iterator[Place]:
    """Give a folder with three good trips, their codebook, and a store of its own; a caller hears what is told."""
    place = Place(folder)
    place.write("trips.csv", trips())
    place.write("codebook.csv", csv(LEVELS, AREAS))
    with pytest.MonkeyPatch.context() as patch, heard_by_caller():
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        yield place
