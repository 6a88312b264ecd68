"""The stage that settles everything that was measured together: one table of leaves, whose sums are all levels and views."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.counts.shards import counts_name, estimates_name
from storage.releases.seals import TRUNK, EstimateShard, FrontierShard
from tasks.laws.named import noise_of
from tasks.settle.controlled import round_controlled
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.stage import stage
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS
from tasks.tree.job import Job, stored_job
from tasks.tree.views import Partition

Labels = Mapping[int, NDArray[np.int32]]  # by the number of a level or view, the cell that holds each leaf


@dataclass(frozen=True, slots=True)
class Together:
    r"""A finish: the leaves are settled together with everything else that was measured; levels and views are their sums.

    .. math:: \min_{y \ge 0} w_1 \|y - x_1\|^2 + \sum_i w_i \|A_i y - x_i\|^2, \qquad w_i = \frac{1}{\sqrt{n_i} \sigma_i^2}

    with the noisy counts :math:`x_i` of the :math:`n_i` cells of level or view i; exact counts are met. Then y is rounded to
    whole counts.

    Source:
        Fioretto, Lee and Van Hentenryck (2018), with the weights :math:`1 / n_i`. With :math:`1 / \sigma_i^2`, the bias of
        leaves that end at zero shows in the sums. The weights here lie between the two: docs/mechanisms.md.
    """


@stage("settle together")
def settle_release(release_id: str) -> list[FrontierShard | EstimateShard]:
    """Settle all sealed noisy counts of a release together. Repeated calls give the same result."""
    return settle_together(stored_job(release_id))


def settle_together(job: Job) -> list[FrontierShard | EstimateShard]:
    """Settle all sealed noisy counts together, and return the counts of all levels and views, and what they were before rounding.

    It reads only sealed counts. It measures nothing and charges nothing.
    """
    finest, release = job.record.finest, job.record.release
    leaves = job.partition(finest).cells()
    partitions = {terms.level: job.partition(terms.level) for terms in release.parts if terms.level != finest}
    labels = {number: partition.places(leaves).astype(np.int32) for number, partition in partitions.items()}
    measured = sorted({level for level, _ in job.record.seals} - {finest})
    groupings = [Grouping(labels[number], _noisy(job, number), _weight(job, number)) for number in measured]
    job.check_going_on()
    values = settle_overlapping(_noisy(job, finest), _weight(job, finest), groupings)
    job.check_going_on()
    counts = round_controlled(values, [labels[number] for number in measured]).counts
    made: list[FrontierShard | EstimateShard] = []
    for number, partition in partitions.items():
        sums = np.zeros(len(partition), dtype=np.int64)
        np.add.at(sums, labels[number], counts)
        made.append(_write_counts(job, partition, number, sums))
        if number in measured:
            before = np.bincount(labels[number], values, len(partition)).astype(np.float64)
            made.append(_write_values(job, number, before))
    return [*made, _write_counts(job, job.partition(finest), finest, counts)]


def _noisy(job: Job, number: int) -> NDArray[np.float64]:
    return job.all_noisy(number).astype(np.float64)


def _weight(job: Job, number: int) -> float:
    """Return w of a level or view; infinite where its counts are exact."""
    noise, seal = noise_of(job.record.release.parts[number]), job.record.seals[number, TRUNK]
    return 1 / (noise.variance * math.sqrt(seal.cells)) if noise else np.inf


def _write_counts(job: Job, partition: Partition, number: int, counts: IntArray) -> FrontierShard:
    """Write the counts of a level, those other than 0 with their areas, or of all cells of a view, in the order of their areas."""
    is_level = number <= job.record.finest
    rows = np.flatnonzero(counts) if is_level and number else np.arange(len(counts))
    axes = [f"area_{axis}" for axis in range(len(job.tree.axes))] if is_level else []

    def groups() -> Iterator[dict[str, IntArray]]:
        for first in range(0, max(len(rows), 1), CHUNK_CELLS):
            part = rows[first : first + CHUNK_CELLS]
            areas = partition.cells(part).areas if axes else ()
            yield dict(zip(axes, areas, strict=True)) | {"count": counts[part]}

    sha256 = job.shelf.write(counts_name(number, TRUNK), (*axes, "count"), groups())
    nonzero = len(rows) if is_level else int(np.count_nonzero(counts))
    return FrontierShard(number, TRUNK, sha256, nonzero, 0)


def _write_values(job: Job, number: int, values: NDArray[np.float64]) -> EstimateShard:
    """Write what the cells of a level or view add up to before rounding."""
    columns = {"value": values}
    return EstimateShard(
        number, TRUNK, job.shelf.write(estimates_name(number, TRUNK), tuple(columns), [columns], pa.float64())
    )
