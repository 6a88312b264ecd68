"""Intervals, marks, shares and bounds keep their promises, for cells that were fixed before any noise was drawn and for rows that became rows because of their noise; narrower ones would not."""

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product
from math import log
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

import tasks.mechanisms
from flows.planning.plan import make_plan
from flows.run.reservation import reserved_release
from flows.specification.file import load_spec
from flows.trials.in_memory import public_table, try_release
from storage.ledger.accounts import reserved_charges
from storage.releases.terms import SIGNAL_RATE
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.laws.samplers import table_noise
from tasks.mechanisms import MECHANISMS, MOST_SETTLED
from tasks.released.sources.job import JobSource
from tasks.released.together import TogetherEstimate
from tasks.tree.frontier import Frontier
from tasks.tree.views import sums_of_leaves
from tasks.uncertainty.bounds import CONFIDENCE as BOUND_CONFIDENCE
from tasks.uncertainty.bounds import bounds_of_sums
from tasks.uncertainty.intervals import margins_of
from tasks.uncertainty.noise_rows import KNOWN_WITHIN, RISK
from tasks.validate.coverage import TRUE_COUNTS, false_share, level_coverages, measured_bounds, rows_covered
from tasks.validate.utility import level_errors
from tests.support.keys import PRIVACY, features_of
from tests.support.laws import sampler_of
from tests.support.scales import try_scales
from tests.support.spec import spec_in
from tests.support.universe import universe_of

FALSE_ALARM = 1e-6
CONFIDENCE = 0.9
LAWS = {"gaussian": GAUSSIAN, "laplace": LAPLACE}
BUDGET = {"epsilon": 100.0, "delta": 1e-3}


def least_share(groups, copies, confidence):
    r"""Return what the mean over copies falls to by chance at most so rarely, if each cell is covered as often as is promised.

    .. math:: P[\bar{X} \le m] \le \exp(-n \, \mathrm{KL}(m, 1 - \alpha))

    for the mean of n independent variables from 0 to 1 (Hoeffding 1963), whatever their law: copies are independent, and have
    as many cells of a group each; the cells of one copy need not be independent.
    """
    shares = np.linspace(0.5, confidence, 100_000)[:-1]
    divergences = shares * np.log(shares / confidence) + (1 - shares) * np.log((1 - shares) / (1 - confidence))
    return float(shares[divergences >= log(groups / FALSE_ALARM) / copies].max())


