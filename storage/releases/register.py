"""The register of releases: what each was asked for, its terms, its state, and the Prefect runs that have worked on it. Everything here is public."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from storage.database.connections import Connection
from storage.errors import MadeAlready, UsageError
from storage.machine.clock import utc_now
from storage.machine.home import claim_shard_folder
from storage.releases.parts import Part
from storage.releases.terms import Terms

REPORT = "report.html"  # in a published folder

_UNKNOWN = "unknown"  # instead of a number


@dataclass(frozen=True, slots=True)
class Release:
    """A release as the store knows it.

    Attributes:
        supersedes: the release whose place it takes; None where it revises none.
        views: the terms of the views that have not the cells of a level, numbered from T + 1.
    """

    id: str
    name: str
    dataset: str
    state: str
    reason: str
    created: str
    spec: str
    terms: Terms
    folder: str
    levels: tuple[Part, ...]
    supersedes: str | None = None
    views: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The terms of all levels and views, by their numbers."""
        return (*self.levels, *self.views)


@dataclass(frozen=True, slots=True)
class ListedRelease:
    """A release in the list of all: its state, what it supersedes, and which published release supersedes it.

    Attributes:
        in_ui: whether it ever ran on Prefect, whose UI then lists it.
    """

    id: str
    dataset: str
    state: str
    created: str
    supersedes: str | None
    superseded_by: str | None
    in_ui: bool


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one consistency check found at one level."""

    check: str
    level: int
    passed: bool


# of the tables `releases` and `levels`
_OF_RELEASE = tuple(field.name for field in fields(Release) if field.name not in {"levels", "views"})
_OF_PART = tuple(field.name for field in fields(Part))


def _quoted(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)  # `view` is a word of SQL


def add_release(con: Connection, release: Release) -> None:
    """Add a release and the terms of its levels."""
    values = {column: getattr(release, column) for column in _OF_RELEASE} | {"terms": release.terms.to_json()}
    _insert(con, "releases", values, [[*values.values()]])
    parts = [
        {column: getattr(part, column) for column in _OF_PART}
        | {
            "release_id": release.id,
            "axes": json.dumps(part.axes),
            "possible_cells": _UNKNOWN if part.possible_cells is None else str(part.possible_cells),
            "rho": str(part.rho),
            "tau": str(part.tau),
        }
        for part in release.parts
    ]
    _insert(con, "levels", parts[0], [[*of_part.values()] for of_part in parts])


def _insert(con: Connection, table: str, columns: Iterable[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows, at least one, by one statement: each takes DuckDB milliseconds."""
    places = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * len(rows))
    con.execute(f"INSERT INTO {table} ({_quoted(columns)}) VALUES {places}", [value for row in rows for value in row])


def find_release(con: Connection, release_id: str) -> Release:
    """Return a release.

    Raises:
        UsageError: there is no release of that id.
    """
    row = con.execute(f"SELECT {_quoted(_OF_RELEASE)} FROM releases WHERE id = ?", [release_id]).fetchone()
    if row is None:
        raise UsageError(
            f"There is no release {release_id}.", field="ID", hint="`trellis releases` lists those there are."
        )
    values = dict(zip(_OF_RELEASE, row, strict=True))
    terms = values["terms"] = Terms.from_json(values["terms"])
    rows = con.execute(f"SELECT {_quoted(_OF_PART)} FROM levels WHERE release_id = ? ORDER BY level", [release_id])
    parts = _parts(tuple(rows.fetchall()))
    levels = len(terms.steps) + 1
    return Release(**values, levels=parts[:levels], views=parts[levels:])


@lru_cache(maxsize=2)  # every stage asks for those of its release
def _parts(rows: tuple[tuple[Any, ...], ...]) -> tuple[Part, ...]:
    return tuple(_part(dict(zip(_OF_PART, of_part, strict=True))) for of_part in rows)


def _part(values: dict[str, Any]) -> Part:
    cells = values["possible_cells"]
    return Part(
        **values
        | {
            "axes": json.loads(values["axes"]),
            "possible_cells": None if cells == _UNKNOWN else int(cells),
            "rho": Fraction(values["rho"]),
            "tau": Fraction(values["tau"]),
        }
    )


def state_of(con: Connection, release_id: str) -> str | None:
    """Return the state of a release, None if the store does not know it."""
    row = con.execute("SELECT state FROM releases WHERE id = ?", [release_id]).fetchone()
    return row[0] if row else None


def states_of(con: Connection, release_ids: Sequence[str]) -> dict[str, str | None]:
    """Return the states of releases, by their ids, as `state_of` does."""
    rows = con.execute("SELECT id, state FROM releases WHERE list_contains(?, id)", [list(release_ids)]).fetchall()
    return dict.fromkeys(release_ids) | dict(rows)


def is_reserved(con: Connection, release_id: str) -> bool:
    """Return whether a release was ever reserved, so that it is charged and can be continued or has ended."""
    return state_of(con, release_id) not in {None, "refused"}


def how_to_go_on(con: Connection, release_id: str) -> str:
    """Return, as a sentence, how a release that has stopped goes on."""
    return f"`trellis rerun {release_id}` continues it." if is_reserved(con, release_id) else "Nothing was reserved."


def list_releases(con: Connection) -> list[ListedRelease]:
    """Return every release, the newest last."""
    rows = con.execute(
        "SELECT id, dataset, state, created, supersedes, (SELECT max(later.id) FROM releases AS later"
        " WHERE later.supersedes = releases.id AND later.state = 'published'),"
        " EXISTS (FROM runs WHERE release_id = releases.id) FROM releases ORDER BY created, id"
    ).fetchall()
    return [ListedRelease(*row) for row in rows]


