"""The tree stage, and what every later stage loads: a release's tree, and the frontiers on which it goes on."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from storage.claims import shard_folder
from storage.releases import Release
from storage.seals import Branch, FrontierShard
from storage.shards import counts_path, read_codebook, read_row_groups, read_shard
from storage.vault import read_records, true_levels, vault, vault_path, write_true_level
from tasks.stage import stage
from tasks.tree.axis import axis_from_codebook
from tasks.tree.branches import TRUNK, branch_count, branch_name, cut
from tasks.tree.frontier import Frontier, cell_counts
from tasks.tree.order import Tree
from tasks.tree.true_tree import grow


@stage("grow tree")
def grow_tree(release_id: str, axes: Sequence[str], steps: Sequence[int]) -> None:
    """Write the true levels of a release to its vault."""
    tree = load_tree(shard_folder(release_id), tuple(axes), tuple(steps))
    with vault(release_id, read_only=False) as con:
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
    """Return whether the vault of a release holds all its true levels, and nothing besides."""
    return vault_path(release_id).exists() and true_levels(release_id) == depth + 1


@lru_cache(maxsize=4)
def load_tree(shards: Path, axes: tuple[str, ...], steps: tuple[int, ...]) -> Tree:
    """Return the tree of a release from the codebooks that were kept among its shards when it was ingested."""
    return Tree(tuple(axis_from_codebook(axis, read_codebook(shards, axis)) for axis in axes), steps)


def tree_of(release: Release) -> Tree:
    """Return the tree of a release that the store knows."""
    return load_tree(shard_folder(release.id), tuple(release.terms["axes"]), tuple(release.terms["steps"]))


def load_frontier(release: Release, shard: FrontierShard) -> Frontier:
    """Return the released nodes of one level of one branch."""
    columns = read_shard(counts_path(release.id, shard.level, shard.branch), shard.sha256)
    areas = tuple(columns[f"area_{axis}"] for axis in range(len(release.terms["axes"])))
    return Frontier(shard.level, areas, columns["count"])


def load_parents(
    release: Release,
    level: int,
    branch: str,
    frontiers: dict[tuple[int, str], FrontierShard],
    branches: dict[str, Branch],
) -> Frontier:
    """Return the nodes whose children are the cells of one level (> 0) of one branch."""
    if branch != TRUNK and branches[branch].trunk_level == level - 1:
        nodes = slice(branches[branch].first_node, branches[branch].end_node)
        return load_frontier(release, frontiers[level - 1, TRUNK])[nodes]
    return load_frontier(release, frontiers[level - 1, branch])


def load_level(release: Release, level: int, frontiers: dict[tuple[int, str], FrontierShard]) -> Iterator[Frontier]:
    """Yield all released nodes of a level in the order of the tree, a row group of a branch at a time."""
    for (of, branch), shard in frontiers.items():
        if of == level:
            for columns in read_row_groups(counts_path(release.id, level, branch), shard.sha256):
                areas = tuple(columns[f"area_{axis}"] for axis in range(len(release.terms["axes"])))
                yield Frontier(level, areas, columns["count"])


def cut_trunk(release: Release, shard: FrontierShard) -> list[Branch]:
    """Return the branches into which the trunk's last frontier is cut, by its public counts of cells alone."""
    tree = tree_of(release)
    trunk = load_frontier(release, shard)
    slices = cut(cell_counts(tree, trunk), branch_count(tree.depth - shard.level, shard.cells_below))
    return [
        Branch(
            branch_name(number),
            shard.level,
            nodes.start,
            nodes.stop,
            _ends(tree, trunk[nodes]),
        )
        for number, nodes in enumerate(slices)
    ]


def _ends(tree: Tree, nodes: Frontier) -> dict[str, list[str]]:
    """Return, per axis that is refined already, the codes of the first and the last node."""
    return {
        axis.name: axis.codes[reached - 1].gather([int(areas[0]), int(areas[-1])]).to_list()
        for axis, areas, reached in zip(tree.axes, nodes.areas, tree.axis_levels(nodes.level), strict=True)
        if reached
    }
