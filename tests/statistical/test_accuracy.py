"""What a second pass is worth, at the same ε and δ: against InfTDA by the lemma, on two of the paper's sets, with fixed seeds."""

import numpy as np
import pytest

from flows.trials.in_memory import public_table
from tasks.mechanisms import MECHANISMS
from tasks.synthesize.areas import draw_paper_set
from tasks.tree.axis import axis_from_codebook
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree, alternate
from tasks.validate.utility import level_errors
from tests.support.passes import noise_of
from tests.support.scales import try_scales

RUNS = 20
RHO_LEMMA, RHO_PLD = 0.013215, 0.01921  # what ε = 1 and δ = 1e-8 are by either accountant, under substitution


@pytest.mark.parametrize(("kind", "most"), [("binary", 0.65), ("random", 0.8)])
def test_a_second_pass_is_worth_what_is_said(kind, most):
    """The lenient one has at most so much of InfTDA's maximum error, at no level more; false discovery falls in both."""
    drawn = draw_paper_set(kind, "sparse", generator=np.random.default_rng(2025))
    axis = axis_from_codebook("area", drawn.codebook)
    ends = [axis.codes[-1].search_sorted(drawn.trips[end]).to_numpy().astype(np.int64) for end in ("home", "work")]
    tree = Tree((axis, axis), alternate((axis.depth, axis.depth), 1))
    table = public_table(tree, ends, drawn.trips["people"].to_numpy())

    true = [Frontier(level, nodes.areas, nodes.true_counts) for level, nodes in enumerate(table.levels)][1:]

    def means(mechanism, rho):
        """Return the mean over runs of each measure of every level."""
        sigmas, found = [0.0, *[(tree.depth / rho) ** 0.5] * tree.depth], []
        for run in range(RUNS):
            released = try_scales(table, MECHANISMS[mechanism], sigmas, noise_of(run)).released[1:]
            found.append([level_errors(tree, *of) for of in zip(true, released, strict=True)])
        return {
            of: np.array([[getattr(errors, of) for errors in levels] for levels in found], dtype=float).mean(axis=0)
            for of in ("max_absolute", "false_discovery", "l1")
        }

    base = means("inftda", RHO_LEMMA)
    second, third = (means(mechanism, RHO_PLD) for mechanism in ("inftda_reconciled", "inftda_lenient"))
    ratio, ratio_of_lenient = (of["max_absolute"] / base["max_absolute"] for of in (second, third))
    assert ratio_of_lenient.mean() <= most
    assert ratio_of_lenient.mean() < ratio.mean() < 0.85
    assert ratio_of_lenient.max() < 1
    assert third["false_discovery"][-1] < second["false_discovery"][-1] < base["false_discovery"][-1]
    assert third["l1"][-1] < base["l1"][-1]
