"""An audit of group sizes: what every mechanism claims holds, and a privacy loss of 1.2 times the claim is refuted.

One release of either of two neighbouring tables is made in memory, by the steps of any release. Its sampler keeps what it is given: the
true counts of each level, as they are measured, and the scale. All cells are measured whatever was drawn before, and the noises of cells
are independent. So a release is one draw of each, and the draws of cells that the tables have in common tell nothing: hundreds of
thousands of releases are as many draws of the others. The attacker knows both tables and the plan, and guesses if all draws agree.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

import tasks.noise.task
from flows.planning.plan import make_plan
from flows.run.reservation import reserved_release
from flows.specification.file import load_spec
from flows.trials.in_memory import public_table, try_release
from storage.ledger.accounts import reserved_charges
from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION
from tasks.mechanisms import MECHANISMS
from tasks.sizes.estimators import Sizes
from tasks.sizes.statistics import CHAIN, STATISTICS, TAILS
from tasks.sizes.tables import tails_of
from tasks.tree.axis import IntArray
from tests.support.attacks import Claim, Guesses, guesses_of, leaning, log_evidence
from tests.support.keys import PRIVACY
from tests.support.spec import spec_in

COUNTIES, LARGEST = 2, 4
CLAIM = Claim(2.0, 1e-8)
FALSE_ALARM = 1e-6  # of one audit of what claims its true loss
MORE = 1.2  # times the claim that must be refuted
GUESSES = 10_000  # about both tables
STAKES = (0.3,)  # the best one against so much more

MEASURED = {name: of.finish.measured.name for name, of in MECHANISMS.items() if isinstance(of.finish, Sizes)}


class Drawn(NamedTuple):
    """What the sampler of a release is given of a level: what is measured, and the scale."""

    measured: IntArray
    scale: float


def sizes_of(neighbours, *, is_one):
    """Return the homes of one to four people in every county: three of each, but for one person of the one table."""
    # In the other that person does not live with somebody in the last county any more, and under substitution lives with three others.
    sizes = np.full((COUNTIES, LARGEST), 3)
    if not is_one:
        sizes[-1, :2] += 1, -1
        if neighbours == SUBSTITUTION:
            sizes[0, 2:] += -1, 1
    return sizes


def planned(folder, mechanism, neighbours):
    """Return the plan of a spec; its table is never read."""
    (folder / "homes.csv").write_text("county,home,people\n")
    pl.DataFrame({"county": np.arange(COUNTIES)}).write_csv(folder / "counties.csv")
    spec = {
        "name": "audited",
        "dataset": "audited",
        "input": {"table": "homes.csv", "group": "home", "count": "people"},
        "hierarchy": {"region": {"table": "counties.csv", "levels": ["county"]}},
        "release": {"group_sizes": {"region": "county", "largest": LARGEST}, "noisy_counts": True},
        "mechanism": mechanism,
        "noise": {"sampler": "table"},
        "privacy": PRIVACY | {"neighbours": neighbours, "epsilon": CLAIM.epsilon, "delta": CLAIM.delta},
        "budget": {"epsilon": 90.0, "delta": 0.1},
    }
    return make_plan(load_spec(spec_in(folder, spec)))


def drawn(plan, sizes):
    """Return what the sampler is given of every level, in a release in memory of a table with such homes."""
    given = list[Drawn]()

    def sampler(measured, scale):
        given.append(Drawn(measured.copy(), scale))
        return plan.scheme.law.samplers["table"].draw(measured, scale)

    county, size = np.divmod(np.arange(sizes.size), LARGEST)
    by_axis = {"region": county, "size": size}
    table = public_table(plan.tree, [by_axis[axis.name] for axis in plan.tree.axes], tails_of(sizes).ravel())
    release = reserved_release(plan, "audited", Path())
    try_release(table, release, reserved_charges(release.id, release.parts), plan.mechanism, sampler)
    return given


def evidence(plan, neighbours, less):
    """Return the logarithm of the evidence against the claim from many releases of either table with so many times less noise."""
    one, other = (drawn(plan, sizes_of(neighbours, is_one=is_one)) for is_one in (True, False))
    assert [of.scale for of in one] == [of.scale for of in other]
    moved = [abs(of.measured - to.measured) for of, to in zip(one, other, strict=True)]
    losses = np.concatenate([by[by > 0] / of.scale for by, of in zip(moved, one, strict=True)])
    agreeing = 1 / (1 + np.exp(-losses))  # of a cell that moves by 1, how often its draw tells the right table
    releases = math.ceil(GUESSES / 2 / (agreeing.prod() + (1 - agreeing).prod()))
    leans, draw = [np.zeros(releases), np.zeros(releases)], plan.scheme.law.samplers["table"].draw
    for left, right in zip(one, other, strict=True):
        for cell in np.flatnonzero(left.measured != right.measured):
            here, there = (np.array([float(level.measured[cell])]) for level in (left, right))
            for of, given in zip(leans, (left, right), strict=True):
                noisy = draw(np.full(releases, given.measured[cell]), given.scale / less).astype(np.float64)
                of += leaning(noisy[:, None], here, there, np.array([given.scale]), "laplace")
    most = float(losses.sum())
    return float(log_evidence(guesses_of(leans[0], leans[1], certain=most * (1 - 1e-9)), CLAIM, STAKES))


@pytest.mark.parametrize(("more", "least"), [(1.0, 0.0), (MORE, 1 - 1e-6)])
def test_an_audit_accuses_who_claims_too_little_and_nobody_else(more, least):
    """With so many guesses a claim that is kept to the letter is refuted once in a million audits at most, and 1.2 times the claim in all others."""
    # Added up over all numbers of right guesses. A guess is right with the odds that the privacy loss allows.
    right = np.arange(GUESSES + 1)
    refuted = log_evidence(Guesses(right, GUESSES - right, GUESSES), CLAIM, STAKES) >= -math.log(FALSE_ALARM)
    odds = binom.pmf(right, GUESSES, 1 / (1 + math.exp(-more * CLAIM.epsilon)))
    assert least <= odds[refuted].sum() <= (FALSE_ALARM if more == 1 else 1 + 1e-9)


@pytest.mark.parametrize("neighbours", [ADD_REMOVE, SUBSTITUTION])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_claim_holds_and_a_fifth_more_is_refuted(tmp_path, statistic, neighbours):
    """The noise that is planned does not refute the claim, and noise with 1.2 times the privacy loss does."""
    plan = planned(tmp_path, next(name for name, of in MEASURED.items() if of == statistic), neighbours)
    assert (plan.guarantee.epsilon, plan.scheme.law.name) == (CLAIM.epsilon, "discrete_laplace")
    assert evidence(plan, neighbours, less=1.0) < -math.log(FALSE_ALARM)
    assert evidence(plan, neighbours, less=MORE) >= -math.log(FALSE_ALARM)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_mechanisms_that_measure_the_same_draw_the_same(tmp_path, statistic):
    """So what an audit shows of one of them is shown of all: they differ in what they make of what is drawn."""
    sizes = sizes_of(ADD_REMOVE, is_one=True)
    names = [name for name, of in MEASURED.items() if of == statistic]
    of_all = [drawn(planned(tmp_path, name, ADD_REMOVE), sizes) for name in names]
    told = [[(of.measured.tolist(), of.scale) for of in given] for given in of_all]
    assert told == [told[0]] * len(told)


def test_a_chain_that_is_charged_with_sensitivity_one_is_refuted(tmp_path, monkeypatch):
    """Planned, charged and drawn as if one person moved one running sum by 1, as the paper says, the chain breaks its claim."""
    recipe = MECHANISMS["sizes_chain"]
    assert isinstance(recipe.finish, Sizes)
    wrong = replace(CHAIN, sensitivity=TAILS.sensitivity)
    monkeypatch.setitem(MECHANISMS, "sizes_chain", replace(recipe, finish=replace(recipe.finish, measured=wrong)))
    monkeypatch.setattr(tasks.noise.task, "STATISTICS", {**tasks.noise.task.STATISTICS, CHAIN.name: wrong})
    assert evidence(planned(tmp_path, "sizes_chain", ADD_REMOVE), ADD_REMOVE, less=1.0) > -math.log(FALSE_ALARM)
