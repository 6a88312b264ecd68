"""The work on one release: what its steps read and write, and the loading of its tree and its frontiers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from storage.counts.shard_files import (
    AreaTable,
    ShardStore,
    derived_path,
    read_area_table,
    read_codebook,
    read_groups,
    shards_in_folder,
)
from storage.database.connections import store
from storage.machine.home import shard_folder
from storage.machine.locks import check_going_on
from storage.record import EarlierDay, Record, load_record
from storage.releases.register import Release
from storage.releases.shards import TRUNK, Branch, Kind, Place, Shard, shard_name
from storage.releases.terms import Terms
from storage.tables import Role, roles_of
from tasks.tree.axis import FloatArray, IntArray, axis_from_codebook, numbered
from tasks.tree.branches import RUNS, branch_name, pieces_of, slices_of
from tasks.tree.frontier import CHUNK_CELLS, Frontier
from tasks.tree.order import Tree
from tasks.tree.ordered import in_order
from tasks.tree.views import Derived, Partition, View, ViewCells, level_view, numbered_codes
from tasks.words.areas import Names, Shapes


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What the steps of one release work on. Nothing here reads a true count.

    Attributes:
        check_going_on: raises where the release is asked to stop.
        load_groups: returns how many groups each finest region has, int64, where a public list says so; None otherwise.
        shards_of: from an earlier day of its series to where that day's shards are.
    """

    record: Record
    shard_store: ShardStore
    load_tree: Callable[[], Tree]
    check_going_on: Callable[[], None]
    load_derived: Callable[[], Mapping[str, Derived]] = dict
    load_groups: Callable[[], IntArray | None] = lambda: None
    shards_of: Callable[[str], ShardStore] = shards_in_folder

    @property
    def tree(self) -> Tree:
        """The tree; where no codebook lists some codes, there is none before its leaves are kept."""
        return self.load_tree()

    def partition(self, number: int) -> Partition:
        """Return a level or a view with all its cells."""
        return Partition(self.tree, self.view(number))

    def view(self, number: int) -> View:
        """Return a level, or a view, by its number."""
        if number <= self.record.finest:
            return level_view(self.tree, number)
        derived = self.load_derived()
        terms = next(view for view in self.record.release.terms.views if view.number == number)
        names = self.record.release.parts[number].axes
        return View(number, terms.levels, names, tuple(derived[name] for name in terms.derived))

    def all_noisy(self, number: int) -> IntArray:
        """Return all sealed noisy counts of a level or view of which every cell is measured, in the order of its areas."""
        return np.concatenate(list(self.noisy(number, TRUNK)))

    def noisy(self, level: int, branch: str) -> Iterator[IntArray]:
        """Yield the sealed noisy counts of a level of a branch, in parts."""
        seal = self.record.shards["noisy"][level, branch]
        sealed = self.shard_store.groups(shard_name("noisy", level, branch, seal.turn), seal.sha256)
        return (group["noisy"] for group in sealed)

    def noisy_of(self, day: EarlierDay, level: int, column: str = "noisy") -> Iterator[IntArray]:
        """Yield the sealed noisy counts of a level of an earlier day of its series, or their sums since the first day (`sum`), in parts."""
        seal = day.seals[level]
        sealed = self.shards_of(day.release_id).groups(shard_name("noisy", level, TRUNK, seal.turn), seal.sha256)
        return (group[column] for group in sealed)

    def noisy_since(self, level: int) -> Iterator[IntArray]:
        """Yield the sums of the sealed noisy counts of a level since the first day of its series, in parts."""
        seal = self.record.shards["noisy"][level, TRUNK]
        sealed = self.shard_store.groups(shard_name("noisy", level, TRUNK, seal.turn), seal.sha256)
        return (group["sum"] for group in sealed)

    def columns(self, shard: Shard) -> dict[str, Any]:
        """Return the columns of a shard, by name."""
        return self.shard_store.columns(shard.name, shard.sha256)

    def write_numbers(self, kind: Kind, level: int, branch: str, columns: Mapping[str, FloatArray]) -> Shard:
        """Write what was computed of a level of a branch, float64."""
        name = shard_name(kind, level, branch)
        return Shard(kind, level, branch, self.shard_store.write(name, tuple(columns), [columns], pa.float64()))

    def write_rows(self, kind: Kind, level: int, branch: str, columns: Mapping[str, IntArray], rows: IntArray) -> Shard:
        """Write some rows of the nodes of a level of a branch, int64, in row groups of `CHUNK_CELLS`."""
        chunks = (rows[start : start + CHUNK_CELLS] for start in range(0, len(rows), CHUNK_CELLS))
        groups = ({name: column[chunk] for name, column in columns.items()} for chunk in chunks)
        sha256 = self.shard_store.write(shard_name(kind, level, branch), tuple(columns), groups)
        return Shard(kind, level, branch, sha256, len(rows))

    def nodes(self, shard: Shard) -> Frontier:
        """Return the nodes that are left of one level of one branch."""
        columns = self.columns(shard)
        return Frontier(shard.level, self._areas(columns), columns["count"])

    def counts(self, number: int) -> IntArray:
        """Return the released counts of all cells of a level or view, zeros too, in the order of their areas."""
        if number > self.record.finest:
            shard = self.record.released[number, TRUNK]
            of_view: IntArray = self.columns(shard)["count"]
            return of_view
        partition = self.partition(number)
        counts = np.zeros(len(partition), dtype=np.int64)
        for nodes in self.level(number, self.record.released):
            counts[partition.places(ViewCells(partition.view.axis_levels, nodes.areas))] = nodes.counts
        return counts

    def parents(self, level: int, branch: str, shards: Mapping[Place, Shard] | None = None) -> Frontier:
        """Return the nodes whose children are the cells of one level (> 0) of one branch.

        Args:
            shards: the counts from which the nodes are taken; those of the first pass if left out.
        """
        shards = self.record.shards["counts"] if shards is None else shards
        if branch != TRUNK and self.record.branches[branch].cut_level == level - 1:
            cut = self.record.branches[branch]
            above = shards[level - 1, cut.parent]
            return self.nodes(above)[self.rows_of(above, cut)].copy()
        return self.nodes(shards[level - 1, branch])

    def rows_of(self, shard: Shard, branch: Branch) -> slice:
        """Return the rows of a parent's last frontier that a branch has; after a second pass there are fewer."""
        if shard.kind == "counts":
            return slice(branch.first_node, branch.end_node)
        row = self.columns(shard)["row"]
        return slice(*np.searchsorted(row, [branch.first_node, branch.end_node]).tolist())

    def level(self, level: int, shards: Mapping[Place, Shard]) -> Iterator[Frontier]:
        """Yield all released nodes of a level in the order of the tree, a row group of a branch at a time."""
        for (of, _), shard in shards.items():
            if of == level:
                for columns in self.shard_store.groups(shard.name, shard.sha256):
                    yield Frontier(level, self._areas(columns), columns["count"])

    def coded_leaves(self, seal: Shard) -> tuple[Frontier, dict[str, pl.DataFrame]]:
        """Return the leaves that were kept where no codebook lists the codes, in the order of the tree, from what is sealed alone.

        Returns:
            The leaves, whose areas are numbered among themselves; and the codebooks of these areas, by axis.
        Raises:
            StoreError: the shard is missing or not what was sealed.
        """
        table = self.shard_store.table(seal.name, seal.sha256)
        release = self.record.release
        areas, codebooks = [], {}
        for number, axis in enumerate(release.terms.axes):
            if axis in release.terms.unlisted:
                levels = [name for name in dict.fromkeys(terms.axes[axis] for terms in release.levels) if name]
                texts = [table.column(f"code_{number}_{own}") for own in range(1, len(levels) + 1)]
                codebooks[axis], of_axis = numbered(pl.DataFrame(dict(zip(levels, texts, strict=True))))
                areas.append(of_axis)
            else:
                areas.append(table.column(f"area_{number}").to_numpy())
        return Frontier(seal.level, tuple(areas), table.column("noisy").to_numpy()), codebooks

    def _areas(self, columns: Mapping[str, IntArray]) -> tuple[IntArray, ...]:
        return tuple(columns[f"area_{axis}"] for axis in range(len(self.record.release.terms.axes)))


