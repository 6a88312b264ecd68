"""Leaves that are counted by priors before they are settled with views: as in a walk, and nearer to the truth than without."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tasks.laws.named import noise_of as noise_in
from tasks.mechanisms import MECHANISMS
from tasks.settle.priors import leaves_by_priors
from tasks.settle.task import _within_areas, mended_sums
from tasks.tree.axis import axis_from_codebook
from tasks.tree.frontier import Frontier, expand, root_of
from tasks.tree.order import Tree
from tasks.tree.views import Partition, level_view, sums_of_leaves
from tasks.validate.task import _checked_view, _sums_of_leaves
from tests.support.passes import noise_of, try_spec
from tests.support.spec import SPEC, spec_in

ZONES = 40


@pytest.fixture
def survey(tmp_path):
    """Return what writes a spec of trips between zones, of which few pairs have many, by its keys."""
    random, codes = np.random.default_rng(3), [f"{zone // 8}{zone % 8}" for zone in range(ZONES)]
    size = random.pareto(1.0, ZONES) + 0.1
    ends = [random.choice(codes, 4000, p=size / size.sum()) for _ in range(2)]
    pl.DataFrame({"from": ends[0], "to": ends[1]}).write_csv(tmp_path / "trips.csv")
    pl.DataFrame({"district": [code[:1] for code in codes], "zone": codes}).write_csv(tmp_path / "zones.csv")
    codebook = {"table": "zones.csv", "levels": ["district", "zone"]}

    def write(mechanism, views=None, **keys):
        order = ["from.district", "to.district", "from", "to"]
        own = {"name": "survey", "dataset": "survey", "mechanism": mechanism}
        axes = {"hierarchy": {"from": codebook, "to": codebook}, "budget": {"epsilon": 100.0, "delta": 1e-3}}
        release = {"release": {"order": order} | ({"views": views} if views else {})}
        unit = {"privacy": SPEC["privacy"] | {"unit": "one trip", "neighbours": "add_remove", "epsilon": 1.0}}
        unit["privacy"] |= {"split": {"tree": 16}} if views else {}  # the same shares for each mechanism
        table = {"input": {"table": "trips.csv", "features": ["from", "to"]}}
        return spec_in(tmp_path, own | axes | release | unit | table | keys)

    return write


def test_all_leaves_at_once_are_those_of_a_walk_that_measures_every_cell(survey):
    """The same noisy counts give the same leaves, level by level in branches or the whole tree in memory; what zones count in all brings them nearer."""
    _, table, trial = try_spec(survey("inftda_shrunk", measure="all"), noise_of(4))
    tree, job, noisy, nodes = trial.job.tree, trial.job, {}, root_of(trial.job.tree, 0)
    for terms in job.record.release.levels:
        counts = np.zeros(tree.sizes(terms.level), dtype=np.int64)
        counts[tuple(nodes.areas)] = job.all_noisy(terms.level)
        noisy[terms.level] = counts.ravel(), noise_in(terms).variance
        if terms.level < tree.depth:
            cells = expand(tree, nodes)
            nodes = Frontier(terms.level + 1, cells.areas, np.zeros(len(cells), dtype=np.int64))
    leaves = trial.released[-1]
    found = leaves_by_priors(tree, noisy, MECHANISMS["inftda_shrunk"].finish)
    of_leaves, truth = Partition(tree, level_view(tree, tree.depth)), table.levels[-1]
    assert found.tolist() == sums_of_leaves(of_leaves, leaves).tolist()
    assert len(leaves) > 300
    true = sums_of_leaves(of_leaves, Frontier(tree.depth, truth.areas, truth.true_counts))
    totals = (np.bincount(of, truth.true_counts, ZONES).astype(np.int64) for of in truth.areas)
    margins = {axis: {2: (of, 1.0)} for axis, of in enumerate(totals)}
    nearer = leaves_by_priors(tree, noisy, MECHANISMS["inftda_shrunk"].finish, margins)
    assert abs(nearer - true).sum() < 0.9 * abs(found - true).sum()


def test_priors_with_views_bring_leaves_nearer_and_no_view_further(survey):
    """Over three releases leaves miss by three tenths less in all than where they are settled as measured, and levels and views by hardly more."""
    missed = {"inftda_shrunk": Counter(), "inftda_reconciled": Counter()}
    for mechanism, of in missed.items():
        for seed in range(3):
            _, table, trial = try_spec(survey(mechanism, views="margins"), noise_of(seed))
            leaves = Frontier(table.tree.depth, table.levels[-1].areas, table.levels[-1].true_counts)
            for number in (terms.level for terms in trial.job.record.release.parts):
                of[number] += abs(trial.job.counts(number) - sums_of_leaves(trial.job.partition(number), leaves)).sum()
    ratios = {
        number: of / max(missed["inftda_reconciled"][number], 1) for number, of in missed["inftda_shrunk"].items()
    }
    assert ratios[4] < 0.7
    assert max(ratios.values()) < 1.2


def test_records_within_one_area_are_settled_at_what_was_measured_of_them():
    """Where priors leave thirty such leaves ten too low each, their sum is mended but for the noise; where these are right, it hardly moves."""
    axis = axis_from_codebook("place", pl.DataFrame({"zone": [f"{zone:02d}" for zone in range(30)]}))
    tree = Tree(tuple(replace(axis, name=end, role=end) for end in ("origin", "destination")), (0, 1))
    job = SimpleNamespace(
        tree=tree, record=SimpleNamespace(finest=2), partition=lambda of: Partition(tree, level_view(tree, of))
    )
    same, noise = np.eye(30, dtype=bool).ravel(), np.rint(np.random.default_rng(2).normal(0, 5, 900)).astype(np.int64)
    for low in (10, 0):
        found = _within_areas(job, 2, np.arange(900), np.where(same, 40 - low, 1), np.where(same, 40, 1) + noise, 25.0)
        assert len(found) == 1 or not low
        assert all(abs(of.values[0] - 1200) < 60 and np.array_equal(of.cell == 0, same) for of in found)


def test_sums_of_settled_leaves_are_mended_where_noise_does_not_explain_their_bias():
    """Where each leaf of every other cell is five too high, sums come near what was measured; where none is, they hardly move."""
    cell, noise = np.repeat(np.arange(25), 36).astype(np.int32), np.random.default_rng(2).normal(0, 5, 900)
    for bias, most in ((5, 100), (0, 25)):
        found = mended_sums(cell, 100.0 + bias * (cell % 2), 100 + noise, 25.0, 25)
        assert abs(found.values - 3600).max() < most if found else not bias


def test_a_view_that_is_not_the_sum_of_leaves_fails_its_check(survey):
    """The sums that coarser views are held to, by way of finer ones, are those of the leaves, and a single record too many is noticed."""
    _, _, trial = try_spec(survey("inftda_shrunk", views="margins"), noise_of(1))
    views = {terms.level: trial.job.partition(terms.level) for terms in trial.job.record.release.views}
    sums = _sums_of_leaves(trial.job, views)
    for number, partition in views.items():
        assert np.array_equal(sums[number], sums_of_leaves(partition, trial.released[-1]))
        for more in (0, 1):
            wrong = sums | {number: sums[number] + more * (np.arange(len(partition)) == 0)}
            assert ("sums_of_leaves", number, not more) in _checked_view(trial.job, number, partition, wrong)
