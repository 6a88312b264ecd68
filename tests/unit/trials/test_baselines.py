"""Baselines of comparisons: what they measure, with which shares of ε, and what of them is shown."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.console.comparison_view import show_comparison
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.trials.baselines import BASELINES
from flows.trials.comparison import Comparison, make_comparison, trials_of
from storage.errors import SpecError, UsageError
from tasks.accounting.pure import laplace_map
from tasks.report.comparison_page import comparison_page
from tasks.tree.views import Partition, sums_of_leaves
from tests.support.comparisons import answer_of

ZONES = {"north": ["n1", "n2", "n3"], "south": ["s1", "s2"]}
STOPS = pl.DataFrame([(zone, stop) for zone, stops in ZONES.items() for stop in stops], ["zone", "stop"], orient="row")
END = {"table": "stops.csv", "levels": ["zone", "stop"]}
BY_ZONES, BY_MODE = {"hour": "hour", "from": "zone", "to": "zone"}, {"hour": "hour", "mode": "mode"}
MODES_FIRST = {"by_mode": BY_MODE, "by_zones": BY_ZONES, "by_hour": {"hour": "hour"}}
CROSSING: dict[str, Any] = {"by_zones": BY_ZONES, "by_mode": BY_MODE, "total": {}, "by_hour": {"hour": "hour"}}
NESTED = ["laplace", *(name for name in BASELINES if name.startswith("hay"))]
PRIVACY = {"unit": "one trip", "neighbours": "add_remove", "max_records_per_unit": 1, "epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def compare(
    folder: Path,
    names: list[str],
    views: dict[str, Any] | None,
    epsilons: tuple[float, ...] = (1.0,),
    hours: int = 3,
    **privacy: object,
) -> Comparison:
    """Write a spec and return its comparison."""
    keys: dict[str, Any] = {
        "name": "trips",
        "dataset": "made-up",
        "public_data": True,
        "input": {"table": "trips.csv", "features": ["hour", "from", "to"]},
        "hierarchy": {"hour": {"values": hours}, "from": END, "to": END},
        "release": {"order": ["hour", "from", "to"]},
        "mechanism": "inftda",
        "privacy": PRIVACY | privacy,
        "budget": {"epsilon": 1.0, "delta": 1e-6},
    }
    if views is not None:
        of = ["from.stop", "to.stop"]
        keys["derived"] = {name: {"table": f"{name}s.csv", "of": of} for name in ("mode", "kind")}
        keys |= {"mechanism": "cbdp", "release": keys["release"] | {"views": views}}
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
    return make_comparison(load_spec(folder / "spec.yaml"), names, epsilons, runs=2)


@pytest.fixture(scope="module")
def crossing(folder: Path) -> Comparison:
    """Return a comparison by views that cross."""
    return compare(folder, ["laplace", "hay", "hay:pruned_geometric", "hay:pruned", "cbdp"], CROSSING)


def entry_of(comparison: Comparison, name: str = "hay") -> Any:
    """Return an entry by its name."""
    [entry] = [entry for entry in comparison.entries if entry.name == name]
    return entry


def measured(entry: Any) -> tuple[list[int], list[float]]:
    """Return of everything that a baseline measures how many cells it has, and the ε of its noise, from coarse to fine."""
    sizes = [len(Partition(entry.scheme.tree, entry.scheme.view(number))) for number in entry.scheme.measured]
    cells, epsilons = zip(
        *sorted(zip(sizes, (of.cost.epsilon for of in entry.guarantee.by_map), strict=True)), strict=True
    )
    return list(cells), list(epsilons)


def scales(entry: Any) -> list[float]:
    """Return the scales of the noise."""
    return [level.noise.scale for level in entry.guarantee.by_map]


def test_groupings_refine_one_another(folder: Path, crossing: Comparison) -> None:
    """Everything comes first, then the spec's views, crossing ones as their common refinement, then the leaves; equal shares."""
    # 3 hours, 12 pairs of zones by hour, each with two modes
    assert measured(entry_of(crossing)) == ([1, 3, 12, 24, 75], pytest.approx([0.2] * 5, rel=1e-9))
    assert measured(entry_of(compare(folder, ["hay"], MODES_FIRST)))[0] == [1, 3, 6, 24, 75]
    by_kind = {"by_zones": BY_ZONES, "by_kind": {"hour": "hour", "kind": "kind"}}
    # a pair of zones has one kind, which refines nothing
    assert measured(entry_of(compare(folder, ["hay"], by_kind)))[0] == [1, 12, 75]


def test_without_views_the_levels_of_the_tree_are_the_groupings(folder: Path) -> None:
    """Every level is measured once, from the total to the leaves, whatever the spec's own split is."""
    comparison = compare(folder, ["hay"], None, split=[1, 2, 3, 4, 5, 6])
    assert measured(entry_of(comparison)) == ([1, 3, 6, 15, 30, 75], pytest.approx([1 / 6] * 6, rel=1e-9))
    assert comparison.notes == {"hay": ["privacy.split is left out: its groupings have shares of their own."]}