def stored_job(release_id: str) -> Job:
    """Return the work on a release as the store knows it now; errors are those of `load_record`."""
    with store() as con:
        return job_of(load_record(con, release_id))


def job_of(record: Record) -> Job:
    """Return the work on a release of which the store has a record."""
    release = record.release
    return Job(
        record,
        shards_in_folder(release.id),
        partial(tree_of, release),
        partial(check_going_on, release.id),
        partial(derived_of, release),
        partial(read_groups, release.id),
    )


def tree_of(release: Release) -> Tree:
    """Return the tree of a release that the store knows."""
    return tree_in(shard_folder(release.id), release.terms)


def tree_in(folder: Path, terms: Terms) -> Tree:
    """Return the tree of a release, from the codebooks in a folder."""
    roles = roles_of(terms.axes, terms.published_spec, counts_groups=terms.counts_groups)
    tree = load_tree(folder, terms.axes, terms.steps, tuple(roles.values()))
    return in_order(tree, terms.published_spec).cascading(terms.cascades)


def names_of(release: Release) -> Names:
    """Return the names of the areas of a release that the store knows, as they were kept when it was ingested."""
    return Names(_area_tables(release, "names"))


def shapes_of(release: Release) -> Shapes:
    """Return the shapes of the areas of a release that the store knows, as they were kept when it was ingested."""
    return Shapes(_area_tables(release, "shapes"))


