"""The cumulative counts of a series that measures its days together: all days until now as one table, settled once."""

import math
from dataclasses import replace

from storage.counts.shard_files import shards_in_memory
from storage.releases.shards import TRUNK, Shard, by_kind, shard_name
from tasks.laws.days import Days
from tasks.laws.named import noise_of
from tasks.optimize.task import add_up
from tasks.tree.job import Job
from tasks.tree.views import every_level
from tasks.unbiased.deviations import released_counts
from tasks.unbiased.task import settle_unbiased
from tasks.uncertainty.bounds import CONFIDENCE


def cumulative_job(job: Job) -> Job:
    """Return the work on the cumulative counts of a day, settled: its noisy counts are the sums of those of all days until now.

    The shares of the levels in least squares are those of one day, since the noise of all levels grows alike. Everything is in memory.

    Guarantees:
        Post-processing: reads no true count. Deterministic.
    """
    record, store, days = job.record, shards_in_memory(), Days(job.record.release.terms.days)
    seals = list[Shard]()
    for seal in record.shards["noisy"].values():
        name = shard_name("noisy", seal.level, TRUNK)
        sums = ({"noisy": of_part} for of_part in job.noisy_since(seal.level))
        seals.append(replace(seal, sha256=store.write(name, ("noisy",), sums), turn=0))
    levels = [
        replace(part, sigma=days.cumulative_deviation(part.scale, record.runs)) if part.is_charged else part
        for part in record.release.levels
    ]
    parts = [
        (view, noise_of(of) if of.is_charged else None) for view, of in zip(every_level(job.tree), levels, strict=True)
    ]
    counts = released_counts(job.tree, parts, CONFIDENCE, None)
    levels = [
        replace(
            of,
            sigma=of.sigma if of.is_charged else math.sqrt(counts.most_variance(view)),
            bound=counts.bound(view, CONFIDENCE),
        )
        for (view, _), of in zip(parts, levels, strict=True)
    ]
    terms = replace(record.release.terms, records=False, formats=())
    release = replace(record.release, levels=tuple(levels), terms=terms)
    made = replace(
        job,
        record=replace(record, release=release, charges={}, branches={}, shards=by_kind(seals), earlier=()),
        shard_store=store,
    )
    settled = settle_unbiased(made)
    if not isinstance(settled, Shard):
        raise TypeError("only the levels of a tree are settled over days.")
    for level in reversed(range(-1, record.finest)):
        made = replace(made, record=made.record.with_shards([settled]))
        settled = add_up(made, level, TRUNK) if level >= 0 else settled
    return made
