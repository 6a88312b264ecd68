"""The tree stage: writes the true levels to the vault."""

from collections.abc import Sequence
from contextlib import closing

from storage.counts.shard_files import read_codebook
from storage.counts.vault import read_records, read_true_codebooks, true_levels, vault, vault_path, write_true_level
from storage.machine.home import shard_folder
from tasks.tree.axis import axis_from_codebook
from tasks.tree.job import load_tree
from tasks.tree.order import Tree
from tasks.tree.true_tree import TrueLevel, grow
from tasks.work.capacity import side_by_side
from tasks.work.stage import stage


@stage("grow tree")
def grow_tree(release_id: str, axes: Sequence[str], steps: Sequence[int], memory: int) -> None:
    """Write the true levels of a release to its vault.

    Args:
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

        def write(numbered: tuple[int, TrueLevel]) -> None:
            level, nodes = numbered
            columns = {"true_count": nodes.true_counts, "first_child": nodes.first_child, "children": nodes.children}
            with closing(con.cursor()) as own:
                write_true_level(own, level, nodes.areas, columns)

        for _ in side_by_side(write, enumerate(grow(tree, leaf_areas, true_counts)), 1):
            pass  # while a level is written, the next one grows
        con.execute("DROP TABLE records")


def is_grown(release_id: str, depth: int) -> bool:
    """Return whether the vault of a release holds all its true levels, and nothing else."""
    return vault_path(release_id).exists() and true_levels(release_id) == depth + 1