def _area_tables(release: Release, kind: AreaTable) -> dict[tuple[str, int], pl.DataFrame]:
    """Return the names or the shapes of the areas of a release, by axis and axis level, where there are any."""
    places = ((axis.name, level) for axis in tree_of(release).axes for level in range(1, axis.depth + 1))
    kept = {place: read_area_table(release.id, kind, *place) for place in places}
    return {place: areas for place, areas in kept.items() if areas is not None}


def derived_of(release: Release) -> dict[str, Derived]:
    """Return the derived columns of a release that the store knows, from the codes that were kept when it was ingested."""
    columns = {}
    for terms in release.terms.derived:
        codes = pl.read_parquet(derived_path(release.id, terms.name), glob=False)["code"]
        columns[terms.name] = numbered_codes(terms.name, terms.of, codes)
    return columns


@lru_cache(maxsize=4)
def load_tree(
    shards: Path, axes: tuple[str, ...], steps: tuple[int, ...], roles: tuple[Role | None, ...] | None = None
) -> Tree:
    """Return the tree of a release from the codebooks that were kept among its shards when it was ingested.

    A release without a codebook has its codes there once its leaves are kept, and has no tree before.
    """
    codebooks = (read_codebook(shards, axis) for axis in axes)
    return Tree(tuple(map(axis_from_codebook, axes, codebooks, roles or (None,) * len(axes))), steps)


def cut_branch(job: Job, shard: Shard, most_cells: int, runs: int = RUNS, wanted: int = 0) -> list[Branch]:
    """Return the branches into which a branch is cut at a frontier, by public counts alone; none if it goes on whole.

    Args:
        shard: the frontier.
        most_cells: that a branch may have on one level.
        wanted: as in `pieces_of`.
    """
    tree, is_trunk = job.tree, shard.branch == TRUNK
    sizes = tree.depth, shard.level, shard.rows, shard.cells_below
    count = pieces_of(*sizes, most_cells, is_trunk=is_trunk, runs=runs, wanted=wanted)
    if not count:
        return []
    frontier = job.nodes(shard)
    parts = slices_of(tree, frontier, count, most_cells, job.record.complete)
    if len(parts) == 1:
        return []
    return [
        Branch(
            branch_name(number, "" if is_trunk else shard.branch),
            shard.branch,
            shard.level,
            nodes.start,
            nodes.stop,
            _ends(tree, frontier[nodes]),
        )
        for number, nodes in enumerate(parts)
    ]


def _ends(tree: Tree, nodes: Frontier) -> dict[str, list[str]]:
    """Return, per axis that is refined already, the codes of the first and the last node."""
    return {
        axis.name: axis.codes[reached - 1].gather([int(areas[0]), int(areas[-1])]).to_list()
        for axis, areas, reached in zip(tree.axes, nodes.areas, tree.axis_levels(nodes.level), strict=True)
        if reached
    }
