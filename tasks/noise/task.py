"""The noise stage: the only reader of the vault, and the only writer of noisy counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from storage.counts.vault import read_true_codebooks, read_true_leaves, read_true_nodes, read_true_rows, vault
from storage.database.connections import Connection
from storage.releases.shards import TRUNK, Shard, shard_name
from tasks.accounting.conversions import float_below
from tasks.accounting.sensitivity import (
    SUBSTITUTION,
    Sensitivity,
    combined_sensitivity,
    joint_part_of,
    over_days,
    sensitivity_of,
)
from tasks.laws.days import Days
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelCost, LevelNoise, Sampler, ThresholdedSampler
from tasks.laws.named import noise_of
from tasks.laws.thresholded import Thresholded
from tasks.noise.measure import Truth, measure, measure_thresholded, true_counts_below
from tasks.sizes.places import places_of
from tasks.sizes.statistics import STATISTICS, TAILS
from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, cell_counts, expand, nodes_above, taking
from tasks.tree.job import Job
from tasks.tree.true_tree import TrueFamilies
from tasks.tree.views import Measured, leaves_of
from tasks.unbiased.dense import Combined, strategies_of
from tasks.unbiased.precisions import charges_paths, path_part
from tasks.unbiased.variance import at_nodes, portions_in
from tasks.work.capacity import memory_of
from tasks.work.order import Order

_MAP_LEAVES = 2**17  # at a time where OpenDP takes them as a map: 350 bytes and some 10 µs each


@contextmanager
def opened_vault(order: Order) -> Iterator[Truth]:
    """Open the vault of the release that an order is about, and those of the earlier days that are measured with it."""
    days = [order.release_id, *(day.release_id for day in order.record.combined)]
    memory = memory_of(order.record.release.terms.run) // (3 + len(days))
    with ExitStack() as stack:
        own, *before = [_Vault(stack.enter_context(vault(day, memory=memory))) for day in days]
        yield replace(own, before=tuple(before))


def draw(job: Job, truth: Truth, level: int, branch: str, cells: Measured, sampler: Any, turn: int = 0) -> Shard:
    """Draw the noisy counts of one level of one branch, and write them as a shard in the order of the tree.

    Args:
        level: the level; 0 is the root, one cell.
        sampler: the noise, a `ThresholdedSampler` where only cells with records are measured.
        turn: how often this level of this branch was begun before.
    Guarantees:
        The caller has seen that the ledger has charged the level as it is drawn, and has recorded the turn.
    """
    if cells == "records":
        return _draw_leaves_with_records(job, truth, level, branch, sampler, turn)
    release, name = job.record.release, shard_name("noisy", level, branch, turn)
    if release.terms.days:
        return _draw_over_days(job, truth, level, sampler, turn)
    terms, privacy = release.parts[level], release.terms.privacy
    if cells == "views" or level > job.record.finest:
        number, true_chunks = _cells_of_view(job, truth, level)
    elif cells == "universe":
        number, true_chunks = _cells_of_universe(job, truth, level)
    else:
        number, true_chunks = _survivors(job, truth, level, branch)

    combined = _combined(job, level)
    if combined is not None:
        true_chunks = iter([np.concatenate(list(true_chunks))])  # each number is of all leaves of an axis
    moved = _sensitivity(job, level, combined)
    if release.terms.counts_groups:
        true_chunks = _of_statistic(job, level, true_chunks)
    # alone, so that all levels together cost no unit more than they are charged
    joint_part = joint_part_of(release.parts, privacy.neighbours) * _path_part(job)
    charged = LevelCost(terms.rho / joint_part, float_below(Fraction(terms.epsilon) / joint_part), terms.delta)

    def row_groups() -> Iterator[dict[str, IntArray]]:
        noise, portions = noise_of(terms), _portions(job, level)
        for true_counts in true_chunks:
            job.check_going_on()
            if terms.is_invariant:  # they cross the trust line as they are, unprotected
                yield {"noisy": true_counts}
            else:
                own = portions(len(true_counts)) if portions else None
                yield {"noisy": measure(true_counts, noise, charged, moved, sampler, combined, portions=own)}

    return Shard("noisy", level, branch, job.shard_store.write(name, ("noisy",), row_groups()), number, turn=turn)


def _draw_over_days(job: Job, truth: Truth, level: int, sampler: Sampler, turn: int) -> Shard:
    """Draw the noisy sums of a level over this day and those before it, and write what they make of the day's counts.

    What is written, beside these noisy counts, are their sums since the first day. Both follow from what was drawn, and from the
    noisy counts of the days before: no true count of any day enters after the draw.
    """
    record, days = job.record, Days(job.record.release.terms.days)
    terms, noise = record.release.parts[level], LevelNoise(GAUSSIAN, record.release.parts[level].scale)
    of_days = [_cells_of_universe(job, one, level) for one in (truth, *truth.before)]
    if len(of_days) != 1 + len(record.combined):
        raise ValueError("the true counts of every day that is measured with this one must be there, and of no other.")
    moved = _sensitivity(job, level)
    if moved.l2_squared > terms.l2_sensitivity_squared:
        raise ValueError("the weights of days move a unit further than is charged.")
    before = [taking(job.noisy_of(day, level)) for day in record.combined]
    sums = taking(job.noisy_of(record.earlier[0], level, "sum")) if record.earlier else None

    def row_groups() -> Iterator[dict[str, IntArray]]:
        portions = _portions(job, level)
        for true_counts in zip(*(chunks for _, chunks in of_days), strict=True):
            job.check_going_on()
            own, cost = portions(len(true_counts[0])) if portions else None, LevelCost(terms.rho)
            measured = measure(np.stack(true_counts), noise, cost, moved, sampler, days=days, portions=own)
            noisy = days.released(measured, [take(len(measured)) for take in before])
            yield {"noisy": noisy, "sum": noisy + sums(len(noisy)) if sums else noisy}

    name = shard_name("noisy", level, TRUNK, turn)
    sha256 = job.shard_store.write(name, ("noisy", "sum"), row_groups())
    return Shard("noisy", level, TRUNK, sha256, of_days[0][0], turn=turn)


def _portions(job: Job, number: int) -> Callable[[int], FloatArray] | None:
    """Return what takes how precisely the next cells of a level or view are measured, in their order, as `measure` has it; None where all are alike."""
    tree, terms = job.tree, job.record.release.terms
    if not terms.cascades or (number > tree.depth and not terms.is_grid):
        return None
    at = job.view(number).axis_levels
    own = portions_in(tree, at, None if terms.is_grid else number)
    if own.size == 1:
        return None
    if terms.is_grid or terms.crosses:
        sizes = [axis.areas(level) for axis, level in zip(tree.axes, at, strict=True)]
        return taking(iter([np.broadcast_to(own, sizes).ravel()]))
    return taking(at_nodes(own, expand(tree, above).areas) for above in nodes_above(tree, number, CHUNK_CELLS))


def _path_part(job: Job) -> Fraction:
    """Return `path_part` of a release, from what its levels and views are charged; 1 where it is not known node by node."""
    terms, tree = job.record.release.terms, job.tree
    if not charges_paths(terms.cascades, is_grid=terms.is_grid, days=terms.days, distinct=terms.privacy.distinct):
        return Fraction(1)
    return path_part(
        tree, [of.rho for of in job.record.release.parts], is_replaced=terms.privacy.neighbours == SUBSTITUTION
    )


def _survivors(job: Job, truth: Truth, level: int, branch: str) -> tuple[int, Iterator[IntArray]]:
    """Return how many children the nodes have that are left of the level above, and their true counts. Confidential."""
    if level == 0:
        return 1, iter([truth.root()])
    parents = job.parents(level, branch)
    return int(cell_counts(job.tree, parents).sum()), true_counts_below(truth, job.tree, parents)


def _cells_of_view(job: Job, truth: Truth, number: int) -> tuple[int, Iterator[IntArray]]:
    """Return how many cells a level or view has, and the true counts of all, in the order of their areas. Confidential."""
    partition, finest = job.partition(number), job.record.finest
    true_counts = np.zeros(len(partition), dtype=np.int64)
    for areas, of_leaves in truth.leaves(finest, len(job.tree.axes), CHUNK_CELLS):
        np.add.at(true_counts, partition.places(leaves_of(job.tree, areas)), of_leaves)
    chunks_of = range(0, len(true_counts), CHUNK_CELLS)
    return len(true_counts), (true_counts[first : first + CHUNK_CELLS] for first in chunks_of)


def _cells_of_universe(job: Job, truth: Truth, level: int) -> tuple[int, Iterator[IntArray]]:
    """Return how many cells a level can have, and the true counts of all; only a part of them is in memory at a time. Confidential."""
    if level == 0:
        return 1, iter([truth.root()])
    tree = job.tree
    parts = (true_counts_below(truth, tree, parents) for parents in nodes_above(tree, level, CHUNK_CELLS))
    return tree.possible_cells(level), (true_counts for part in parts for true_counts in part)


def _draw_leaves_with_records(
    job: Job, truth: Truth, level: int, branch: str, sampler: ThresholdedSampler, turn: int
) -> Shard:
    """Draw the noisy counts of the leaves with records, and write those that reach the threshold, with their areas.

    The number of leaves with records is confidential, and so are the places where chunks of them begin. So only the kept
    leaves decide how the shard is cut. For an axis without a codebook, the shard holds the codes of the kept leaves and not
    their area numbers, which would reveal something about the other leaves.
    """
    release = job.record.release
    terms, axes = release.levels[level], len(release.terms.axes)
    sensitivity = _sensitivity(job, level)
    noise = Thresholded(terms.scale, terms.threshold, terms.epsilon, terms.delta)
    kept: list[tuple[IntArray, ...]] = []
    codes = truth.codes()
    for areas, true_counts in truth.leaves(level, axes, min(CHUNK_CELLS, _MAP_LEAVES)):
        job.check_going_on()
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
    sha256 = job.shard_store.write(shard_name("noisy", level, branch, turn), tuple(columns), row_groups, texts=texts)
    return Shard("noisy", level, branch, sha256, len(noisy), turn=turn)


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
            for own, column in enumerate(codes[axis], 1):
                columns[f"code_{axis}_{own}"] = column.gather(of_axis).to_arrow().cast(pa.large_string())
        else:
            columns[f"area_{axis}"] = of_axis
    return columns


def _of_statistic(job: Job, level: int, tails: Iterator[IntArray]) -> Iterator[IntArray]:
    """Yield what is measured of group sizes, of all cells in the order of the tree. Confidential.

    The vault holds tails: the groups of at least each size. Where a public list has the groups without a record, size 0 comes first,
    and its tail, all groups of the list, stays as it is.
    """
    statistic, tree = STATISTICS[job.record.release.terms.measured_of_groups], job.tree
    if statistic is TAILS:
        yield from tails
        return
    by_size = np.concatenate(list(tails)).reshape(-1, places_of(tree, level))
    first = 0 if job.load_groups() is None else 1
    sizes = by_size[first:] - np.pad(by_size[first + 1 :], ((0, 1), (0, 0)))
    measured = np.concatenate((by_size[:first], statistic.of(sizes.T).T)).ravel()
    for start in range(0, len(measured), CHUNK_CELLS):
        yield measured[start : start + CHUNK_CELLS]


def _combined(job: Job, level: int) -> Combined | None:
    """Return what strategies measure of a level or view that has the finest areas of their axes; None of others, and where there are none."""
    strategies, axes = strategies_of(job.record.release.terms.strategy), job.tree.axes
    if not strategies:
        return None
    at = job.view(level).axis_levels
    if any(at[axis] != axes[axis].depth for axis in strategies):
        return None
    return Combined(tuple(axis.areas(own) for axis, own in zip(axes, at, strict=True)), strategies)


def _sensitivity(job: Job, level: int, combined: Combined | None = None) -> Sensitivity:
    """Return how far one unit moves what is measured of a level: in the Euclidean norm as it is charged, where it is charged ρ."""
    release, terms = job.record.release, job.record.release.parts[level]
    neighbours, records = release.terms.privacy.neighbours, release.terms.privacy.max_records_per_unit
    if combined is not None:  # of the very rows that are measured, whatever is charged
        is_public = release.terms.privacy.exact_records_per_unit
        rows = [of.rows for of in combined.strategies.values()]
        return combined_sensitivity(rows, neighbours, records, total_is_public=is_public, nodes=combined.nodes)
    if release.terms.counts_groups:
        of = STATISTICS[release.terms.measured_of_groups].sensitivity
        moved = of(neighbours, records, places_of(job.tree, level))
    else:
        moved = sensitivity_of(neighbours, records, is_root=not any(terms.axes.values()))
    if release.terms.days:  # of the very weights that are measured, whatever is charged
        return over_days(moved, release.terms.days, neighbours)
    return replace(moved, l2_squared=terms.l2_sensitivity_squared) if terms.rho else moved


@dataclass(frozen=True, slots=True, eq=False)
class _Vault:
    """The truth of a release, in its open vault."""

    con: Connection
    before: "tuple[_Vault, ...]" = ()

    def root(self) -> IntArray:
        return read_true_rows(self.con, 0, (), 0, 1, ["true_count"])["true_count"]

    def families(self, level: int, refined: int, lowest: Sequence[int], highest: Sequence[int]) -> TrueFamilies:
        *areas, first_child, children = read_true_nodes(self.con, level, lowest, highest).values()
        first, end = (int(first_child.min()), int((first_child + children).max())) if len(children) else (0, 0)
        of_children = read_true_rows(self.con, level + 1, [refined], first, end, ["true_count"]).values()
        return TrueFamilies(tuple(areas), first_child - first, children, *of_children)

    def leaves(self, level: int, axes: int, most: int) -> Iterator[tuple[Sequence[IntArray], IntArray]]:
        return read_true_leaves(self.con, level, axes, most)

    def codes(self) -> Mapping[int, pl.DataFrame]:
        return read_true_codebooks(self.con)
