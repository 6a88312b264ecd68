"""The tree stage, and loading of the tree and the frontiers for every later stage."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from storage.counts.shards import (
    frontier_path,
    noisy_path,
    read_codebook,
    read_row_groups,
    read_shard,
    read_shard_table,
)
from storage.counts.vault import read_records, read_true_codebooks, true_levels, vault, vault_path, write_true_level
from storage.machine.claims import shard_folder
from storage.record import Record
from storage.releases.register import Release
from storage.releases.seals import TRUNK, Branch, FrontierShard, Place, Seal
from tasks.stage import stage
from tasks.tree.axis import axis_from_codebook
from tasks.tree.branches import branch_count, branch_name, slices_of
from tasks.tree.codes import numbered
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree
from tasks.tree.true_tree import grow


@stage("grow tree")
def grow_tree(release_id: str, axes: Sequence[str], steps: Sequence[int], memory: int) -> None:
    """Write the true levels of a release to its vault.

    Args:
        release_id: the release.
        axes: their names.
        steps: the order of refinement.
        memory: bytes that DuckDB may take.
    """
    shards = shard_folder(release_id)
    with vault(release_id, read_only=False, memory=memory) as con:
        if codes := read_true_codebooks(con):  # beside the shards they come only once they are released
            codebooks = [
                codes[number] if number in codes else read_codebook(shards, axis) for number, axis in enumerate(axes)
            ]
            tree = Tree(tuple(map(axis_from_codebook, axes, codebooks)), tuple(steps))
        else:
            tree = load_tree(shards, tuple(axes), tuple(steps))
        leaf_areas, true_counts = read_records(con, len(axes))
        for level, nodes in enumerate(grow(tree, leaf_areas, true_counts)):
            columns = {
                "true_count": nodes.true_counts,
                "first_child": nodes.first_child,
                "children": nodes.children,
            }
            write_true_level(con, level, nodes.areas, columns)
        con.execute("DROP TABLE records")


def is_grown(release_id: str, depth: int) -> bool:
    """Return whether the vault of a release holds all its true levels, and nothing else."""
    return vault_path(release_id).exists() and true_levels(release_id) == depth + 1


@lru_cache(maxsize=4)
def load_tree(shards: Path, axes: tuple[str, ...], steps: tuple[int, ...]) -> Tree:
    """Return the tree of a release from the codebooks that were kept among its shards when it was ingested.

    A release without a codebook has its codes there once its leaves are kept, and has no tree before.
    """
    return Tree(tuple(axis_from_codebook(axis, read_codebook(shards, axis)) for axis in axes), steps)


def tree_of(release: Release) -> Tree:
    """Return the tree of a release that the store knows."""
    return load_tree(shard_folder(release.id), release.terms.axes, release.terms.steps)


def read_coded_leaves(release: Release, seal: Seal) -> tuple[Frontier, dict[str, pl.DataFrame]]:
    """Return the leaves that were kept where no codebook lists the codes, in the order of the tree, from what is sealed alone.

    Returns:
        The leaves, whose areas are numbered among themselves; and the codebooks of these areas, by axis.
    Raises:
        StoreError: the shard is missing or not what was sealed.
    """
    table = read_shard_table(noisy_path(release.id, seal.level, seal.branch), seal.sha256)
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


def load_frontier(release: Release, shard: FrontierShard) -> Frontier:
    """Return the nodes that are left of one level of one branch."""
    columns = read_shard(frontier_path(release.id, shard), shard.sha256)
    areas = tuple(columns[f"area_{axis}"] for axis in range(len(release.terms.axes)))
    return Frontier(shard.level, areas, columns["count"])


def load_parents(
    record: Record, level: int, branch: str, shards: Mapping[Place, FrontierShard] | None = None
) -> Frontier:
    """Return the nodes whose children are the cells of one level (> 0) of one branch.

    Args:
        record: of the release.
        level: of the cells.
        branch: of the cells.
        shards: the counts from which the nodes are taken; those of the first pass if left out.
    """
    release, shards = record.release, record.frontiers if shards is None else shards
    if branch != TRUNK and record.branches[branch].cut_level == level - 1:
        cut = record.branches[branch]
        above = shards[level - 1, cut.parent]
        return load_frontier(release, above)[rows_of(release, above, cut)].copy()
    return load_frontier(release, shards[level - 1, branch])


def rows_of(release: Release, shard: FrontierShard, branch: Branch) -> slice:
    """Return the rows of a parent's last frontier that a branch has; after a second pass there are fewer."""
    if not shard.is_settled:
        return slice(branch.first_node, branch.end_node)
    row = read_shard(frontier_path(release.id, shard), shard.sha256)["row"]
    return slice(*np.searchsorted(row, [branch.first_node, branch.end_node]).tolist())


def load_level(release: Release, level: int, shards: Mapping[Place, FrontierShard]) -> Iterator[Frontier]:
    """Yield all released nodes of a level in the order of the tree, a row group of a branch at a time."""
    for (of, _), shard in shards.items():
        if of == level:
            for columns in read_row_groups(frontier_path(release.id, shard), shard.sha256):
                areas = tuple(columns[f"area_{axis}"] for axis in range(len(release.terms.axes)))
                yield Frontier(level, areas, columns["count"])


def cut_branch(release: Release, shard: FrontierShard, most_cells: int) -> list[Branch]:
    """Return the branches into which a branch is cut at a frontier, by public counts alone; none if it goes on whole.

    Args:
        release: the release.
        shard: the frontier.
        most_cells: that a branch may have on one level.
    """
    tree = tree_of(release)
    is_trunk = shard.branch == TRUNK
    count = branch_count(tree.depth - shard.level, shard.nonzero, shard.cells_below, shard.level) if is_trunk else 1
    if count == 1 and shard.cells_below <= most_cells:
        return []
    frontier = load_frontier(release, shard)
    parts = slices_of(tree, frontier, count, most_cells)
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
