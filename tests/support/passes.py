"""Tables and noise for releases in memory, and the laws of what they release."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from flows.planning.plan import make_plan
from flows.planning.scheme import tree_over
from flows.run.reservation import reserved_release
from flows.specification.file import load_spec
from flows.trials.in_memory import PublicTable, public_table, try_release
from storage.ledger.accounts import Charge, reserved_charges
from storage.releases.shards import TRUNK
from tasks.ingest.task import read_in_memory
from tasks.laws.thresholded import THRESHOLDED_LAPLACE
from tasks.mechanisms import MECHANISMS
from tasks.optimize.reconcile import NodeEstimates
from tasks.tree.frontier import joined
from tasks.tree.true_tree import TrueLevel
from tests.support.scales import try_scales


def noise_of(seed, asked=None):
    """Return a sampler of rounded normal noise that notes, call by call, of how many cells it is asked for noise."""
    random = np.random.default_rng(seed)

    def sample(true_counts, sigma):
        if asked is not None:
            asked.append(len(true_counts))
        return true_counts + np.rint(random.normal(0, sigma, len(true_counts))).astype(np.int64)

    return sample


def replayed(levels):
    """Return a sampler that gives, call by call, the noisy counts of the levels that are drawn, and looks at no true count."""
    left = iter(levels)

    def sample(true_counts, sigma):
        noisy = next(left)
        assert len(noisy) == len(true_counts)
        return noisy

    return sample


def unseen_table(tree, total):
    """Return a table of which nothing is known but its total: every other true count is 0."""
    nothing, zero = np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
    root = TrueLevel(tuple(zero for _ in tree.axes), zero + total, zero, zero)
    below = TrueLevel(tuple(nothing for _ in tree.axes), nothing, nothing, nothing)
    return PublicTable(tree, (root, *(below,) * tree.depth))


def replay(tree, levels, sealed, mechanism, **choice):
    """Make a release in memory from the terms and the noisy counts of levels 0 to T alone, of which at most the total is exact."""
    assert not any(terms.is_invariant for terms in levels[1:])
    drawn = [noisy for noisy, terms in zip(sealed, levels, strict=True) if terms.is_charged]
    table = unseen_table(tree, int(sealed[0][0]))
    return try_scales(table, mechanism, [terms.sigma for terms in levels], replayed(drawn), **choice)


def try_spec(spec, sampler=None):
    """Make the release of a spec in memory, by its own noise or a sampler's, and return its plan, the table as it is read, and it."""
    plan = make_plan(load_spec(spec))
    codebooks, areas, true_counts = read_in_memory(plan.source, plan.units, plan.promised)
    tree = tree_over(codebooks, plan.file.spec) if plan.file.spec.unlisted else plan.tree
    table = public_table(tree, areas, true_counts, plan.derived)
    release = reserved_release(plan, "one", Path())
    release = replace(release, terms=replace(release.terms, unlisted=()))  # the codes are in the tree of the table
    draw = sampler or plan.scheme.law.samplers[release.terms.sampler].draw
    return plan, table, try_release(table, release, reserved_charges(release.id, release.parts), plan.mechanism, draw)


def first_pass_of(trial):
    """Return the nodes of levels 0 to T that are left on the way down, before any finish."""
    job = trial.job
    return [joined(level, job.level(level, job.record.shards["counts"])) for level in range(job.record.finest + 1)]


def estimates_of(trial):
    """Return what the finish has estimated of the nodes of levels 0 to T."""
    job = trial.job
    shards = [job.record.shards["estimates"][level, TRUNK] for level in range(job.record.finest + 1)]
    columns = [job.columns(shard) for shard in shards]
    return [NodeEstimates(of["value"], of["variance"]) for of in columns]


def try_threshold(table, noise, neighbours, most_records, sampler):
    """Make a release of the histogram in memory with a scale and a threshold for which no budget has to be found."""
    depth, mechanism = table.tree.depth, MECHANISMS["stability_histogram"]
    like = try_scales(table, MECHANISMS["gaussian"], [1.0] * (depth + 1), noise_of(1)).job.record.release
    stated = {"neighbours": neighbours, "max_records_per_unit": most_records}
    privacy = like.terms.privacy.model_copy(update=stated)
    costs = {"epsilon": noise.epsilon, "delta": noise.delta}
    law, scales = THRESHOLDED_LAPLACE.name, dict[str, Any](scale=noise.scale, threshold=noise.threshold)
    finest = replace(like.levels[-1], rho=0, l2_sensitivity_squared=0, mechanism=law, **costs, **scales)
    terms = replace(like.terms, mechanism=mechanism.name, privacy=privacy)
    release = replace(like, terms=terms, levels=(*like.levels[:-1], finest))
    charge = Charge(release.id, depth, "reserved", finest.rho, finest.sigma, 0, law, **costs, scale=noise.scale)
    return try_release(table, release, [charge], mechanism, sampler)


@st.composite
def tables(draw, universes):
    """Draw a universe, some of its leaves with counts, and them as a table."""
    universe = draw(universes)
    leaves = st.sampled_from(universe.leaves())
    records = draw(st.dictionaries(leaves, st.integers(1, 30), min_size=1, max_size=15))
    finest = np.array([universe.areas(leaf) for leaf in records]).T
    return universe, records, public_table(universe.tree, list(finest), np.array(list(records.values())))


def counts_of(frontier):
    """Return the counts of a frontier, or of rows, by the areas of its nodes."""
    nodes = zip(*(areas.tolist() for areas in frontier.areas), strict=True)
    return dict(zip(nodes, frontier.counts.tolist(), strict=True))


def family(tree, node, level):
    """Return the node above a node."""
    refined = tree.steps[level - 1]
    own = tree.axis_levels(level)[refined]
    axis = tree.axes[refined]
    return tuple(int(axis.parent[own - 1][area]) if at == refined else area for at, area in enumerate(node))


def added_up(tree, below, level):
    """Return what the counts of a level add up to in the level above, without zeros."""
    sums = Counter()
    for node, count in below.items():
        sums[family(tree, node, level)] += count
    return without_zeros(sums)


def without_zeros(counts):
    """Return the counts that are not 0."""
    return {node: count for node, count in counts.items() if count}


def check_rows(trial, *, is_nested=False):
    """Check that published rows are whole and add up, and that each lies within its intervals, which are nested, or below 0."""
    published, tree = trial.published, trial.job.tree
    levels = list[dict[tuple[int, ...], int]]()
    for level in range(tree.depth + 1):
        rows = published.rows(level)[:]
        assert rows.counts.dtype == np.int64
        for low, high in zip(rows.bounds[::2], rows.bounds[1::2], strict=True):
            assert ((low <= rows.counts.clip(0)) & (rows.counts <= high)).all()  # no true count is below 0
        if is_nested and len(rows.bounds) == 4:
            low, high, wide_low, wide_high = rows.bounds
            assert ((wide_low <= low) & (high <= wide_high)).all()
        levels.append(counts_of(rows))
    for level, (above, below) in enumerate(pairwise(levels), 1):
        assert added_up(tree, below, level) == without_zeros(above)


def check_consistent(tree, frontiers):
    """Check that counts are whole, positive but for the root's, and add up to those of the level above."""
    assert [frontier.level for frontier in frontiers] == list(range(tree.depth + 1))
    for frontier in frontiers:
        assert frontier.counts.dtype == np.int64
        assert (frontier.counts > 0).all() or (frontier.level == 0 and frontier.counts.tolist() == [0])
    for above, below in pairwise(frontiers):
        assert added_up(tree, counts_of(below), below.level) == without_zeros(counts_of(above))
