"""What a report is made of: trees, rows, terms, facts and manifests, without a release."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from storage.releases.parts import Part
from storage.releases.terms import Intervals, Privacy
from tasks.format.entries import AboveNoise, LevelEntry, NoiseRows
from tasks.format.manifest import LedgerHead, Manifest, SealEntry
from tasks.format.tables import Rows, in_order
from tasks.pages.facts import Collector
from tasks.tree.order import Tree, alternate, in_sequence
from tasks.uncertainty.noise_rows import Shares

ENDS = ("origin", "destination")


PRIVACY = Privacy(
    unit="one job", neighbours="substitution", max_records_per_unit=1, exact_records_per_unit=True, distinct=None,
    bounded_by="promise", epsilon=1.0, delta=1e-8, rho=0.02, accountant="pld", sampler="opendp", tau=0.0,
    statement="(1, 1e-08)-differentially private for one job.",
)  # fmt: skip


def tree_of_trips(axis_of, depth, areas=2, codes=""):
    """Return trips between two ends of so many levels; finest areas have one of some codes, or a number."""
    paths = [(*("up",) * (depth - 1), codes[number] if codes else f"{number:03}") for number in range(areas)]
    axes = tuple(axis_of(name, sorted(paths)) for name in ENDS)
    return Tree(axes, alternate([depth, depth], 1))


def tree_of_features(axis_of, features):
    """Return so many features of two values."""
    axes = tuple(axis_of(f"f{number:02}", [("0",), ("1",)]) for number in range(features))
    return Tree(axes, in_sequence([1] * features, [(axis, 1) for axis in range(features)]))


def rows_of(tree, leaves, level, half_width=2):
    """Return the rows of a level from the counts of its leaves, with intervals of one width if any."""
    sums = Counter({(0,) * len(tree.axes): 0}) if level == 0 else Counter()
    for leaf, count in leaves.items():
        above = zip(tree.axes, leaf, tree.axis_levels(tree.depth), tree.axis_levels(level), strict=True)
        sums[tuple(int(axis.ancestors(np.array([area]), of, own)[0]) for axis, area, of, own in above)] += count
    kept = {node: count for node, count in sums.items() if count or level == 0}
    areas = tuple(np.array([node[axis] for node in kept], dtype=np.int32) for axis in range(len(tree.axes)))
    counts = np.array(list(kept.values()), dtype=np.int64)
    bounds = () if half_width is None else (np.maximum(counts - half_width, 0), np.maximum(counts + half_width, 0))
    return in_order(Rows(areas, counts, bounds), tree.sizes(level))


def terms_of(tree, sigma=3.0, **finest):
    """Return the terms of all levels, the total exact; further ones of the finest level."""
    levels = [
        Part(
            level=level,
            axes=tree.level_names(level),
            possible_cells=tree.possible_cells(level) if tree.is_listed(level) else None,
            is_invariant=level == 0,
            rho=Fraction(level and 1, 50),
            sigma=sigma if level else 0.0,
            l2_sensitivity_squared=2,
            bound=10.0 * level,
        )
        for level in range(tree.depth + 1)
    ]
    return [*levels[:-1], replace(levels[-1], **finest)]


def facts_of(tree, leaves, terms, half_width=2):
    """Return what is collected of all levels."""
    collector = Collector(tree, terms)
    for level in terms:
        rows = rows_of(tree, leaves, level.level, half_width)
        collector.take(rows, None if terms[-1].threshold else shares_of(rows, level))
    return collector.facts()


def shares_of(rows, terms):
    """Return what would be known of a level's rows if their counts were the true ones."""
    if not len(rows):
        return None
    above = rows.counts > 2 * terms.sigma
    return Shares(0.0, 0.1, float(above.mean()), float(rows.counts[above].sum() / (rows.counts.sum() or 1)))


def manifest_of(terms, facts, **other):
    """Return a manifest of these levels, with some other values."""
    levels = [
        LevelEntry(
            level=level.level,
            axes=dict(level.axes),
            cells=0 if level.is_summed else 2 * known.rows,
            nonzero=known.rows,
            rho=float(level.rho),
            sigma=level.sigma,
            l2_sensitivity=level.stated["l2_sensitivity"],
            derivation="",
            bound=level.bound,
            bound_after=None if level.is_summed or level.threshold else 4 * level.level,
            noise_rows=None if terms[-1].threshold else NoiseRows(estimate=0.02, at_most=0.1),
            above_noise=None if terms[-1].threshold else AboveNoise(rows=0.25, records=0.75),
            bias=None if level.is_summed else -0.25,
            summed=level.is_summed,
            threshold=level.threshold,
            epsilon=level.epsilon,
            scale=level.scale,
        )
        for level, known in zip(terms, facts.levels, strict=True)
    ]
    values = dict[str, Any](id="jobs-20260101T000000Z", spec={"name": "jobs"}, privacy=PRIVACY, mechanism="inftda")
    values |= {"unprotected": ["level 0: the total"], "levels": levels, "codebooks": dict.fromkeys(terms[0].axes, "0")}
    values |= {"seals": [SealEntry(level=0, branch="trunk", sha256="0")], "versions": {"trellis": "0.1.0"}}
    values |= {"ledger": LedgerHead(head="0", length=1, first="0"), "intervals": Intervals(confidence=0.9)}
    return Manifest(**values | other)
