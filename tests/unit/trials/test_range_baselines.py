"""Questions about an ordered axis in comparisons: baselines for ranges, and deviations against what trials come to."""

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.console.comparison_view import show_comparison
from flows.spec.file import load_spec
from flows.trials.comparison import Comparison, make_comparison
from flows.trials.contestants import Contestant
from storage.errors import UsageError
from tasks.report.comparison_page import comparison_page
from tasks.tree.views import Partition, level_view, sums_of_leaves
from tests.support.comparisons import answer_of

PRIVACY = {"unit": "one person", "neighbours": "add_remove", "max_records_per_unit": 1, "epsilon": 1.0, "delta": 1e-6}


def compare(
    folder: Path,
    names: list[str],
    hierarchy: dict[str, Any] | None = None,
    at: float = 1.0,
    mechanism: str = "inftda",
    **privacy: object,
) -> Comparison:
    """Return a comparison on 3,000 people by age, from 0 to 12."""
    ages = np.random.default_rng(4).binomial(12, 0.4, 3000)
    pl.DataFrame({"age": ages.astype(str), "sex": np.where(ages % 2, "f", "m")}).write_csv(folder / "people.csv")
    hierarchy = hierarchy or {"age": {"ordered": 13}}
    keys: dict[str, Any] = {
        "name": "ages",
        "dataset": "made-up",
        "public_data": True,
        "input": {"table": "people.csv", "features": [*hierarchy]},
        "hierarchy": hierarchy,
        "release": {"order": [*hierarchy]},
        "mechanism": mechanism,
        "privacy": {key: of for key, of in (PRIVACY | privacy).items() if of is not None},
        "noise": {"sampler": "table"},
        "budget": {"epsilon": 1.0, "delta": 1e-6},
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
    return make_comparison(load_spec(folder / "spec.yaml"), names, [at], runs=2)


def errors_of(comparison: Comparison, entry: Contestant, runs: int) -> list[np.ndarray]:
    """Return per level the errors of all nodes, shape (runs, nodes), zeros too."""
    tree, errors = comparison.table.tree, list[list[np.ndarray]]()
    partitions = [Partition(tree, level_view(tree, level)) for level in range(tree.depth + 1)]
    true = [sums_of_leaves(partition, comparison.true_levels[-1]) for partition in partitions]
    for _ in range(runs):
        of_levels = []
        for nodes, counts in zip(entry.try_on(comparison.table).released, true, strict=True):
            found = np.zeros(len(counts))
            found[nodes.areas[0]] = nodes.counts
            of_levels.append(found - counts)
        errors.append(of_levels)
    return [np.array(of_level) for of_level in zip(*errors, strict=True)]


def squares_of_ranges(leaves: np.ndarray) -> np.ndarray:
    """Return of each run the mean squared error of all ranges, given those of leaves, shape (runs, leaves)."""
    prefixes = np.pad(leaves.cumsum(axis=1), ((0, 0), (1, 0)))
    size = prefixes.shape[1]
    return np.square(prefixes[:, :, None] - prefixes[:, None, :]).sum(axis=(1, 2)) / (size * (size - 1))


@pytest.mark.parametrize(
    ("name", "neighbours"),
    [
        *[(name, "add_remove") for name in ("wavelet", "gaussian")],
        *[(name, "substitution") for name in ("unbiased_tree", "eigen_design")],
        *[pytest.param(name, "add_remove", marks=pytest.mark.thorough) for name in ("cascade", "eigen_design")],
        *[pytest.param(name, "substitution", marks=pytest.mark.thorough) for name in ("cascade", "hierarchical")],
    ],
)
def test_deviations_are_those_of_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, neighbours: str
) -> None:
    """Over 60 trials, ranges and leaves have the stated mean variance, and up to 1/6 more for rounding, within five standard errors."""
    fresh, seeds = np.random.default_rng, count(1)
    monkeypatch.setattr(np.random, "default_rng", lambda seed=None: fresh(next(seeds) if seed is None else seed))
    comparison = compare(tmp_path, [name], neighbours=neighbours)
    [entry] = comparison.entries
    leaves = errors_of(comparison, entry, 60)[-1]
    assert entry.variances.keys() == {"ranges", "prefix", "nodes", "worst_node", "leaves", "sets"}
    rounding = 0.0 if name == "gaussian" else 1 / 6
    for found, question in ((squares_of_ranges(leaves), "ranges"), ((leaves**2).mean(axis=1), "leaves")):
        apart = 5 * found.std() / np.sqrt(len(found))
        assert entry.variances[question] - apart < found.mean() < entry.variances[question] + rounding + apart


