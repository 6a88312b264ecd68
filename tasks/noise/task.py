"""The noise stage: the only reader of the vault, and the only writer of noisy counts."""

from collections.abc import Iterator

from storage.books import as_charged
from storage.database import Connection, store
from storage.errors import StoreError
from storage.ledger import charges_of
from storage.releases import LevelTerms, find_release
from storage.running import check_going_on
from storage.seals import Seal, list_branches, list_frontiers, list_seals
from storage.shards import noisy_path, write_shard
from storage.vault import read_true_nodes, read_true_slice, vault
from tasks.machine import memory_of
from tasks.noise.measure import measure
from tasks.noise.samplers import Sampler
from tasks.stage import stage
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks
from tasks.tree.order import Tree
from tasks.tree.task import load_parents, tree_of
from tasks.tree.true_tree import TrueFamilies, true_counts_of


@stage("measure level {level} {branch}")
def measure_branch(release_id: str, level: int, branch: str, sampler: Sampler) -> Seal:
    """Draw the noisy counts of one level of one branch and write them as a shard, which the flow then seals.

    A level that is sealed already is left as it is. Level 0 is the root, one cell.
    """
    with store() as con:
        sealed = list_seals(con, release_id).get((level, branch))
        if sealed:
            return sealed
        release = find_release(con, release_id)
        frontiers, branches = list_frontiers(con, release_id), list_branches(con, release_id)
        charge = charges_of(con, release_id).get(level)
    tree, terms = tree_of(release), release.levels[level]
    if not as_charged(terms, charge):
        raise StoreError(f"Level {level} of {release_id} is not as the ledger has charged it: nothing of it is drawn.")
    with vault(release_id, memory=memory_of(release.terms) // 4) as con:
        if level == 0:
            true_chunks = iter([read_true_slice(con, 0, 0, 0, 1)[1]])
            cells = 1
        else:
            parents = load_parents(release, level, branch, frontiers, branches)
            true_chunks = _true_counts(con, tree, parents)
            cells = int(cell_counts(tree, parents).sum())
        row_groups = (
            {"noisy": _released(true_counts, terms, sampler)}
            for true_counts in _while_going_on(release_id, true_chunks)
        )
        sha256 = write_shard(noisy_path(release_id, level, branch), ("noisy",), row_groups)
    return Seal(level, branch, sha256, cells)


def _while_going_on(release_id: str, true_chunks: Iterator[IntArray]) -> Iterator[IntArray]:
    """Yield chunks until the release is asked to stop. What was drawn by then is in no shard, and is drawn again."""
    for true_counts in true_chunks:
        check_going_on(release_id)
        yield true_counts


def _released(true_counts: IntArray, terms: LevelTerms, sampler: Sampler) -> IntArray:
    """Return what may cross the trust line: noisy counts, or the exact ones of an invariant, which is unprotected."""
    if terms.is_invariant:
        return true_counts
    return measure(true_counts, terms.sigma, terms.rho, terms.l2_sensitivity_squared, sampler)


def _true_counts(con: Connection, tree: Tree, parents: Frontier) -> Iterator[IntArray]:
    """Yield the true counts of all cells below some nodes, in chunks. Confidential."""
    for nodes in chunks(cell_counts(tree, parents), CHUNK_CELLS):
        chunk = parents[nodes]
        lowest = [int(areas.min()) for areas in chunk.areas]
        highest = [int(areas.max()) for areas in chunk.areas]
        *areas, first_child, children = read_true_nodes(con, chunk.level, lowest, highest).values()
        first, end = (int(first_child.min()), int((first_child + children).max())) if len(children) else (0, 0)
        of_children = read_true_slice(con, chunk.level + 1, tree.steps[chunk.level], first, end)
        yield true_counts_of(tree, chunk, TrueFamilies(tuple(areas), first_child - first, children, *of_children))
