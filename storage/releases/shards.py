"""Shards and branches: what is drawn, optimised and learnt of a release so far, and the turns of measuring, of which one is sealed.

A shard is its committed row. Nothing has read noisy counts that have no row: the row is their seal.

A turn is open, then closed with its seal, or given up. It is given up only because who drew has gone, or the release was stopped:
never by what was drawn, nor by how long that took. Nobody has read what a turn drew that was given up.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from storage.database.connections import Connection
from storage.errors import SealedAlready, StoreError
from storage.machine.clock import utc_now

Place = tuple[int, str]  # a level and a branch

# noisy: what was drawn, once and for all. counts: of the first pass. estimates: of a second pass, from the noisy counts of a level and of
# everything below it. settled: the counts that the second pass leaves. calibrated: counts that add up to totals of single axes.
# statistics: what is gathered from estimates; prior: what is fitted to those of all branches.
Kind = Literal["noisy", "counts", "estimates", "settled", "calibrated", "statistics", "prior"]
KINDS: tuple[Kind, ...] = get_args(Kind)

TRUNK = "trunk"  # the branch with which a release begins


@dataclass(frozen=True, slots=True)
class Shard:
    """Something made of one level of one branch. What is computed again is the same.

    Attributes:
        level: the level, or the number of a view.
        branch: the branch; at the level of a cut, estimates are about the nodes of the parent branch.
        sha256: of its file.
        rows: how many cells were drawn, or have a count other than 0; 0 of estimates and what is learnt from them.
        cells_below: of counts of the first pass, how many cells of the next level lie below them; 0 of others.
        turn: of noisy counts, in which they were drawn; 0 of others.
    """

    kind: Kind
    level: int
    branch: str
    sha256: str
    rows: int = 0
    cells_below: int = 0
    turn: int = 0

    @property
    def place(self) -> Place:
        """Its level and its branch."""
        return self.level, self.branch

    @property
    def name(self) -> str:
        """The name of its file."""
        return shard_name(self.kind, self.level, self.branch, self.turn)


Shards = Mapping[Kind, Mapping[Place, Shard]]


def shard_name(kind: Kind, level: int, branch: str, turn: int = 0) -> str:
    """Return the name of the file of a shard; noisy counts of the first turn have none in it."""
    return f"level_{level}_{branch}{f'.{turn}' if turn else ''}.{kind}"


@dataclass(frozen=True, slots=True)
class Branch:
    """A slice of another branch's last frontier, with everything below it.

    Attributes:
        parent: the branch that was cut; for the first branches the trunk.
        cut_level: the level of its last frontier.
    """

    name: str
    parent: str
    cut_level: int
    first_node: int
    end_node: int
    holds: Mapping[str, Sequence[str]]


def add_shard(con: Connection, release_id: str, shard: Shard) -> None:
    """Record that a shard is made: noisy counts once, and all others as often as they are computed.

    Raises:
        SealedAlready: this level of this branch has noisy counts.
    """
    import duckdb

    row = [release_id, shard.kind, *shard.place, shard.sha256, shard.rows, shard.cells_below, shard.turn, utc_now()]
    again = "" if shard.kind == "noisy" else "OR REPLACE "
    try:
        con.execute(f"INSERT {again}INTO shards VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    except duckdb.ConstraintException:
        raise SealedAlready(f"Level {shard.level} of {shard.branch} is sealed already.", field=release_id) from None


def list_shards(con: Connection, release_id: str) -> dict[Kind, dict[Place, Shard]]:
    """Return the shards of a release by kind, level and branch, in the order of the tree.

    The shards are read before the branches: another thread may commit in between, and the branch of every shard is then there.
    """
    query = "SELECT kind, level, branch, sha256, rows, cells_below, turn FROM shards WHERE release_id = ?"
    shards = [Shard(*row) for row in con.execute(query, [release_id]).fetchall()]
    return in_order(shards, list_branches(con, release_id) if shards else [])


def in_order(shards: Iterable[Shard], branches: Iterable[str]) -> dict[Kind, dict[Place, Shard]]:
    """Return shards by kind, level and branch, in the order of the tree; of two for the same place the first.

    Args:
        branches: all of its branches but the trunk, in the order of the tree.
    """
    number = {name: place for place, name in enumerate([TRUNK, *branches])}
    return by_kind(sorted(shards, key=lambda of: (of.level, number.get(of.branch, len(number)))))


def by_kind(shards: Iterable[Shard]) -> dict[Kind, dict[Place, Shard]]:
    """Return shards by kind, level and branch, in the order in which they are given; of two for the same place the first."""
    kinds: dict[Kind, dict[Place, Shard]] = {kind: {} for kind in KINDS}
    for shard in shards:
        kinds[shard.kind].setdefault(shard.place, shard)
    return kinds


def released_of(shards: Shards) -> Mapping[Place, Shard]:
    """Return the levels as they are published: after calibration or a second pass, where there is one."""
    return shards["calibrated"] or shards["settled"] or shards["counts"]


def add_branches(con: Connection, release_id: str, branches: Sequence[Branch]) -> None:
    """Record how a branch was cut; a branch is cut once."""
    for of in branches:
        row = [release_id, of.name, of.cut_level, of.first_node, of.end_node, json.dumps(of.holds), of.parent]
        con.execute("INSERT INTO branches VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def list_branches(con: Connection, release_id: str) -> dict[str, Branch]:
    """Return a release's branches except the trunk, by name, in the order of the tree; none until the trunk is cut."""
    rows = con.execute(
        "SELECT branch, parent, cut_level, first_node, end_node, holds FROM branches WHERE release_id = ?", [release_id]
    ).fetchall()
    return in_order_of_tree(
        Branch(name, parent, cut_level, first_node, end_node, json.loads(holds))
        for name, parent, cut_level, first_node, end_node, holds in rows
    )


def in_order_of_tree(branches: Iterable[Branch]) -> dict[str, Branch]:
    """Return all branches of a release except the trunk, by name, in the order of the tree."""
    places: dict[str, tuple[int, ...]] = {TRUNK: ()}
    coarse_to_fine = sorted(branches, key=lambda branch: branch.cut_level)
    for branch in coarse_to_fine:
        places[branch.name] = (*places[branch.parent], branch.first_node)
    return {branch.name: branch for branch in sorted(coarse_to_fine, key=lambda branch: places[branch.name])}


def branches_of_level(branches: Mapping[str, Branch], level: int) -> list[str]:
    """Return the branches that a level consists of, as far as they are cut already, in the order of the tree."""
    begins = {TRUNK: -1} | {name: branch.cut_level for name, branch in branches.items()}
    ends = {branch.parent: branch.cut_level for branch in branches.values()}
    return [name for name, begin in begins.items() if begin < level <= ends.get(name, level)]


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