def test_noisy_nodes_are_released_as_they_are_drawn(tmp_path: Path) -> None:
    """Every level has the noise of its own draws and no other, and ranges are answered by the fewest nodes."""
    comparison = compare(tmp_path, ["binary_tree"])
    [entry] = comparison.entries
    of_levels = errors_of(comparison, entry, 300)
    variance = entry.sigmas[0] ** 2
    assert entry.sigmas == [entry.sigmas[0]] * 5
    assert entry.variances["nodes"] == entry.variances["worst_node"] == pytest.approx(variance, rel=1e-3)
    for errors in of_levels:
        assert (errors**2).mean() == pytest.approx(variance, abs=5 * variance * np.sqrt(2 / errors.size))
    total, halves = of_levels[0][:, 0], of_levels[1].sum(axis=1)
    assert abs(np.corrcoef(total, halves)[0, 1]) < 5 / np.sqrt(len(total))


def test_a_level_of_only_children_repeats_the_one_above(tmp_path: Path) -> None:
    """Its noisy nodes are those of the level above, with the same counts."""
    pl.DataFrame({"half": ["a", "b"], "sex": ["f", "m"]}).write_csv(tmp_path / "halves.csv")
    comparison = compare(tmp_path, ["binary_tree"], {"sex": {"table": "halves.csv", "levels": ["half", "sex"]}})
    [entry] = comparison.entries
    _, halves, sexes = entry.try_on(comparison.table).released
    assert halves.counts.tolist() == sexes.counts.tolist()
    assert entry.sigmas[1] == entry.sigmas[2]


@pytest.mark.parametrize(
    "hierarchy",
    [{"age": {"values": 13}}, {"age": {"ordered": 13}, "sex": {"values": ["f", "m"]}}, {"age": {"ordered": 3000}}],
)
def test_sines_need_one_ordered_axis_with_few_leaves(tmp_path: Path, hierarchy: dict[str, Any]) -> None:
    """Without an order, with a second axis, or with more than 2,048 leaves the eigen-design is left out, with the reason."""
    with pytest.raises(UsageError, match=r"an ordered one, for baseline eigen_design|at most 2,048 leaves"):
        compare(tmp_path, ["eigen_design"], hierarchy)


@pytest.mark.thorough
def test_questions_are_shown_where_an_axis_is_ordered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Terminal and page have a row for each mechanism whose noise alone decides, and none for a mechanism that prunes.

    Neither results nor page have deviations without an ordered axis.
    """
    unordered = answer_of(compare(tmp_path, ["cascade"], {"age": {"values": 13}}))
    assert unordered.with_deviations == []
    assert "Questions about" not in comparison_page(unordered)
    answer = answer_of(compare(tmp_path, ["cascade", "inftda_reconciled", "binary_tree"]))
    assert [result.mechanism for result in answer.with_deviations] == ["cascade", "binary_tree"]
    show_comparison(answer)
    said = capsys.readouterr().out.partition("questions about the ordered axis")[2].partition("what a release")[0]
    cascade = answer.results[0].deviations
    wanted = ["ranges", "prefix", "nodes", "worst_node", "leaves", "sets"]
    [row] = [line.split()[1:] for line in said.splitlines() if line.split()[:1] == ["cascade"]]
    assert row == [f"{cascade[of]:,.1f}" for of in wanted]
    assert "inftda_reconciled" not in said
    page = comparison_page(answer)
    section = page.partition("<h2>Questions about the ordered axis</h2>")[2].partition("<h2>")[0]
    assert f"<td>{cascade['ranges']:,.1f}</td>" in section
    assert "inftda_reconciled" not in section


def test_a_split_for_ranges_is_left_out_where_nodes_are_pruned(tmp_path: Path) -> None:
    """Other mechanisms take equal shares in its place, and the comparison says so; mechanisms that are a split keep it."""
    names = ["unbiased_tree", "inftda", "cascade"]
    comparison = compare(tmp_path, names, mechanism="unbiased_tree", split={"workload": "prefix"})
    tree, inftda, cascade = (entry.sigmas for entry in comparison.entries)
    assert len(set(inftda)) == 1 < len(set(tree)) < len(tree) + 1
    assert cascade[0] < cascade[1] > cascade[-1]
    assert tree != cascade
    assert comparison.notes["inftda"] == [
        "privacy.split is left out: it is a rule for mechanisms that measure every node."
    ]
    assert "unbiased_tree" not in comparison.notes


def test_targets_share_the_budget_of_a_comparison(tmp_path: Path) -> None:
    """At the ε of a comparison the levels have the ratios that the targets need, and a note says that they need not be met."""
    targets = {"epsilon": None, "split": {"targets": {"age": 1.0}}}
    comparison = compare(tmp_path, ["unbiased_tree", "gaussian"], at=0.5, mechanism="unbiased_tree", **targets)
    tree, flat = comparison.entries
    assert tree.variances["leaves"] == pytest.approx(flat.variances["leaves"], rel=0.05)
    assert "are met only where it suffices" in " ".join(comparison.notes["unbiased_tree"])