def test_geometric_shares_add_up_to_epsilon(crossing: Comparison) -> None:
    """Each share of ε is 2^(1/3) times the one before, and all of them are ε exactly; no charge exceeds its share."""
    entry = entry_of(crossing, "hay:pruned_geometric")
    shares = sorted(entry.scheme.allocation.shares)
    assert sum(shares) == Fraction(1)
    assert [float(fine / coarse) for coarse, fine in pairwise(shares)] == pytest.approx([2 ** (1 / 3)] * 4)
    costs = measured(entry)[1]
    assert costs == sorted(costs)
    assert 1 - 1e-6 < sum(costs) <= 1


@pytest.mark.thorough
def test_noise_follows_neighbours_and_records(folder: Path) -> None:
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
def test_levels_are_sums_and_without_noise_the_table(views: dict[str, Any] | None, folder: Path) -> None:
    """With hardly any noise every baseline returns the true counts of every level and view.

    However much there is, leaves of nested groupings are whole and above zero, and every level is their sum.
    """
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


def test_flat_noise_has_its_known_error(crossing: Comparison) -> None:
    """Over 400 trials at ε = 1, empty leaves have the mean of max(0, discrete Laplace noise), within five standard errors."""
    entry, runs = entry_of(crossing, "laplace"), 400
    partition = Partition(crossing.table.tree, crossing.plan.scheme.view(5))
    empty = sums_of_leaves(partition, crossing.true_levels[-1]) == 0
    found = [sums_of_leaves(partition, entry.try_on(crossing.table).released[-1])[empty] for _ in range(runs)]
    draws = np.concatenate(found)
    q = np.exp(-1.0)
    mean, square = q / (1 - q**2), q / (1 - q) ** 2  # E[max(0, X)] and E[max(0, X)²]
    assert len(draws) >= runs
    assert draws.mean() == pytest.approx(mean, abs=5 * np.sqrt((square - mean**2) / len(draws)))


def test_baselines_are_shown_beside_mechanisms(crossing: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    """They have errors per level and view; the table of published rows has the levels and views, by their names, of others only."""
    shown_of = ["laplace", "hay:pruned", "cbdp"]
    answer = answer_of(replace(crossing, entries=tuple(entry_of(crossing, name) for name in shown_of)), 2)
    assert [level.label for level in answer.levels] == [*"012345", *CROSSING]
    assert all(level.intervals is level.rows_covered is level.bound_after is None for level in answer.results[0].levels)
    assert answer.with_intervals == []
    assert [result.mechanism for result in answer.with_any_intervals] == ["cbdp"]
    show_comparison(answer, intervals=True)
    said = capsys.readouterr().out
    errors, _, of_rows = said.partition("what a release would say of its rows")
    assert [line.split()[:2] for line in errors.splitlines() if "laplace" in line and "%" in line] == [
        [label, "laplace"] for label in (*"012345", *CROSSING)
    ]
    of_cbdp = answer.results[2].levels
    assert [line.split()[:3] for line in of_rows.splitlines() if "cbdp" in line] == [
        [compared.label, "cbdp", f"{100 * level.rows_covered.mean:.1f}%"]
        for compared, level in zip(answer.levels, of_cbdp, strict=True)
    ]
    assert "hay" not in of_rows.partition("page:")[0]
    assert "intervals of questions" not in said
    page = comparison_page(answer)
    of_page = page[page.index("<h2>Intervals</h2>") : page.index("<h2>In numbers</h2>")]
    assert "<svg" not in of_page  # a picture shows intervals of questions
    assert f'<tr><th scope="row">by_mode</th><td>{100 * of_cbdp[7].rows_covered.mean:.1f}</td>' in of_page
    assert page.count('<th scope="row">by_mode</th>') == 5 + 1  # measures, and the rows of cbdp
    assert "laplace" not in of_page


def test_no_release_is_made_by_a_baseline(folder: Path) -> None:
    """A spec that names one as its mechanism is refused, and a variant that does not exist is refused by name."""
    with pytest.raises(UsageError, match="no baseline hay:cut, only laplace, hay, hay:pruned"):
        compare(folder, ["hay:cut"], None)
    with pytest.raises(UsageError, match=r"among inftda, .*, laplace, hay"):
        compare(folder, ["magic"], None)
    text = (folder / "spec.yaml").read_text()
    for name in BASELINES:
        (folder / "other.yaml").write_text(text.replace("mechanism: inftda", f"mechanism: '{name}'"))
        with pytest.raises(SpecError, match="mechanism must be one of"):
            make_plan(load_spec(folder / "other.yaml"))
    assert not set(BASELINES) & set(MECHANISMS)


def test_what_a_baseline_cannot_do_is_told(folder: Path) -> None:
    """Out of range of ε, it is left out with its reason, and so it is above ten million leaves."""
    with pytest.raises(UsageError, match="At epsilon 1e-300"):
        compare(folder, ["laplace"], None, (1e-300,))
    comparison = compare(folder, ["inftda", "laplace", "hay"], None, hours=500_000)
    assert [entry.name for entry in comparison.entries] == ["inftda"]
    for name in ("laplace", "hay"):
        assert f"at most 10,000,000 leaves with mechanism {name}" in comparison.refused[name]
