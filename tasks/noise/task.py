"""The noise stage: the only reader of the vault, and the only writer of noisy counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from storage.counts.shards import noisy_path, write_shard
from storage.counts.vault import read_true_codebooks, read_true_leaves, read_true_nodes, read_true_slice, vault
from storage.database.connections import Connection, store
from storage.errors import StoreError
from storage.ledger.books import as_charged
from storage.machine.locks import check_going_on, while_going_on
from storage.record import Record, load_record
from storage.releases.register import Release
from storage.releases.seals import TRUNK, Seal
from storage.releases.terms import LevelTerms, PrivacyTerms
from tasks.accounting.sensitivity import Sensitivity, sensitivity_of
from tasks.capacity import memory_of
from tasks.laws.law import LevelCost, Sampler, ThresholdedSampler
from tasks.laws.named import noise_of
from tasks.laws.thresholded import Thresholded
from tasks.noise.measure import measure, measure_thresholded
from tasks.stage import stage
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks
from tasks.tree.leaves import nodes_above_leaves
from tasks.tree.order import Tree
from tasks.tree.task import load_parents, tree_of
from tasks.tree.true_tree import TrueFamilies, true_counts_of

_MAP_LEAVES = 2**17  # at a time where OpenDP takes them as a map: 350 bytes and some 10 µs each


@stage("measure level {level} {branch}")
def measure_branch(release_id: str, level: int, branch: str, sampler: Sampler) -> Seal:
    """Draw the noisy counts of one level of one branch and write them as a shard, which the flow then seals.

    A level that is already sealed stays as it is. Level 0 is the root, one cell.
    """
    with store() as con:
        record = load_record(con, release_id)
    if (level, branch) in record.seals:
        return record.seals[level, branch]
    release = record.release
    tree, terms = tree_of(release), release.levels[level]
    _check_charged(record, level)
    with vault(release_id, memory=memory_of(release.terms.run) // 4) as con:
        if level == 0:
            true_chunks = iter([read_true_slice(con, 0, 0, 0, 1)[1]])
            cells = 1
        else:
            parents = load_parents(record, level, branch)
            true_chunks = _true_counts(con, tree, parents)
            cells = int(cell_counts(tree, parents).sum())
        row_groups = (
            {"noisy": _released(true_counts, terms, release.terms.privacy, sampler)}
            for true_counts in while_going_on(release_id, true_chunks)
        )
        sha256 = write_shard(noisy_path(release_id, level, branch), ("noisy",), row_groups)
    return Seal(level, branch, sha256, cells)


@stage("measure all leaves")
def measure_universe(release_id: str, sampler: Sampler) -> Seal:
    """Draw the noisy count of every leaf of the universe, whatever its true count, and write them in the order of the tree.

    Leaves that are already sealed stay as they are. Only a part of the universe is in memory at a time.
    """
    release, level, sealed = _leaves(release_id)
    if sealed:
        return sealed
    tree, terms = tree_of(release), release.levels[level]
    with vault(release_id, memory=memory_of(release.terms.run) // 4) as con:
        parts = (_true_counts(con, tree, parents) for parents in nodes_above_leaves(tree, CHUNK_CELLS))
        row_groups = (
            {"noisy": _released(true_counts, terms, release.terms.privacy, sampler)}
            for part in parts
            for true_counts in while_going_on(release_id, part)
        )
        sha256 = write_shard(noisy_path(release_id, level, TRUNK), ("noisy",), row_groups)
    return Seal(level, TRUNK, sha256, tree.possible_cells(level))


@stage("measure leaves with records")
def measure_histogram(release_id: str, sampler: ThresholdedSampler) -> Seal:
    """Draw the noisy counts of the leaves with records, and write those that reach the threshold, with their areas.

    The number of leaves with records is confidential, and so are the places where chunks of them begin. So only the kept
    leaves decide how the shard is cut. For an axis without a codebook, the shard holds the codes of the kept leaves and not
    their area numbers, which would reveal something about the other leaves.
    """
    release, level, sealed = _leaves(release_id)
    if sealed:
        return sealed
    terms, axes = release.levels[level], len(release.terms.axes)
    sensitivity = _sensitivity(terms, release.terms.privacy)
    noise = Thresholded(terms.scale, terms.threshold, terms.epsilon, terms.delta)
    kept: list[tuple[IntArray, ...]] = []
    with vault(release_id, memory=memory_of(release.terms.run) // 4) as con:
        codes = read_true_codebooks(con)
        for areas, true_counts in read_true_leaves(con, level, axes, min(CHUNK_CELLS, _MAP_LEAVES)):
            check_going_on(release_id)
            rows, noisy = measure_thresholded(true_counts, noise, sensitivity, sampler)
            kept.append((*(area[rows] for area in areas), noisy))
    nothing = tuple(np.zeros(0, dtype=np.int64) for _ in range(axes + 1))
    *areas, noisy = (np.concatenate(parts) for parts in zip(nothing, *kept, strict=True))
    columns = _leaf_columns(areas, codes) | {"noisy": noisy}
    row_groups = (
        {name: column[first : first + CHUNK_CELLS] for name, column in columns.items()}
        for first in range(0, len(noisy), CHUNK_CELLS)
    )
    texts = [name for name in columns if name.startswith("code_")]
    sha256 = write_shard(noisy_path(release_id, level, TRUNK), tuple(columns), row_groups, texts=texts)
    return Seal(level, TRUNK, sha256, len(noisy))


def _leaf_columns(areas: Sequence[IntArray], codes: Mapping[int, pl.DataFrame]) -> dict[str, Any]:
    """Return the columns that identify some leaves: per axis their areas, or, without a codebook, their codes.

    Args:
        areas: per axis, int64, shape (leaves,).
        codes: of all areas that have records, by the axes that no codebook lists. Confidential, but for those leaves'.
    Returns:
        Arrays of int64, and of text that hold no code but those of these leaves, no dictionary of all of them either.
    """
    columns: dict[str, Any] = {}
    for axis, of_axis in enumerate(areas):
        if axis in codes:
            for own, of_level in enumerate(codes[axis], 1):
                columns[f"code_{axis}_{own}"] = of_level.gather(of_axis).to_arrow().cast(pa.large_string())
        else:
            columns[f"area_{axis}"] = of_axis
    return columns


def _leaves(release_id: str) -> tuple[Release, int, Seal | None]:
    """Return a release, the level of its leaves, and their seal; where there is none, they are as the ledger has charged them."""
    with store() as con:
        record = load_record(con, release_id)
    sealed = record.seals.get((record.finest, TRUNK))
    if sealed is None:
        _check_charged(record, record.finest)
    return record.release, record.finest, sealed


def _check_charged(record: Record, level: int) -> None:
    if not as_charged(record.release.levels[level], record.charges.get(level)):
        raise StoreError(
            f"Level {level} of {record.release.id} differs from its charge in the ledger, so Trellis draws nothing for it."
        )


def _released(true_counts: IntArray, terms: LevelTerms, privacy: PrivacyTerms, sampler: Sampler) -> IntArray:
    """Return the counts that may cross the trust line: noisy counts, or the exact counts of an invariant, unprotected."""
    if terms.is_invariant:
        return true_counts
    charged = LevelCost(terms.rho, terms.epsilon, terms.delta)
    return measure(true_counts, noise_of(terms), charged, _sensitivity(terms, privacy), sampler)


def _sensitivity(terms: LevelTerms, privacy: PrivacyTerms) -> Sensitivity:
    """Return how far one unit moves a level: in the Euclidean norm as it is charged, where it is charged ρ."""
    moved = sensitivity_of(privacy.neighbours, privacy.max_records_per_unit, is_root=terms.level == 0)
    return replace(moved, l2_squared=terms.l2_sensitivity_squared) if terms.rho else moved


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
