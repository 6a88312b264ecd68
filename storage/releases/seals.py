"""Seals and frontiers: which levels of which branches are measured, and which are optimised.

A seal is its committed row. Nothing has read a shard that has no row.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import duckdb

from storage.database.connections import Connection
from storage.errors import SealedAlready
from storage.machine.clock import utc_now

Place = tuple[int, str]  # a level and a branch
CountsKind = Literal["counts", "settled", "calibrated"]
EstimateKind = Literal["estimates", "statistics", "prior"]


@dataclass(frozen=True, slots=True)
class Seal:
    """The noisy counts of one level of one branch: measured, and never measured again.

    Attributes:
        turn: in which they were drawn.
    """

    level: int
    branch: str
    sha256: str
    cells: int
    turn: int = 0


@dataclass(frozen=True, slots=True)
class FrontierShard:
    """The counts of the nodes that remain of one level of one branch, and the number of cells below them.

    Attributes:
        kind: which counts they are: those of the first pass; `settled`, of a second pass; or `calibrated` to the totals of
            single axes. Only the first pass counts the cells below.
    """

    level: int
    branch: str
    sha256: str
    nonzero: int
    cells_below: int
    kind: CountsKind = "counts"


@dataclass(frozen=True, slots=True)
class EstimateShard:
    """The estimates of a second pass from the noisy counts of one level of one branch and of everything below it.

    Attributes:
        kind: whether it is these estimates; or the `statistics` that are gathered from them, to which a prior is fitted; or the
            `prior` of a level, which is the trunk's.
    """

    level: int
    branch: str
    sha256: str
    kind: EstimateKind = "estimates"


TRUNK = "trunk"  # the branch with which a release begins


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


def add_seal(con: Connection, release_id: str, seal: Seal) -> None:
    """Seal a shard.

    Raises:
        SealedAlready: this level of this branch has a seal.
    """
    try:
        con.execute(
            "INSERT INTO seals VALUES (?, ?, ?, ?, ?, ?, ?)",
            [release_id, seal.level, seal.branch, seal.sha256, seal.cells, utc_now(), seal.turn],
        )
    except duckdb.ConstraintException:
        raise SealedAlready(f"Level {seal.level} of {seal.branch} is sealed already.", field=release_id) from None


def list_seals(con: Connection, release_id: str) -> dict[Place, Seal]:
    """Return a release's seals by level and branch."""
    rows = con.execute(
        "SELECT level, branch, sha256, cells, turn FROM seals WHERE release_id = ? ORDER BY level, branch", [release_id]
    ).fetchall()
    return {(row[0], row[1]): Seal(*row) for row in rows}


def add_frontier(con: Connection, release_id: str, shard: FrontierShard) -> None:
    """Record that a level of a branch is optimised; computing it again gives the same result."""
    con.execute(
        "INSERT OR REPLACE INTO frontiers VALUES (?, ?, ?, ?, ?, ?)",
        [release_id, shard.level, shard.branch, shard.sha256, shard.nonzero, shard.cells_below],
    )


def list_frontiers(con: Connection, release_id: str) -> dict[Place, FrontierShard]:
    """Return a release's optimised levels by level and branch, in the order of the tree."""
    rows = con.execute(
        "SELECT level, branch, sha256, nonzero, cells_below FROM frontiers WHERE release_id = ?", [release_id]
    ).fetchall()
    return _in_order(con, release_id, [FrontierShard(*row) for row in rows])


def add_estimates(con: Connection, release_id: str, shard: EstimateShard) -> None:
    """Record what a second pass has estimated; computing it again gives the same result."""
    con.execute(
        "INSERT OR REPLACE INTO estimates VALUES (?, ?, ?, ?)", [release_id, shard.level, shard.branch, shard.sha256]
    )


def list_estimates(con: Connection, release_id: str) -> dict[Place, EstimateShard]:
    """Return what a second pass has estimated of a release, by level and branch."""
    rows = con.execute("SELECT level, branch, sha256 FROM estimates WHERE release_id = ?", [release_id]).fetchall()
    return {(row[0], row[1]): EstimateShard(*row) for row in rows}


def add_learnt(con: Connection, release_id: str, shard: EstimateShard) -> None:
    """Record what a second pass has learnt from its estimates; computing it again gives the same result."""
    con.execute(
        "INSERT OR REPLACE INTO learnt VALUES (?, ?, ?, ?, ?)",
        [release_id, shard.kind, shard.level, shard.branch, shard.sha256],
    )


def list_learnt(con: Connection, release_id: str, kind: EstimateKind) -> dict[Place, EstimateShard]:
    """Return what a second pass has learnt from the estimates of a release, by level and branch."""
    rows = con.execute(
        "SELECT level, branch, sha256, kind FROM learnt WHERE release_id = ? AND kind = ?", [release_id, kind]
    ).fetchall()
    return {(row[0], row[1]): EstimateShard(*row) for row in rows}


def add_settled(con: Connection, release_id: str, shard: FrontierShard) -> None:
    """Record settled or calibrated counts; computing them again gives the same result."""
    con.execute(
        f"INSERT OR REPLACE INTO {shard.kind} VALUES (?, ?, ?, ?, ?)",
        [release_id, shard.level, shard.branch, shard.sha256, shard.nonzero],
    )


def list_settled(con: Connection, release_id: str, kind: CountsKind = "settled") -> dict[Place, FrontierShard]:
    """Return a release's settled or calibrated levels, by level and branch, in the order of the tree."""
    rows = con.execute(
        f"SELECT level, branch, sha256, nonzero, 0, ? FROM {kind} WHERE release_id = ?", [kind, release_id]
    ).fetchall()
    return _in_order(con, release_id, [FrontierShard(*row) for row in rows])


def list_released(con: Connection, release_id: str) -> dict[Place, FrontierShard]:
    """Return a release's levels as they are published: after calibration or a second pass, if there is one."""
    found = (list_settled(con, release_id, kind) for kind in ("calibrated", "settled"))
    return next(filter(None, found), None) or list_frontiers(con, release_id)


def _in_order(con: Connection, release_id: str, shards: Sequence[FrontierShard]) -> dict[Place, FrontierShard]:
    if not shards:
        return {}
    place = {name: number for number, name in enumerate([TRUNK, *list_branches(con, release_id)])}
    in_order = sorted(shards, key=lambda shard: (shard.level, place[shard.branch]))
    return {(shard.level, shard.branch): shard for shard in in_order}


def add_branches(con: Connection, release_id: str, branches: Sequence[Branch]) -> None:
    """Record how a branch was cut; a branch is cut once."""
    for branch in branches:
        con.execute(
            "INSERT INTO branches VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                release_id,
                branch.name,
                branch.cut_level,
                branch.first_node,
                branch.end_node,
                json.dumps(branch.holds),
                branch.parent,
            ],
        )


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


def cells_of_level(
    level: int, seals: Mapping[Place, Seal], frontiers: Mapping[Place, FrontierShard]
) -> tuple[int, int]:
    """Return how many cells of a level are measured, and how many will be as far as is known."""
    measured = sum(seal.cells for (of, _), seal in seals.items() if of == level)
    known = sum(shard.cells_below for (of, _), shard in frontiers.items() if of == level - 1)
    return measured, max(measured, known)
