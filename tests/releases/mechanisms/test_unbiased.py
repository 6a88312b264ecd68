"""Releases of which every node of a tree, or every combination of levels of a grid, is measured: unbiased counts that add up.

Their deviations are stated, `verify` finds what does not follow, and what does not fit is refused.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.answers.release_status import show_answer
from flows.planning.plan import make_plan
from flows.run.reservation import reserved_release
from flows.specification.file import load_spec
from flows.trials.comparison import make_comparison
from flows.trials.in_memory import try_release
from storage.errors import SpecError
from storage.ledger.accounts import reserved_charges
from tasks.folder.verify.folder import verify
from tasks.format.noisy_counts import NoisyCounts, noisy_counts_path
from tasks.format.published_tree import tree_of_spec
from tasks.pages.comparison import comparison_page
from tasks.unbiased.dense import Strategy, strategies_of, text_of
from tasks.unbiased.optimum import gram
from tests.support.ages import BY_AGE, PRIVACY, SPEC, draw_people, people_released
from tests.support.comparisons import answer_of
from tests.support.folders import changed, stated
from tests.support.passes import try_spec
from tests.support.shapes import incidences, tree_by
from tests.support.spec import spec_in

HIERARCHY = {"zone": {"ordered": ["n", "e", "s"]}, "age": {"ordered": 10}}
GRID = {"hierarchy": HIERARCHY, "release": {"grid": ["zone", "age"]}, "mechanism": "unbiased_tree"}
SUBSTITUTION = {"neighbours": "substitution"}
thorough = pytest.mark.thorough


@pytest.fixture
def write(tmp_path, own_home):
    """Return what writes the people and a spec; a key of its privacy that is None is taken out."""

    def written(people=None, **keys):
        (draw_people() if people is None else people).write_csv(tmp_path / "people.csv")
        spec = SPEC | keys
        spec["privacy"] = {key: value for key, value in spec["privacy"].items() if value is not None}
        return spec_in(tmp_path, spec)

    return written


def by_axis(**rules):
    """Return keys of privacy with a rule for each axis."""
    return {"privacy": PRIVACY | {"split": rules}}


@pytest.mark.parametrize("keys", [
    {},
    {"release": SPEC["release"] | {"views": {"ages": {"age": "age"}}}},
    GRID | {"mechanism": "cascade"},
    GRID | by_axis(zone="cascade", age="cascade"),
])  # fmt: skip
def test_each_cell_is_drawn_as_precisely_as_cascade_says(write, tmp_path, keys):
    """By its own siblings and children, and in a grid by those of each axis: a sampler is told so cell by cell, readers too, and all counts have one deviation."""
    plan, _, trial = try_spec(
        write(**keys), lambda true_counts, sigma: np.full(len(true_counts), round(1e12 / sigma**2))
    )
    scheme, (zones, ages) = plan.scheme, ([np.diff(of) for of in axis.first_child] for axis in plan.scheme.tree.axes)
    levels = [
        scheme.view(number).axis_levels for number in scheme.measured if number <= scheme.tree.depth or scheme.is_grid
    ]
    sink = NoisyCounts(tmp_path, scheme.tree, trial.job.record.release.levels, is_grid=scheme.is_grid)
    for number, (of_zone, of_age) in zip(scheme.measured, levels, strict=False):
        zone, age = precisions_of(zones, of_zone, np.inf if scheme.is_grid else 2), precisions_of(ages, of_age, np.inf)
        wanted = np.kron(zone, age) if scheme.is_grid else np.tile(age, 2) if of_age else zone
        found = trial.job.all_noisy(number)
        assert found / found.max() == pytest.approx(wanted / wanted.max(), rel=1e-6)
        if number <= scheme.tree.depth:
            sink.add(number, [of.ravel() for of in np.indices(scheme.tree.sizes(number))], found)
            sink.close()
            assert pl.read_parquet(noisy_counts_path(tmp_path, number))["variance"].to_numpy() * found == pytest.approx(
                1e12
            )
    deviations = [scheme.released(plan.guarantee.noises).deviations(scheme.view(of)) for of in scheme.measured]
    assert np.ptp(deviations) < 1e-9 * np.max(deviations) or (scheme.names and not scheme.is_grid)


def precisions_of(fan_outs, level, below):
    """Return the precisions of the areas of a level of an axis, given how many children its finest ones have."""
    siblings = np.repeat(fan_outs[level - 1], fan_outs[level - 1]) if level else np.array([np.inf])
    children = fan_outs[level] if level < len(fan_outs) else below
    return 1 - 1 / (siblings + 1) - 1 / (children + 1)


def by_targets(neighbours="add_remove", **targets):
    """Return keys of privacy with targets in place of ε."""
    return {"privacy": {**PRIVACY, "epsilon": None, "neighbours": neighbours, "split": {"targets": targets}}}


TREE = {"mechanism": "unbiased_tree"}
# a feature, whose level a target means before the total
CALLED_TOTAL = {"input": {"table": "people.csv", "features": ["total", "age"]}, "hierarchy": {"total": {"values": 2}, "age": {"ordered": 10}}, "release": {"order": ["total", "age"]}}  # fmt: skip


@pytest.mark.parametrize(("keys", "asked"), [
    (TREE, {"age_1": 6, "age": 9}),
    (TREE, {"total": 5, "age": 15}),
    (TREE | CALLED_TOTAL, {"total": 5, "age": 15}),
    (GRID, {"zone_1": 30, "age": 20, "total": 40}),
    (GRID, {"zone_1_by_age_2": 8, "zone_by_age": 5, "zone": 9}),
])  # fmt: skip
def test_targets_replace_epsilon(write, keys, asked):
    """No count of these tables deviates more than asked, one by exactly as much, as the plan says, and it says what that costs."""
    plan = make_plan(load_spec(write(**keys, **by_targets(**asked))))
    found = dict[str, float]()
    for number, most in plan.deviations.items():
        names = list(filter(None, plan.scheme.view(number).names.values()))
        found["_by_".join(names if plan.scheme.is_grid else names[-1:]) or "total"] = most
    ratios = [found[name] / target for name, target in asked.items()]
    assert max(ratios) == pytest.approx(1, rel=1e-6)
    assert max(ratios) <= 1 + 1e-9
    assert plan.guarantee.epsilon > 0


def moved(by):
    """Return what moves the first noisy counts."""
    return lambda of: of.with_columns(noisy_count=of["noisy_count"] + pl.Series([*by, *[0] * (of.height - len(by))]))


def higher(of):
    """Return a table with higher ends."""
    return of.with_columns(high=pl.col("high") + 1)


def one_more(of):
    """Return a table with higher counts."""
    return higher(of).with_columns(count=pl.col("count") + 1)


LIES = [
    ("unbiased tree", changed("noisy_counts/level_2.parquet", moved([300, -300])), "is not what the noisy counts are settled to"),
    ("unbiased tree", changed("counts/level_3.parquet", higher), "does not have the intervals that follow from the noise"),
    ("unbiased tree", changed("noisy_counts/level_4.parquet", pl.DataFrame.reverse), "must list every cell in the order in which"),
    ("unbiased tree", stated(lambda of: of["levels"][1]["deviations"].update(most=1.01 * of["levels"][1]["deviations"]["most"])), "does not have the deviations that the manifest states"),
    ("unbiased tree", stated(lambda of: of.pop("covariance")), "half_width"),
    ("grid", changed("noisy_counts/view_age.parquet", moved([400])), "is not what the noisy counts are settled to"),
    ("grid", changed("noisy_counts/view_age_1.parquet", pl.DataFrame.reverse), "must list every cell in the order in which"),
    ("grid", changed("views/age.parquet", higher), "does not have the intervals that follow from the noise"),
    ("grid", changed("views/age_1.parquet", one_more), "does not add up the counts of the finest level"),
    ("grid", stated(lambda of: of["views"][0]["deviations"].update(most=1.01 * of["views"][0]["deviations"]["most"])), "does not have the deviations that the manifest states"),
    ("ranges of three", changed("noisy_counts/level_4.parquet", moved([90_000])), "is not what the noisy counts are settled to"),
    ("ranges of three", changed("strategy.parquet", pl.DataFrame.reverse), "is not what the noisy counts are settled to"),
    ("ranges of three", changed("strategy.parquet", lambda of: of.head(9)), "rows must be at least as many as leaves"),
    ("ranges of three", stated(lambda of: of["levels"][4].update(sigma=0.9 * of["levels"][4]["sigma"])), "a variance that does not follow from the manifest's sigma"),
    ("ranges of three", stated(lambda of: of.update(covariance="tree")), "strategy.parquet is no file of this release"),
    ("grid", stated(lambda of: of.update(covariance="tree")), "covariance must be grid where"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "lie", "said"), LIES, ids=[f"{name}: {said}" for name, _, said in LIES])
def test_verify_finds_what_does_not_follow(library, tmp_path, name, lie, said):
    """Noisy counts that give other counts, other intervals, another order, other deviations, other sums, and another rule."""
    folder = library[name].copied(tmp_path)
    lie(folder)
    failures = [failure for failure in verify(folder) if "not the file that was published" not in failure]
    assert any(said in failure for failure in failures), failures


@pytest.mark.thorough
def test_intervals_are_verified_without_noisy_counts(tmp_path, own_home):
    """They follow from the manifest and from the codes that the spec lists."""
    folder = people_released(tmp_path, release={"order": ["zone", "age"], "noisy_counts": False}).folder
    assert verify(folder) == []
    own = folder / "counts" / "level_2.parquet"
    before = own.read_bytes()
    for column in ("low", "high"):
        of = pl.read_parquet(own)
        of.with_columns(pl.col("count").alias(column)).write_parquet(own)
        assert any("does not have the intervals" in failure for failure in verify(folder))
        own.write_bytes(before)


SPLIT = {split: {"privacy": PRIVACY | {"split": split}} for split in ("cascade", "uniform")}
OF_WORK = {work: {"privacy": PRIVACY | {"split": {"workload": work}}} for work in ("areas", "nodes", "ranges")}
TARGET = {"level": "age", "max_error": 9, "confidence": 0.9}
INVARIANT = SUBSTITUTION | {"invariants": ["zone"], "i_accept_unprotected": True}
WALKED = {"mechanism": "inftda"}
MANY = {"zone": {"values": 2000}, "age": {"ordered": 100_000}}
NO_ORDER = {"zone": {"values": 2}, "age": {"values": 9}}
ONE_CODE = {"zone": {"values": 1}, "age": {"ordered": 1}}
MARGINS = {"release": {"order": ["zone", "age"], "views": "margins"}}
CASES_REFUSED = [
    (TREE | {"privacy": PRIVACY | {"split": {"targets": {"age": 5}}}}, "privacy.split.targets replaces epsilon"),
    (TREE | by_targets(age=0), "must be a finite number > 0"),
    (TREE | by_targets(age=0.4), "targets.age must be > 0.41 records"),
    (TREE | by_targets(ages=5), "must be one of the released levels"),
    (TREE | {"priority": "least_squares"}, "priority must be left out"),
    (TREE | MARGINS | by_targets(age=5), "privacy.split.targets must be left out with release.views"),
    (TREE | MARGINS | {"hierarchy": HIERARCHY | {"age": {"ordered": 6000}}}, "at most 5,000 cells together"),
    (TREE | MARGINS | {"hierarchy": {"zone": {"values": 40}, "age": {"ordered": 2000}}}, "solves with it for each of"),
    (TREE | MARGINS | {"mechanism": "gaussian"}, "measures the leaves alone, and every view is a sum of leaves"),
    (TREE | {"release": {"order": ["zone", "age"], "records": True}}, "release.records must be left out"),
    (TREE | {"privacy": PRIVACY | INVARIANT}, "privacy.invariants"),
    (TREE | {"privacy": {**PRIVACY, "epsilon": None, "target": TARGET}}, "privacy.target must be left out"),
    (TREE | {"noise": {"law": "laplace"}}, "noise.law must be gaussian"),
    (SPLIT["uniform"] | {"mechanism": "cascade"}, "unbiased_tree takes any"),
    (SPLIT["cascade"] | WALKED, "privacy.split cascade needs"),
    (OF_WORK["nodes"] | WALKED, "privacy.split.workload needs"),
    (by_targets(age=3) | WALKED, "privacy.split.targets needs"),
    (TREE | {"privacy": PRIVACY | SUBSTITUTION, "hierarchy": ONE_CODE}, "hierarchy must leave something to measure"),
    (TREE | {"hierarchy": MANY}, "must leave at most 100,000,000 leaves with mechanism unbiased_tree"),
    (TREE | {"hierarchy": NO_ORDER} | OF_WORK["ranges"], "needs an ordered axis"),
    (TREE | {"privacy": PRIVACY | {"split": {"workload": ["0..3"]}}}, "only mechanism optimal_ranges takes a list of ranges"),
    ({"mechanism": "optimal_ranges"}, "optimal_ranges needs a single axis, whose codes have an order, or a grid with one to 3 such axes"),
    (GRID | {"mechanism": "optimal_ranges", "hierarchy": {"zone": ["n", "s"], "age": ["0", "1"]}}, "needs a single axis"),
    (GRID | {"mechanism": "optimal_ranges", "hierarchy": {"zone": ["n", "s"], "age": {"ordered": 3000}}}, "at most 2,048 codes: age has 3,000"),
    (GRID | {"mechanism": "optimal_ranges"} | by_targets(age=9), "no closed solution"),
    (GRID | {"mechanism": "optimal_ranges"} | by_axis(age="cascade"), "split.age must be {workload: ranges}, {workload: prefix} or"),
    (GRID | {"hierarchy": HIERARCHY | {"zone": ["n", "e", "s"]}} | by_axis(zone={"workload": "prefix"}), "split.zone.workload prefix needs an ordered axis"),
    (GRID | by_axis(workload={"age": "prefix"}), "must be given by name or list"),
    (TREE | by_axis(age="cascade"), "privacy.split must name axes of release.grid"),
    (GRID | {"mechanism": "optimal_ranges", "privacy": PRIVACY | {"split": {"workload": ["0..3"]}}}, "where several axes have an order"),
    (BY_AGE | {"privacy": PRIVACY | {"accountant": "pld"}}, "the exact law of such a combination"),
    (BY_AGE | {"privacy": PRIVACY | {"split": "cascade"}}, "privacy.split must be {workload: ranges}, {workload: prefix} or"),
    (BY_AGE | {"privacy": PRIVACY | {"split": {"workload": ["3..1"]}}}, "must list ranges FIRST..LAST of codes of age"),
    (BY_AGE | {"privacy": PRIVACY | {"distinct": "age"}}, "privacy.distinct must be left out"),
    (BY_AGE | {"hierarchy": {"age": {"ordered": 3000}}}, "at most 2,048 leaves with mechanism optimal_ranges"),
    (BY_AGE | {"release": {"order": ["age"], "views": {"young": {"age": "age_1"}}}}, "release.views must be left out"),
    (GRID | {"mechanism": "inftda_reconciled"}, "release.grid needs a mechanism that measures every node"),
    (GRID | {"release": {"grid": ["zone"]}}, "release.grid must name every axis of the release once"),
    (GRID | {"release": {"grid": ["zone", "age"], "order": ["zone", "age"]}}, "release.order must be left out"),
    (GRID | {"release": {"grid": ["zone", "age"], "views": "margins"}}, "release.views must be left out"),
    (GRID | by_axis(finest=2), "privacy.split must be a rule for every axis"),
    (GRID | by_targets(age=0.5), "targets.age must be > 0.58 records"),
    (GRID | by_targets(age_by_zone=9), "must be total, one of zone_1, zone, one of age_1, age_2, age_3, age, or ONE_by_OTHER"),
    (GRID | by_targets("substitution", age=9), "must be left out with release.grid unless neighbours is add_remove"),
    (TREE | by_targets("substitution", total=9), "targets.total must be left out where the total is public"),
    (GRID | {"hierarchy": {"zone": {"ordered": 4000}, "age": {"ordered": 4000}}}, "at most 10,000,000 leaves"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "said"), CASES_REFUSED, ids=[said for _, said in CASES_REFUSED])
def test_what_does_not_fit_is_refused(write, tmp_path, keys, said):
    """Each with its field and the rule, before the store is touched."""
    spec = write(**keys)
    with pytest.raises(SpecError) as refused:
        make_plan(load_spec(spec))
    assert said in f"{refused.value} {refused.value.hint}"
    assert not (tmp_path / "home").exists()


def test_the_deviation_of_a_rectangle_follows_from_the_manifest(library, monkeypatch):
    """It is that of dense least squares over all pairs of levels, with the sigmas that the manifest states; `show` states those of counts."""
    found = library["grid"].found
    monkeypatch.setenv("TRELLIS_HOME", str(library["grid"].home))
    shown = [view.deviations["most"] for view in show_answer(found.folder.name).views]
    assert shown == [view.deviations.most for view in found.manifest.views]
    one, two = (
        incidences(tree_by([np.diff(first).tolist() for first in axis.first_child]))
        for axis in tree_of_spec(found.manifest).axes
    )
    information = np.zeros((30, 30))
    for part in found.manifest.parts:
        zone, age = ([None, *names].index(part.axes.get(axis)) for axis, names in found.published.axes.items())
        pairs = np.kron(one[zone], two[age])
        information += pairs.T @ pairs / part.sigma**2
    inside = np.zeros((3, 10))
    inside[1:3, 2:7] = 1
    wanted = inside.ravel() @ np.linalg.inv(information) @ inside.ravel() + 1 / 3
    assert found.query(zone="e..s", age="2..6")["sd"].item() == pytest.approx(wanted**0.5, rel=1e-5)


def test_ranges_that_are_named_are_the_most_exact(write):
    """Each workload is answered best by what is measured for it; the plan says how exact ranges are, and how near to the optimum."""
    splits, named = {"ranges": "ranges", "prefix": "prefix", "named": ["2..4", "7"]}, ((2, 5), (7, 8))
    found = {name: [] for name in splits}
    for split in splits.values():
        privacy = PRIVACY | {"split": {"workload": split}}
        plan = make_plan(load_spec(write(**BY_AGE, privacy=privacy)))
        covariance = plan.scheme.released(plan.guarantee.noises).variances.covariance
        mean, worst, gap = plan.scheme.ranges(plan.guarantee.noises)
        assert -1e-9 < gap < 0.01
        assert 0 < mean < worst
        for name, workload in (("ranges", "ranges"), ("prefix", "prefix"), ("named", named)):
            found[name].append(float((gram(workload, 10) * covariance).sum()))
    for number, of in enumerate(found.values()):
        assert of[number] == min(of) < 0.999 * max(of)


@pytest.mark.parametrize("name", ["unbiased_tree", "optimal_ranges"])
def test_each_axis_of_a_grid_may_have_a_rule(write, name):
    """Rules that are alike are one rule; prefixes of ages are most exact where they are asked for; leaves alone are the identity."""
    stop, found = np.stack([np.full(10, 3), np.arange(1, 11)]), []  # all zones, and ages up to one
    own = {"zone": {"workload": "ranges"}}
    for rules in (own, own | {"age": {"workload": "prefix"}}, {"workload": "ranges"}):
        scheme = (plan := make_plan(load_spec(write(**GRID | {"mechanism": name} | by_axis(**rules))))).scheme
        found.append(
            scheme.released(plan.guarantee.noises).variances.of_boxes(np.zeros((2, 10), dtype=int), stop).mean()
        )
    assert found[1] < found[0] == pytest.approx(found[2])
    if name == "unbiased_tree":
        scheme = make_plan(load_spec(write(**GRID | by_axis(age={"workload": "leaves"})))).scheme
        assert {scheme.view(number).axis_levels[1] for number in scheme.measured} == {4}


@pytest.mark.parametrize("neighbours", [{}, SUBSTITUTION, SUBSTITUTION | {"invariants": []}])
def test_a_comparison_states_ranges_exactly(write, neighbours):
    """Of every unbiased mechanism no mean is below the bound at its ρ; the optimum is near, has the worst of a brute force, and is tried unasked."""
    privacy = PRIVACY | neighbours | {"split": "cascade"}
    file = load_spec(write(**BY_AGE | {"mechanism": "unbiased_tree", "privacy": privacy, "public_data": True}))
    usual = [entry.name for entry in make_comparison(file, [], [1.0], 1).entries]
    assert usual == ["inftda", "inftda_reconciled", "optimal_ranges", "unbiased_tree"]
    comparison = make_comparison(file, [*usual, "gaussian", "binary_tree", "eigen_design"], [1.0], 2)
    answer = answer_of(comparison, 2)
    for entry, result in zip(comparison.entries, answer.results, strict=True):
        assert bool(result.of_ranges) == (not entry.name.startswith("inftda"))
        for workload, of in result.of_ranges.items():
            assert of.at_least < of.mean < of.worst
            assert of.mean**2 == pytest.approx(entry.variances[workload])
    plan, found = comparison.entries[2].plan, answer.results[2].of_ranges
    inside = np.tri(11, 10, -1)[:, None] - np.tri(11, 10, -1)
    covariance = plan.scheme.released(plan.guarantee.noises).variances.covariance
    variances = np.einsum("abi,ij,abj->ab", inside, covariance, inside)
    assert [found[of].worst ** 2 for of in ("ranges", "prefix")] == pytest.approx([variances.max(), variances[0].max()])
    assert found["ranges"].gap < 0.01
    assert found["ranges"].mean < 0.95 * answer.results[3].of_ranges["ranges"].mean  # of a tree, at the same ρ
    assert "optimal_ranges has the least standard deviation of a range" in answer.verdicts[0].text
    assert f"{answer.results[3].of_ranges['ranges'].at_least:,.2f}" in comparison_page(answer)


AGES_BY_ZONE = GRID | {"mechanism": "optimal_ranges", "hierarchy": {"zone": ["n", "s"], "age": {"ordered": 10}}}


@pytest.mark.parametrize(("keys", "added"), [
    (BY_AGE, np.eye(10, dtype=np.int64)),
    (AGES_BY_ZONE | {"privacy": PRIVACY | SUBSTITUTION}, np.ones((10, 10), dtype=np.int64)),  # of no move within a zone
])  # fmt: skip
def test_a_strategy_that_costs_more_than_is_charged_is_not_drawn(write, keys, added):
    """Whatever the ledger is told, the columns that are measured are those that are compared with the charge."""
    plan, table, _ = try_spec(write(**keys))
    release = reserved_release(plan, "one", Path())
    dearer = {axis: Strategy(of.rows + added) for axis, of in strategies_of(release.terms.strategy).items()}
    release = replace(release, terms=replace(release.terms, strategy=text_of(dearer)))
    with pytest.raises(ValueError, match="exceeds the level's share"):
        try_release(table, release, reserved_charges("one", release.parts), plan.mechanism, None)


@pytest.mark.parametrize("keys", [GRID, {"release": SPEC["release"] | {"views": {"ages": {"age": "age"}}}}])
def test_compare_tries_grids_and_views(write, keys):
    """Mechanisms that measure every node are tried with all pairs or with views, others settle with these or go down the tree; exact deviations are shown."""
    names = ["cascade", "unbiased_tree", "inftda_reconciled", *(["optimal_ranges"] if keys == GRID else [])]
    comparison = make_comparison(load_spec(write(**keys | {"public_data": True})), names, [1.0], 2)
    cascade, best, pruned, *_ = comparison.entries
    assert 0 < best.variances["nodes"] < cascade.variances["nodes"]
    assert pruned.variances == {}
    released = best.try_on(comparison.table).released[-1]
    assert abs(int(released.counts.sum()) - 600) < 300
    answer = answer_of(comparison, 2)
    assert [len(of.levels) for of in answer.results] == [len(answer.levels)] * len(names)
    assert answer.results[1].levels[4].rows_covered.max > 0.5  # of ten rows or more, twice