def thorough(*values):
    """Return a row of a table that `make test-all` alone looks at."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def true_levels(table):
    """Return the true counts of levels 0 to T."""
    return [Frontier(level, nodes.areas, nodes.true_counts) for level, nodes in enumerate(table.levels)]


# Fixed cells of a walk.

COPIES = 1000  # of a small set, side by side below a level that is exact: as many independent runs
SCALES = [0.0, 0.0, *[5.0] * 6]
NARROWER = {"gaussian": 0.7, "laplace": 0.5}  # margins that do not cover; the tails of Laplace noise are longer


def made_up():
    """Return copies of trips between 27 areas in three levels of three, with few and many people at many levels."""
    areas = [(a, a + b, a + b + c) for a in "123" for b in "123" for c in "123"]
    tree = universe_of([[(f"{copy:04}",) for copy in range(COPIES)], areas, areas], [0, 2, 1, 2, 1, 2, 1]).tree
    random = np.random.default_rng(7)
    pairs = random.choice(27**2, 200, replace=False)
    people = np.ceil(random.pareto(1.0, 200)).astype(np.int64)
    ends = [np.tile(end, COPIES) for end in np.divmod(pairs, 27)]
    return public_table(tree, [np.repeat(np.arange(COPIES), 200), *ends], np.tile(people, COPIES))


def coverages(table, mechanism, law, fudge):
    """Return, by noisy level and true count, the share that is covered, with margins that are fudged."""
    noises = [LevelNoise(LAWS[law], scale) if scale else NO_NOISE for scale in SCALES]
    margins = margins_of(noises, CONFIDENCE)
    margins = [replace(of, own=round(of.own * fudge), cap=round(of.cap * fudge)) for of in margins]
    tried = try_scales(table, MECHANISMS[mechanism], SCALES, sampler_of(law, 8, first=SCALES.count(0.0)), law=LAWS[law])
    bounds = measured_bounds(table.tree, tried.measured, tried.released, margins, [1] * len(SCALES))
    shares = {}
    for level, covered in enumerate(level_coverages(table.tree, true_levels(table), bounds)):
        assert covered["all"].cells == table.tree.possible_cells(level)
        for group in TRUE_COUNTS:
            share = covered[group].coverage
            if SCALES[level] and share is not None:
                shares[level, group] = share
    return shares


@pytest.mark.parametrize(("mechanism", "law"), [
    ("inftda", "gaussian"),
    *(thorough("inftda_lenient", law) for law in LAWS),
    *(thorough("inftda", "laplace"), *(thorough("inftda_reconciled", law) for law in LAWS)),
    *(thorough("inftda_shrunk", law) for law in LAWS),
])  # fmt: skip
def test_each_level_and_true_count_is_covered_as_is_promised(mechanism, law):
    """By level and true count, coverage is not below nine in ten by more than chance; it would be with narrower margins."""
    table = made_up()
    kept, fudged = (coverages(table, mechanism, law, fudge) for fudge in (1.0, NARROWER[law]))
    assert {group for _, group in kept} == set(TRUE_COUNTS)
    assert len(kept) >= 15
    least = least_share(len(kept), COPIES, CONFIDENCE)
    assert 0.83 < least < CONFIDENCE
    assert {of: share for of, share in kept.items() if share < least} == {}
    assert len({of for of, share in fudged.items() if share < least}) >= 6


def test_every_cell_of_a_level_keeps_within_its_bound_as_often_as_is_said():
    """Over many releases the cells of each level, also those without a row, are within the bound in 95 of 100 or more."""
    paths = [(str(number // 3), str(number)) for number in range(6)]
    tree, sigma, runs = universe_of([paths, paths], [0, 1, 0, 1]).tree, 3.0, 400
    table = public_table(tree, [np.arange(6), np.arange(6)], np.arange(6) * 10 + 1)
    bounds = bounds_of_sums([LevelNoise(GAUSSIAN, sigma, w) for w in [36, 18, 9, 3, 1]], [1, 2, 4, 12, 36])
    kept, furthest = np.zeros(5, dtype=int), np.zeros(5)
    for _ in range(runs):
        frontiers = try_scales(table, MECHANISMS["gaussian"], [sigma] * 5, table_noise).released
        for level, (true, released) in enumerate(zip(table.levels, frontiers, strict=True)):
            error = np.zeros(tree.sizes(level), dtype=np.int64)
            error[released.areas] = released.counts
            error[true.areas] -= true.true_counts
            kept[level] += np.abs(error).max() <= bounds[level]
            furthest[level] = max(furthest[level], np.abs(error).max())
    assert (binom.cdf(kept, runs, 0.95) > FALSE_ALARM).all()
    assert (furthest > 0.8 * np.array(bounds)).all()  # it is no empty bound


# Releases of specs, whose tables are never read.


def planned(folder, mechanism, law, epsilon, split, **keys):
    """Return the plan of a spec whose axes, views and weights are given."""
    (folder / "trips.csv").write_text("copy,from,to\n")
    privacy = PRIVACY | {"epsilon": epsilon, "delta": 1e-6} | ({"accountant": "zcdp"} if law == "gaussian" else {})
    keys |= {"mechanism": mechanism, "noise": {"law": law}, "privacy": privacy | ({"split": split} if split else {})}
    keys |= {"input": {"table": "trips.csv", "features": [*keys["hierarchy"]]}, "budget": BUDGET}
    return make_plan(load_spec(spec_in(folder, features_of(keys["hierarchy"], **keys))))


def tried(plan, table, law, seed):
    """Return a release in memory."""
    release = reserved_release(plan, "copies", Path())
    charges = reserved_charges(release.id, release.parts)
    return try_release(table, release, charges, plan.mechanism, sampler_of(law, seed, reach=300))


# Fixed cells of views.

TOWNS = 200  # side by side and independent
ZONES = [("A", "A1"), ("A", "A2"), ("B", "B1"), ("B", "B2")]
TRIPS = [0, 1, 2, 0, 0, 9, 0, 0, 60, 0, 3, 0, 0, 0, 0, 1]  # of the pairs of zones, in every town
VIEWS = {
    "starts": {"copy": "copy", "from": "zone"},
    "ends": {"copy": "copy", "to": "zone"},
    "modes": {"copy": "copy", "mode": "mode"},
    "mixed": {"copy": "copy", "from": "district", "mode": "mode"},
    "districts": {"copy": "copy", "to": "district"},  # finer measurements may say more of it
}
SPLIT = {"starts": 3, "ends": 3, "modes": 3, "mixed": 1, "districts": 0.2}


def towns(folder, law, mechanism):
    """Return the plan of many copies of the town with views that cross in each copy, and their table."""
    pl.DataFrame(ZONES, ["district", "zone"], orient="row").write_csv(folder / "zones.csv")
    names = [zone for _, zone in ZONES]
    ways = [(a, b, "walk" if a == b else "bus" if a[0] == b[0] else "rail") for a in names for b in names]
    pl.DataFrame(ways, ["from", "to", "mode"], orient="row").write_csv(folder / "modes.csv")
    codebook = {"table": "zones.csv", "levels": ["district", "zone"]}
    codes = [f"{copy:04}" for copy in range(TOWNS)]
    keys = {
        "hierarchy": {"copy": {"values": codes}, "from": codebook, "to": codebook},
        "derived": {"mode": {"table": "modes.csv", "of": ["from", "to"]}},
        "release": {"order": ["copy", "from", "to"], "views": VIEWS},
    }
    plan = planned(folder, mechanism, law, 2.0, SPLIT, **keys)
    of_pair = np.flatnonzero(TRIPS)
    areas = [np.repeat(np.arange(TOWNS), len(of_pair)), *(np.tile(of, TOWNS) for of in np.divmod(of_pair, 4))]
    return plan, public_table(plan.tree, areas, np.tile(np.array(TRIPS)[of_pair], TOWNS), plan.derived)


def covered_cells(plan, table, trial, less):
    """Return, by view and size of the true count, the share of cells that are covered, with half-widths times `less`."""
    published, leaves, shares = TogetherEstimate(JobSource(trial.job)), true_levels(table)[-1], dict[str, float]()
    for terms in plan.named_views:
        true = sums_of_leaves(trial.job.partition(terms.number), leaves)
        sums, released = published._measured(terms.number), trial.job.counts(terms.number)
        rows, known = published.cells(terms.number)
        low, high = rows.bounds
        assert (low <= released).all()
        assert (released <= high).all()
        if less < 1:  # of the noisy count alone: the released count would widen what is too narrow
            margin = np.floor(np.asarray(known.half_width or sums.margin(log(0.05))) * less)
            low, high = sums.noisy - margin, sums.noisy + margin
        covers = (low <= true) & (true <= high)
        for group, those in (("0", true == 0), ("1 to 9", (true > 0) & (true < 10)), ("more", true >= 10)):
            if those.any():
                shares[f"{terms.name}, {group}"] = float(covers[those].mean())
    return shares


@pytest.mark.parametrize(
    ("mechanism", "law"), [("cbdp", "gaussian"), thorough("cbdp", "laplace"), thorough("inftda_reconciled", "laplace")]
)
def test_cells_of_views_are_covered_as_is_promised(tmp_path, law, mechanism):
    """By view and true count, cells that are released as 0 included, nine in ten intervals cover, but for chance; narrower ones do not."""
    plan, table = towns(tmp_path, law, mechanism)
    trial = tried(plan, table, law, seed=3)
    groups, fudged = (covered_cells(plan, table, trial, less) for less in (1.0, 0.5))
    assert len(groups) >= 10
    least = least_share(len(groups), TOWNS, CONFIDENCE)
    assert 0.7 < least < CONFIDENCE
    assert {of: share for of, share in groups.items() if share < least} == {}
    assert len({of for of in groups if fudged[of] < least}) >= 8


# Rows.

MARGINS = [("cbdp", MOST_SETTLED), ("inftda", MOST_SETTLED), ("inftda", 100), ("inftda_reconciled", 100)]
RUNS = 30
ROUNDING = 0.0005  # of a stated share
MANY_ROWS, MANY_MARKS = 30, 5  # of a level; fewer say little about a share


@dataclass(frozen=True)
class Case:
    """A survey of which few zones are large, so that many rows are noise, and who releases it."""

    mechanism: str
    law: str
    epsilon: float  # so that noise has a scale of 1 to 4
    zones: int = 256  # of 256 no margin is measured, of 40 all are
    most_settled: int = MOST_SETTLED  # how many leaves are settled together; of more, levels are calibrated to margins

    def __str__(self):
        return f"{self.mechanism}, {self.law}, {self.zones} zones, {self.most_settled} settled"

    @property
    def is_chosen_by_its_own_noise(self):
        """Whether rows are, and by nothing else, so that intervals of fixed cells leave out too many of them."""
        return self.zones == 256 and self.mechanism not in {"gaussian", "inftda_shrunk"}

    def survey(self, folder):
        """Return its plan, and its table."""
        codes = [f"{zone:03}" for zone in range(self.zones)]
        pl.DataFrame({"district": [code[:2] for code in codes], "zone": codes}).write_csv(folder / "zones.csv")
        codebook = {"table": "zones.csv", "levels": ["district", "zone"]}
        release = {"order": ["from.district", "to.district", "from", "to"]}
        release |= {"views": "margins"} if self.zones == 40 else {}
        hierarchy = {"from": codebook, "to": codebook}
        plan = planned(folder, self.mechanism, self.law, self.epsilon, None, hierarchy=hierarchy, release=release)
        random = np.random.default_rng(5)
        size = random.pareto(1.0, self.zones) + 0.1
        records = 3000 if self.zones == 256 else 1500
        ends = [random.choice(self.zones, records, p=size / size.sum()) for _ in range(2)]
        pairs, trips = np.unique(ends[0] * self.zones + ends[1], return_counts=True)
        return plan, public_table(plan.tree, np.divmod(pairs, self.zones), trips)


def missed(tree, true, areas, low, high):
    """Return the share of rows whose interval does not hold the true count; None where rows are few."""
    found = rows_covered(tree, true, areas, low, high)
    return 1 - (found.coverage or 0.0) if found and found.cells >= MANY_ROWS else None


def missed_by_fixed(plan, table, trial):
    """Return the same, by level, by the intervals of cells that are fixed beforehand."""
    margins = margins_of(plan.guarantee.noises, CONFIDENCE)
    bounds = measured_bounds(table.tree, trial.measured, trial.released, margins, [1] * len(margins))
    shares = {}
    for bound, true in zip(bounds, true_levels(table), strict=True):
        kept = bound.counts != 0
        areas = [of_axis[kept] for of_axis in bound.areas]
        shares[bound.level] = missed(table.tree, true, areas, bound.low[kept], bound.high[kept])
    return shares


def means(shares):
    """Return, by level that has a share in every run, the mean share and its standard error."""
    known = {level: [share for share in of if share is not None] for level, of in shares.items()}
    return {level: (fmean(of), stdev(of) / RUNS**0.5) for level, of in known.items() if len(of) == RUNS}


@pytest.mark.heavy("it releases a survey of 256 zones dozens of times: its shares are means over releases")
@pytest.mark.parametrize("case", [
    Case("inftda", "gaussian", 3.1),
    thorough(Case("inftda", "laplace", 1.7)),
    Case("inftda_reconciled", "gaussian", 3.1),
    thorough(Case("inftda_lenient", "gaussian", 3.1)),
    thorough(Case("inftda_lenient", "laplace", 2.5)),
    thorough(Case("inftda_shrunk", "gaussian", 3.1)),
    thorough(Case("inftda_shrunk", "laplace", 1.7)),
    thorough(Case("gaussian", "gaussian", 2.8)),
    Case("gaussian", "laplace", 1.0),
    *(
        (thorough if law == "laplace" else pytest.param)(Case(mechanism, law, 4.0, 40, most))
        for law, (mechanism, most) in product(LAWS, MARGINS)
    ),
], ids=str)  # fmt: skip
def test_rows_keep_their_promises(tmp_path, monkeypatch, case):
    """Of a level's rows at most a share α misses its count on average, few marked rows are noise, no more rows are noise than is said, and no error is beyond its bound."""
    # The last two may fail with a stated risk; by chance alone they fail more often than is allowed here once in ten thousand times.
    monkeypatch.setattr(tasks.mechanisms, "MOST_SETTLED", case.most_settled)
    plan, table = case.survey(tmp_path)
    tree, more, looked, beyond = table.tree, 0, 0, 0
    misses, fixed, false = (defaultdict[int, list[float | None]](list) for _ in range(3))
    for run in range(RUNS):
        trial = tried(plan, table, case.law, 100 + run)
        published = trial.published
        errors = list[int]()
        for level, true in enumerate(true_levels(table)):
            rows, shares = published.rows(level)[:], published.known(level).shares
            misses[level].append(missed(tree, true, rows.areas, *rows.bounds[:2]))
            marked = [areas[rows.signal] for areas in rows.areas]
            false[level].append((false_share(tree, true, marked) or 0.0) if len(marked[0]) >= MANY_MARKS else None)
            if shares:
                noise = false_share(tree, true, rows.areas) or 0.0
                if shares.noise is not None:
                    assert shares.noise <= shares.noise_at_most
                    assert abs(shares.noise - noise) <= KNOWN_WITHIN + ROUNDING
                more, looked = more + (noise > shares.noise_at_most), looked + 1
            errors.append(level_errors(tree, true, trial.released[level]).max_absolute)
        bounds = [published.known(level).bound for level in range(tree.depth + 1)]  # once all rows have been read
        beyond += any(bound is not None and error > bound for error, bound in zip(errors, bounds, strict=True))
        if case.is_chosen_by_its_own_noise:
            for level, share in missed_by_fixed(plan, table, trial).items():
                fixed[level].append(share)
    found = means(misses)
    assert len(found) >= 2
    assert {level: of for level, of in found.items() if of[0] > 1 - CONFIDENCE + 2 * of[1]} == {}
    assert not fixed or any(mean > 1 - CONFIDENCE + 5 * error for mean, error in means(fixed).values())
    marks = means(false)
    assert marks
    assert {level: of for level, of in marks.items() if of[0] > SIGNAL_RATE + 2 * of[1]} == {}
    assert looked > RUNS
    assert more <= binom.isf(1e-4, looked, RISK)
    assert beyond <= binom.isf(1e-4, RUNS, 1 - BOUND_CONFIDENCE)
