"""Comparisons of group sizes: every mechanism on a public table, with the measures of the paper."""

import numpy as np
import pytest

from flows.console.comparison_view import show_comparison
from flows.specification.file import load_spec
from flows.trials.comparison import make_comparison
from flows.trials.sizes import emd_of_level
from storage.errors import UsageError
from tasks.laws import samplers
from tasks.pages.comparison import comparison_page
from tasks.tree.frontier import Frontier
from tests.support.comparisons import answer_of
from tests.support.households import PRIVACY, draw_homes, write_spec, write_tables
from tests.support.seeded_bits import SeededBits

RELAXED = {"sizes_direct_relaxed", "sizes_cumulative_relaxed"}


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """Return what makes a comparison on 500 homes in five counties."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(samplers, "system_words", SeededBits(7))
    write_tables(tmp_path, draw_homes())

    def make(names=(), epsilon=1.0, **keys):
        spec = write_spec(tmp_path, **{"public_data": True, "noise": {"sampler": "table"}, **keys})
        return make_comparison(load_spec(spec), names, [epsilon], runs=1)

    return make


def test_the_papers_measures_and_their_order(compared, capsys):
    """Only the relaxations break sums; M_H^dp is farther off than M_c^dp, and the chain farthest with its true sensitivity."""
    answer = answer_of(compared(privacy=PRIVACY | {"split": "uniform"}), 8)
    finest = {result.mechanism: result.levels[-1] for result in answer.results}
    broken = {result.mechanism for result in answer.results if any(level.violations.max > 0 for level in result.levels)}
    assert broken == RELAXED
    assert finest["sizes_cumulative_exact"].l1.mean < finest["sizes_direct_exact"].l1.mean
    assert finest["sizes_direct_exact"].emd.mean < finest["sizes_chain"].emd.mean
    assert finest["group_sizes"].emd.mean < 0.5 * finest["sizes_direct_exact"].emd.mean
    show_comparison(answer)
    shown = capsys.readouterr().out
    assert "EMD" in shown
    page = comparison_page(answer)
    assert "Earth mover" in page
    assert "Violations" in page


def test_mechanisms_of_another_kind_are_told_apart(compared):
    """What counts records is not tried on groups, a baseline neither, and the reason names the mechanisms that are."""
    for name in ("inftda", "hay"):
        with pytest.raises(UsageError, match=r"must be one of group_sizes, .* for group sizes, got"):
            compared([name])


def test_the_emd_of_level_distance_counts_records(compared):
    """Homes of 1 and 3 people that are released as one of 4 lack a person where there are at least one, and have one too many of four."""
    tree = compared(["group_sizes"]).table.tree
    true, found = (
        Frontier(3, (np.array([0, 0]), np.array(sizes)), np.array(counts))
        for sizes, counts in (([0, 2], [1, 1]), ([3, 2], [1, 0]))
    )
    assert emd_of_level(tree, true, true) == 0
    assert emd_of_level(tree, true, found) == 2  # tails 2, 1, 1, 0 and 1, 1, 1, 1
