"""Turns of measuring: how often a level of a branch was begun, and which of its draws was sealed.

A turn is open, then closed with its seal, or given up. It is given up only because who drew has gone, or the release was stopped:
never by what was drawn, nor by how long that took. Nobody has read what a turn drew that was given up.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from storage.database.connections import Connection
from storage.errors import SealedAlready, StoreError
from storage.releases.shards import Place

State = Literal["open", "closed", "given up"]

OPEN, CLOSED, GIVEN_UP = get_args(State)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of measuring one level of one branch; the first is 0."""

    level: int
    branch: str
    turn: int
    state: State


def list_turns(con: Connection, release_id: str) -> list[Turn]:
    """Return the turns of a release, those of a place in their order."""
    query = "SELECT level, branch, turn, state FROM turns WHERE release_id = ? ORDER BY level, branch, turn"
    return [Turn(*row) for row in con.execute(query, [release_id]).fetchall()]


def count_given_up(con: Connection) -> int:
    """Return how many turns of all releases were given up."""
    return int(con.execute("SELECT count(*) FROM turns WHERE state = ?", [GIVEN_UP]).fetchall()[0][0])


def open_turn(con: Connection, release_id: str, place: Place) -> int:
    """Open the next turn of a level of a branch, and return its number. Nothing is drawn before that is committed.

    Raises:
        SealedAlready: one of its turns is closed.
        StoreError: one of its turns is open.
    """
    earlier = [turn for turn in list_turns(con, release_id) if (turn.level, turn.branch) == place]
    states, (level, branch) = {turn.state for turn in earlier}, place
    if CLOSED in states:
        raise SealedAlready(f"Level {level} of {branch} is sealed already.", field=release_id)
    if OPEN in states:
        raise StoreError(f"Level {level} of {branch} is being measured already.", field=release_id)
    con.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?)", [release_id, level, branch, len(earlier), OPEN])
    return len(earlier)


def end_turn(con: Connection, release_id: str, place: Place, turn: int, state: State) -> None:
    """Close an open turn, in the transaction that seals what it drew; or give it up, before the next one is opened.

    Raises:
        StoreError: it is not open. What it drew is not sealed.
    """
    level, branch = place
    moved = con.execute(
        "UPDATE turns SET state = ? WHERE release_id = ? AND level = ? AND branch = ? AND turn = ? AND state = ? RETURNING turn",
        [state, release_id, level, branch, turn, OPEN],
    ).fetchall()
    if not moved:
        raise StoreError(f"Turn {turn} of level {level} of {branch} is not open.", field=release_id)