def last_published(con: Connection) -> dict[str, str]:
    """Return when each dataset's latest published release passed its checks: UTC, ISO 8601."""
    query = (
        "SELECT dataset, max(checked_at) FROM releases JOIN checks ON release_id = id"
        " WHERE state = 'published' GROUP BY dataset ORDER BY dataset"
    )
    return dict(con.execute(query).fetchall())


def has_folder(release: Release) -> bool:
    """Return whether the published folder of a release exists; it is whole then, even if its books are still open."""
    return (Path(release.folder) / "manifest.json").is_file()


def specs_of(con: Connection, dataset: str, states: Sequence[str]) -> list[tuple[str, str]]:
    """Return the releases of a dataset in some states with the specs that they were reserved with, the newest last."""
    query = "SELECT id, spec FROM releases WHERE dataset = ? AND state IN (SELECT unnest(?)) ORDER BY created, id"
    return con.execute(query, [dataset, list(states)]).fetchall()


def superseding(con: Connection, release_id: str) -> dict[str, str]:
    """Return the releases that supersede a release, with their states, the oldest first."""
    rows = con.execute("SELECT id, state FROM releases WHERE supersedes = ? ORDER BY created, id", [release_id])
    return dict(rows.fetchall())


def set_state(con: Connection, release_id: str, state: str, reason: str = "") -> None:
    """Record the state of a release, and for a failed or refused one the public reason."""
    con.execute("UPDATE releases SET state = ?, reason = ? WHERE id = ?", [state, reason, release_id])


def failed_because(con: Connection, reason: str) -> list[tuple[str, str]]:
    """Return the releases that have failed for a reason, and their datasets, the newest last."""
    query = "SELECT id, dataset FROM releases WHERE state = 'failed' AND reason = ? ORDER BY created, id"
    return con.execute(query, [reason]).fetchall()


def set_terms(con: Connection, release_id: str, terms: Terms) -> None:
    """Record what the stages need to know of a release."""
    con.execute("UPDATE releases SET terms = ? WHERE id = ?", [terms.to_json(), release_id])


def forget_refusal(con: Connection, release_id: str) -> None:
    """Delete a refused release, so that it can be asked for again: nothing of it was ever reserved."""
    if state_of(con, release_id) == "refused":
        con.execute("DELETE FROM levels WHERE release_id = ?", [release_id])
        con.execute("DELETE FROM releases WHERE id = ?", [release_id])


def check_unmade(con: Connection, release_id: str) -> None:
    """Refuse a release that the store knows already; one that the budget refused is forgotten instead.

    Raises:
        MadeAlready: it was reserved before.
    """
    forget_refusal(con, release_id)
    if state_of(con, release_id) is not None:
        raise MadeAlready(f"The store already has {release_id}. Trellis makes each release only once.")


def claim_id(con: Connection, name: str) -> str:
    """Return `<name>-<UTC time>`, followed by a number if another release of that second has that id already.

    No other run, in this process or another, gets the same id.
    """
    wanted = f"{name}-{utc_now().replace('-', '').replace(':', '')}"
    taken = {row[0] for row in con.execute("SELECT id FROM releases WHERE starts_with(id, ?)", [wanted]).fetchall()}
    candidates = chain([wanted], (f"{wanted}-{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken and claim_shard_folder(candidate))


def record_checks(con: Connection, release_id: str, checks: Sequence[tuple[str, int, bool]]) -> None:
    """Record the results of a release's consistency checks, in place of those of an earlier run."""
    con.execute("DELETE FROM checks WHERE release_id = ?", [release_id])
    columns = [list(column) for column in zip(*checks, strict=True)] or [[], [], []]
    rows = "SELECT ?, unnest(?::VARCHAR[]), unnest(?::INTEGER[]), unnest(?::BOOLEAN[]), ?"
    con.execute(f"INSERT INTO checks {rows}", [release_id, *columns, utc_now()])


def list_checks(con: Connection, release_id: str) -> list[CheckResult]:
    """Return what the checks of a release found, level by level."""
    rows = con.execute(
        'SELECT "check", level, passed FROM checks WHERE release_id = ? ORDER BY level, "check"', [release_id]
    ).fetchall()
    return [CheckResult(*row) for row in rows]


class OpenRun(NamedTuple):
    """A flow run that has not ended, as far as the store knows.

    Attributes:
        began: when it last began, in UTC, to the second.
    """

    release_id: str
    began: datetime


def open_run(con: Connection, run: str, release_id: str) -> None:
    """Record that a flow run has begun to work on a release, for the first time or again."""
    con.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, true)", [run, release_id, utc_now()])


def close_run(con: Connection, run: str) -> None:
    """Record that a flow run has ended, in whatever way."""
    con.execute("UPDATE runs SET is_open = false WHERE run = ?", [run])


def open_runs(con: Connection) -> dict[str, OpenRun]:
    """Return the flow runs that have not ended, as far as the store knows."""
    rows = con.execute("SELECT run, release_id, began FROM runs WHERE is_open ORDER BY began").fetchall()
    return {run: OpenRun(release_id, datetime.fromisoformat(began)) for run, release_id, began in rows}


def has_run(con: Connection, release_id: str) -> bool:
    """Return whether a flow run has ever worked on a release."""
    return bool(con.execute("SELECT 1 FROM runs WHERE release_id = ? LIMIT 1", [release_id]).fetchone())


def release_of(con: Connection, run: str) -> str | None:
    """Return the release that a flow run has worked on, None if it never began to."""
    row = con.execute("SELECT release_id FROM runs WHERE run = ?", [run]).fetchone()
    return row[0] if row else None
