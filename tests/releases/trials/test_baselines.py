"""Baselines of comparisons: what they measure, with which shares of ε, and how far off they are, of ranges too."""

from fractions import Fraction
from itertools import count, pairwise

import numpy as np
import polars as pl
import pytest
import yaml

from flows.specification.file import load_spec
from flows.trials.baselines import BASELINES
from flows.trials.comparison import make_comparison, trials_of
from storage.errors import UsageError
from tasks.accounting.allocation import laplace_map
from tasks.mechanisms import MECHANISMS
from tasks.tree.views import Partition, level_view, sums_of_leaves
from tests.support.keys import ABSENT, PRIVACY, changed, features_of

ZONES = {"north": ["n1", "n2", "n3"], "south": ["s1", "s2"]}
STOPS = pl.DataFrame([(zone, stop) for zone, stops in ZONES.items() for stop in stops], ["zone", "stop"], orient="row")
END = {"table": "stops.csv", "levels": ["zone", "stop"]}
BY_ZONES, BY_MODE = {"hour": "hour", "from": "zone", "to": "zone"}, {"hour": "hour", "mode": "mode"}
MODES_FIRST = {"by_mode": BY_MODE, "by_zones": BY_ZONES, "by_hour": {"hour": "hour"}}
CROSSING = {"by_zones": BY_ZONES, "by_mode": BY_MODE, "total": {}, "by_hour": {"hour": "hour"}}
NESTED = ["laplace", *(name for name in BASELINES if name.startswith("hay"))]
SETTLED = {"mechanism": "unbiased_tree"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write 400 trips of 75 possible types, none of them in the last hour; mode and kind follow from the stops."""
    folder, generator = tmp_path_factory.mktemp("trips"), np.random.default_rng(4)
    STOPS.write_csv(folder / "stops.csv")
    pairs = STOPS.select(pl.col("stop").alias("from")).join(STOPS.select(pl.col("stop").alias("to")), how="cross")
    same_number = pl.col("from").str.tail(1) == pl.col("to").str.tail(1)  # in all pairs of zones
    same_zone = pl.col("from").str.head(1) == pl.col("to").str.head(1)
    for name, same in (("mode", same_number), ("kind", same_zone)):
        code = pl.when(same).then(pl.lit("shuttle")).otherwise(pl.lit("bus"))
        pairs.with_columns(code.alias(name)).write_csv(folder / f"{name}s.csv")
    stops = STOPS["stop"].to_numpy()
    drawn = [generator.integers(0, most, 400) for most in (2, 5, 5)]
    trips = {"hour": drawn[0], "from": stops[drawn[1]], "to": stops[drawn[2]]}
    pl.DataFrame(trips).write_csv(folder / "trips.csv")
    return folder


def compare(folder, names, views, epsilons=(1.0,), hours=3, **privacy):
    """Write a spec and return its comparison."""
    keys = features_of({"hour": hours, "from": END, "to": END}, public_data=True)
    keys |= {"input": keys["input"] | {"table": "trips.csv"}, "privacy": PRIVACY | privacy}
    if views is not None:
        of = ["from.stop", "to.stop"]
        keys["derived"] = {name: {"table": f"{name}s.csv", "of": of} for name in ("mode", "kind")}
        keys |= {"mechanism": "cbdp", "release": keys["release"] | {"views": views}}
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
    return make_comparison(load_spec(folder / "spec.yaml"), names, epsilons, runs=2)


@pytest.fixture(scope="module")
def crossing(folder):
    """Return a comparison by views that cross."""
    return compare(folder, ["laplace", "hay", "hay:pruned_geometric", "hay:pruned", "cbdp"], CROSSING)


def entry_of(comparison, name="hay"):
    """Return an entry by its name."""
    [entry] = [entry for entry in comparison.entries if entry.name == name]
    return entry


def measured(entry):
    """Return of everything that a baseline measures how many cells it has, and the ε of its noise, from coarse to fine."""
    sizes = [len(Partition(entry.scheme.tree, entry.scheme.view(number))) for number in entry.scheme.measured]
    found = sorted(zip(sizes, (of.cost.epsilon for of in entry.guarantee.by_map), strict=True))
    return [cells for cells, _ in found], [epsilon for _, epsilon in found]


def scales(entry):
    """Return the scales of the noise."""
    return [level.noise.scale for level in entry.guarantee.by_map]


def test_groupings_refine_one_another(folder, crossing):
    """Everything comes first, then the spec's views, crossing ones as their common refinement, then the leaves; equal shares."""
    # 3 hours, 12 pairs of zones by hour, each with two modes
    assert measured(entry_of(crossing)) == ([1, 3, 12, 24, 75], pytest.approx([0.2] * 5, rel=1e-9))
    assert measured(entry_of(compare(folder, ["hay"], MODES_FIRST)))[0] == [1, 3, 6, 24, 75]
    by_kind = {"by_zones": BY_ZONES, "by_kind": {"hour": "hour", "kind": "kind"}}
    # a pair of zones has one kind, which refines nothing
    assert measured(entry_of(compare(folder, ["hay"], by_kind)))[0] == [1, 12, 75]


def test_without_views_the_levels_of_the_tree_are_the_groupings(folder):
    """Every level is measured once, from the total to the leaves, whatever the spec's own split is."""
    comparison = compare(folder, ["hay"], None, split=[1, 2, 3, 4, 5, 6])
    assert measured(entry_of(comparison)) == ([1, 3, 6, 15, 30, 75], pytest.approx([1 / 6] * 6, rel=1e-9))
    assert comparison.notes == {"hay": ["privacy.split is left out: its groupings have shares of their own."]}


def test_geometric_shares_add_up_to_epsilon(crossing):
    """Each share of ε is 2^(1/3) times the one before, and all of them are ε exactly; no charge exceeds its share."""
    entry = entry_of(crossing, "hay:pruned_geometric")
    shares = sorted(entry.scheme.allocation.shares)
    assert sum(shares) == Fraction(1)
    assert [float(fine / coarse) for coarse, fine in pairwise(shares)] == pytest.approx([2 ** (1 / 3)] * 4)
    costs = measured(entry)[1]
    assert costs == sorted(costs)
    assert 1 - 1e-6 < sum(costs) <= 1


@pytest.mark.thorough
def test_noise_follows_neighbours_and_records(folder):
    """The scale is Δ₁ over the share: m at the total and m or 2m below it; a public total is exact, and takes no share."""
    flat = compare(folder, ["laplace"], CROSSING, max_records_per_unit=3)
    assert scales(entry_of(flat, "laplace")) == pytest.approx([3.0], rel=1e-9)
    moved = compare(folder, ["laplace", "hay"], CROSSING, neighbours="substitution", max_records_per_unit=3)
    assert scales(entry_of(moved, "laplace")) == pytest.approx([6.0], rel=1e-9)
    total, *below = scales(entry_of(moved))
    # four fifths of 15 and 30: who stays moves no total, and who comes or goes moves all else by half
    assert [total, *below] == pytest.approx([12.0, 24.0, 24.0, 24.0, 24.0], rel=1e-9)
    assert sum(laplace_map(scale, 6) for scale in below) <= 1
    assert laplace_map(total, 3) + sum(laplace_map(scale, 3) for scale in below) <= 1
    public = entry_of(compare(folder, ["hay"], CROSSING, neighbours="substitution"))
    assert measured(public)[0] == [3, 12, 24, 75]
    assert scales(public) == pytest.approx([8.0] * 4, rel=1e-9)
    assert public.sigmas[0] == 0 < public.sigmas[1]


@pytest.mark.parametrize("views", [None, CROSSING])
def test_levels_are_sums_and_without_noise_the_table(views, folder):
    """With hardly any noise every baseline returns the true counts of every level and view; with any, levels are sums of whole leaves from 0 on."""
    comparison = compare(folder, list(BASELINES), views, (0.1, 200.0))
    for entry in comparison.entries:
        levels = entry.try_on(comparison.table).released
        if entry.epsilon == 200.0:
            rows = trials_of(comparison, entry, [1])
            assert len(rows) == 6 + len(views or {})
            assert [row["l1"] for row in rows] == [0] * len(rows)
            assert [nodes.counts.sum() for nodes in levels] == [400] * 6
        elif entry.name in NESTED:
            leaves = levels[-1]
            assert (leaves.counts > 0).all()
            for nodes in levels:
                partition = Partition(comparison.table.tree, comparison.plan.scheme.view(nodes.level))
                sums = sums_of_leaves(partition, leaves)
                assert sums[sums > 0].tolist() == nodes.counts.tolist() or not leaves.counts.size


def test_what_a_baseline_cannot_do_is_told(folder):
    """A name that is none is refused; out of range of ε, or above ten million leaves, a baseline is left out with its reason."""
    with pytest.raises(UsageError, match="no baseline hay:cut, only laplace, hay, hay:pruned"):
        compare(folder, ["hay:cut"], None)
    with pytest.raises(UsageError, match=r"among inftda, .*, laplace, hay"):
        compare(folder, ["magic"], None)
    assert not set(BASELINES) & set(MECHANISMS)
    with pytest.raises(UsageError, match="At epsilon 1e-300"):
        compare(folder, ["laplace"], None, (1e-300,))
    comparison = compare(folder, ["inftda", "laplace", "hay"], None, hours=500_000)
    assert [entry.name for entry in comparison.entries] == ["inftda"]
    for name in ("laplace", "hay"):
        assert f"at most 10,000,000 leaves with mechanism {name}" in comparison.refused[name]


# questions about an ordered axis ----------------------------------------------------------------------------------------


def compare_ages(folder, names, axes=None, at=1.0, **changes):
    """Return a comparison on 3,000 people by age, from 0 to 12."""
    ages = np.random.default_rng(4).binomial(12, 0.4, 3000)
    pl.DataFrame({"age": ages.astype(str), "sex": np.where(ages % 2, "f", "m")}).write_csv(folder / "people.csv")
    keys = features_of(axes or {"age": {"ordered": 13}}, public_data=True, noise={"sampler": "table"})
    (folder / "spec.yaml").write_text(yaml.safe_dump(changed(keys, changes), sort_keys=False))
    return make_comparison(load_spec(folder / "spec.yaml"), names, [at], runs=2)


def errors_of(comparison, entry, runs):
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


def squares_of_ranges(leaves):
    """Return of each run the mean squared error of all ranges, given those of leaves, shape (runs, leaves)."""
    prefixes = np.pad(leaves.cumsum(axis=1), ((0, 0), (1, 0)))
    size = prefixes.shape[1]
    return np.square(prefixes[:, :, None] - prefixes[:, None, :]).sum(axis=(1, 2)) / (size * (size - 1))


@pytest.mark.parametrize(("name", "neighbours"), [
    *((name, "add_remove") for name in ("wavelet", "gaussian")),
    *((name, "substitution") for name in ("unbiased_tree", "eigen_design")),
    *(pytest.param(name, "add_remove", marks=pytest.mark.thorough) for name in ("cascade", "eigen_design")),
    *(pytest.param(name, "substitution", marks=pytest.mark.thorough) for name in ("cascade", "hierarchical")),
])  # fmt: skip
def test_deviations_are_those_of_trials(tmp_path, monkeypatch, name, neighbours):
    """Over 60 trials, ranges and leaves have the stated mean variance, and up to 1/6 more for rounding, within five standard errors."""
    fresh, seeds = np.random.default_rng, count(1)
    monkeypatch.setattr(np.random, "default_rng", lambda seed=None: fresh(next(seeds) if seed is None else seed))
    comparison = compare_ages(tmp_path, [name], **{"privacy.neighbours": neighbours})
    [entry] = comparison.entries
    leaves = errors_of(comparison, entry, 60)[-1]
    assert entry.variances.keys() == {"ranges", "prefix", "nodes", "worst_node", "leaves", "sets"}
    rounding = 0.0 if name == "gaussian" else 1 / 6
    for found, question in ((squares_of_ranges(leaves), "ranges"), ((leaves**2).mean(axis=1), "leaves")):
        apart = 5 * found.std() / np.sqrt(len(found))
        assert entry.variances[question] - apart < found.mean() < entry.variances[question] + rounding + apart


def test_noisy_nodes_are_released_as_they_are_drawn(tmp_path):
    """Every level has the noise of its own draws and no other, and ranges are answered by the fewest nodes."""
    comparison = compare_ages(tmp_path, ["binary_tree"])
    [entry] = comparison.entries
    of_levels = errors_of(comparison, entry, 300)
    variance = entry.sigmas[0] ** 2
    assert entry.sigmas == [entry.sigmas[0]] * 5
    assert entry.variances["nodes"] == entry.variances["worst_node"] == pytest.approx(variance, rel=1e-3)
    for errors in of_levels:
        assert (errors**2).mean() == pytest.approx(variance, abs=5 * variance * np.sqrt(2 / errors.size))
    total, halves = of_levels[0][:, 0], of_levels[1].sum(axis=1)
    assert abs(np.corrcoef(total, halves)[0, 1]) < 5 / np.sqrt(len(total))


@pytest.mark.parametrize("hierarchy", [
    {"age": 13}, {"age": {"ordered": 13}, "sex": ["f", "m"]}, {"age": {"ordered": 3000}},
])  # fmt: skip
def test_sines_need_one_ordered_axis_with_few_leaves(tmp_path, hierarchy):
    """Without an order, with a second axis, or with more than 2,048 leaves the eigen-design is left out, with the reason."""
    with pytest.raises(UsageError, match=r"an ordered one, for baseline eigen_design|at most 2,048 leaves"):
        compare_ages(tmp_path, ["eigen_design"], hierarchy)


def test_a_split_for_ranges_is_left_out_where_nodes_are_pruned(tmp_path):
    """Other mechanisms take equal shares in its place, and the comparison says so; mechanisms that are a split keep it."""
    names = ["unbiased_tree", "inftda", "cascade"]
    comparison = compare_ages(tmp_path, names, **SETTLED, **{"privacy.split": {"workload": "prefix"}})
    tree, inftda, cascade = (entry.sigmas for entry in comparison.entries)
    assert len(set(inftda)) == 1 < len(set(tree)) < len(tree) + 1
    assert cascade[0] < cascade[1] > cascade[-1]
    assert tree != cascade
    [note] = comparison.notes["inftda"]
    assert note == "privacy.split is left out: it is a rule for mechanisms that measure every node."
    assert "unbiased_tree" not in comparison.notes


def test_targets_share_the_budget_of_a_comparison(tmp_path):
    """At the ε of a comparison the levels have the ratios that the targets need, and a note says that they need not be met."""
    targets = SETTLED | {"privacy.epsilon": ABSENT, "privacy.split": {"targets": {"age": 1.0}}}
    comparison = compare_ages(tmp_path, ["unbiased_tree", "gaussian"], at=0.5, **targets)
    tree, flat = comparison.entries
    assert tree.variances["leaves"] == pytest.approx(flat.variances["leaves"], rel=0.05)
    assert "are met only where it suffices" in " ".join(comparison.notes["unbiased_tree"])
