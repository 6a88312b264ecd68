"""Releases of which every node of a tree, or every pair of levels of a grid, is measured: unbiased counts that add up.

Their deviations are stated, `verify` finds what does not follow, and what does not fit is refused.
"""

import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.answers.audit import audit_answer
from flows.api import PublishedRelease, open_release, plan
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.trials.comparison import make_comparison
from storage.errors import SpecError, UsageError
from tasks.format.published_tree import steps_of, tree_of_spec
from tasks.unbiased.grid import GRID_ROUNDING_VARIANCE
from tasks.unbiased.variance import ROUNDING_VARIANCE
from tasks.verify.folder import verify
from tests.support.ages import EXACT, PRIVACY, SPEC, draw_people, people_released
from tests.support.library import Library
from tests.support.making import no_noise
from tests.support.passes import check_rows, counts_of, try_spec
from tests.support.shapes import incidences, tree_by

MECHANISMS = ["cascade", "wavelet", "hierarchical", "unbiased_tree"]
HIERARCHY = {"zone": {"ordered": ["n", "e", "s"]}, "age": {"ordered": 10}}
GRID: dict[str, Any] = {"hierarchy": HIERARCHY, "release": {"grid": ["zone", "age"]}, "mechanism": "unbiased_tree"}
SUBSTITUTION = {"neighbours": "substitution"}
BOTH = {"intervals": {"simultaneous": True}}
thorough = pytest.mark.thorough
Make = Callable[..., PublishedRelease]


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return what releases the people, each time in a folder of its own, and finds the published folder intact."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    number = iter(range(100))

    def make(**keys: Any) -> PublishedRelease:
        folder = tmp_path / str(next(number))
        folder.mkdir()
        found = people_released(folder, dataset=f"people-{folder.name}", **keys)
        assert verify(found.folder) == []
        return found

    return make


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return what writes the people and a spec; a key of its privacy that is None is taken out."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))

    def written(people: pl.DataFrame | None = None, **keys: Any) -> Path:
        (draw_people() if people is None else people).write_csv(tmp_path / "people.csv")
        spec = SPEC | keys
        spec["privacy"] = {key: value for key, value in spec["privacy"].items() if value is not None}
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
        return tmp_path / "spec.yaml"

    return written


def counts(folder: Path, level: int) -> pl.DataFrame:
    """Return the table of a level."""
    return pl.read_parquet(folder / "counts" / f"level_{level}.parquet")


SHAPES: dict[str, dict[str, Any]] = {
    "zone first": {"release": {"order": ["zone", "age"]}},
    "in turn": {"release": {"order": ["age.age_1", "zone", "age"]}},
    "age first": {"release": {"order": ["age", "zone"]}},
    "grid": GRID,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("neighbours", ["add_remove", "substitution"])
def test_counts_are_true_without_noise_and_add_up_with_it(
    write: Callable[..., Path], shape: str, mechanism: str, neighbours: str
) -> None:
    """Whatever the split and the order, each level and view is charged by itself, sums the leaves, and has the public total."""
    spec = write(**SHAPES[shape] | {"mechanism": mechanism, "privacy": PRIVACY | {"neighbours": neighbours}})
    _, table, trial = try_spec(spec, no_noise)
    true, leaves = table.levels[-1], {cell: n for cell, n in counts_of(trial.released[-1]).items() if n}
    cells = zip(*(areas.tolist() for areas in true.areas), strict=True)
    assert leaves == dict(zip(cells, true.true_counts.tolist(), strict=True))
    of, _, trial = try_spec(spec)
    check_rows(trial)
    parts, is_public = [*of.levels, *of.views], neighbours == "substitution"
    charged = {part.level for part in parts if part.rho}
    assert float(sum(part.rho for part in parts)) == pytest.approx(float(of.guarantee.rho))
    assert {level for level, _ in trial.job.record.seals} == charged | ({0} if is_public else set())
    assert {0} & charged == (set() if is_public or mechanism == "wavelet" else {0})
    if is_public:
        assert trial.released[0].counts.tolist() == [600]
    total = int(trial.released[0].counts[0])
    for view in of.named_views if shape == "grid" else ():
        rows = pl.DataFrame(trial.published.view_table(view, frozenset()))
        assert rows["count"].sum() == total
        assert ((rows["low"] <= rows["count"].clip(0)) & (rows["count"] <= rows["high"])).all()


@pytest.mark.parametrize(("neighbours", "mechanism"), [("add_remove", "cascade"), ("substitution", "cascade")])
def test_levels_state_their_deviations(released: Make, neighbours: str, mechanism: str) -> None:
    """A public total is met and has none; cascade has one deviation for all, zeros and negative counts included."""
    found = released(mechanism=mechanism, privacy=PRIVACY | {"neighbours": neighbours})
    manifest = found.manifest
    totals = {int(counts(found.folder, of.level)["count"].sum()) for of in manifest.levels}
    assert len(totals) == 1
    assert manifest.covariance == "tree"
    assert manifest.waived == ["counts_positive"]
    assert manifest.levels[-1].nonzero <= 20
    deviations = [entry.deviations for entry in manifest.levels]
    if neighbours == "substitution":
        assert totals == {600}
        assert (deviations[0].least, deviations[0].most) == (0, 0)
        assert manifest.unprotected
    else:
        root = manifest.levels[0]
        least, most = min(of.least for of in deviations), max(of.most for of in deviations)
        assert most / least < 1.2  # equal where all fan-outs of a level are
        assert deviations[0].most < math.sqrt(root.sigma**2 + ROUNDING_VARIANCE)
    for entry in manifest.levels:
        assert (entry.sigma > 0) == (entry.level > 0 or neighbours == "add_remove")


@thorough
def test_a_published_table_without_noise_is_the_true_one(released: Make) -> None:
    """Measuring every node without noise gives the table."""
    found = released(mechanism="unbiased_tree", **EXACT, release={"order": ["age.age_1", "zone", "age"]})
    true = draw_people().group_by("zone", "age").len("count").cast({"count": pl.Int64})
    finest = counts(found.folder, len(found.levels) - 1).select("zone", "age", "count")
    assert finest.sort("zone", "age").equals(true.sort("zone", "age"))


def test_the_root_of_the_wavelet_is_not_measured(released: Make) -> None:
    """It is not charged, not sealed, and has no noisy counts; its count is the sum of the leaves, with a deviation of its own."""
    found = released(mechanism="wavelet")
    root, *below = found.manifest.levels
    assert root.summed
    assert (root.rho, root.cells) == (0, 0)
    assert all(entry.rho > 0 and not entry.summed for entry in below)
    assert {seal.level for seal in found.manifest.seals} == {entry.level for entry in below}
    assert not (found.folder / "noisy_counts" / "level_0.parquet").exists()
    assert root.deviations.most > below[0].deviations.most


def test_targets_replace_epsilon(released: Make) -> None:
    """No level's counts deviate more than asked, one by exactly as much, and the release says what that costs."""
    asked = {"age_1": 6.0, "age": 9.0}
    keys = {key: value for key, value in PRIVACY.items() if key != "epsilon"} | {"split": {"targets": asked}}
    found = released(mechanism="unbiased_tree", privacy=keys)
    most = {entry.axes["age"]: entry.deviations.most for entry in found.manifest.levels}
    ratios = [most[name] / target for name, target in asked.items()]
    assert max(ratios) == pytest.approx(1, rel=1e-6)
    assert max(ratios) <= 1 + 1e-9
    assert found.manifest.privacy.epsilon > 0


@pytest.mark.parametrize("split", ["cascade", "wavelet", "uniform", {"finest": 2}, {"workload": "prefix"}, [1] * 6])
def test_any_split_may_be_given(write: Callable[..., Path], split: Any) -> None:
    """Shares of ρ and rules for trees alike."""
    of, _, trial = try_spec(write(mechanism="unbiased_tree", privacy=PRIVACY | {"split": split}))
    check_rows(trial)
    assert float(sum(terms.rho for terms in of.levels)) == pytest.approx(float(of.guarantee.rho))


TWO = PRIVACY | {"max_records_per_unit": 2, "distinct": "age"}
EDGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one code": ({"hierarchy": {"zone": {"values": 1}, "age": {"ordered": 1}}}, {"zone": "0", "age": "0"}),
    "an axis of one area": ({"hierarchy": {"zone": {"values": ["n", "s"]}, "age": {"ordered": 1}}}, {"age": "0"}),
    "not a power of three": (
        {"hierarchy": {"zone": {"values": ["n", "s"]}, "age": {"ordered": 11, "branching": 3}}},
        {},
    ),
    "nobody": ({}, {}),
    "two distinct records": ({"privacy": TWO}, {}),
    "both intervals": ({"release": SPEC["release"] | BOTH}, {}),
    "a grid with one code on one axis": (
        GRID | {"hierarchy": {"zone": {"ordered": ["n", "s"]}, "age": {"ordered": 1}}},
        {"age": "0"},
    ),
    "a grid with one code on both": (
        GRID | {"hierarchy": {"zone": {"ordered": ["n"]}, "age": {"ordered": 1}}},
        {"zone": "n", "age": "0"},
    ),
    "a grid with no powers": (
        GRID | {"hierarchy": {"zone": {"ordered": ["n", "s"]}, "age": {"ordered": 11, "branching": 3}}},
        {},
    ),
    "a grid of nobody": (GRID, {}),
}
WHOLE = ["one code", "both intervals"]


def people_of(edge: str) -> pl.DataFrame:
    """Return the people of an edge."""
    people = draw_people().with_columns(**{name: pl.lit(code) for name, code in EDGES[edge][1].items()})
    return people.head(0) if "nobody" in edge else people


@pytest.mark.parametrize("edge", [pytest.param(edge, marks=[] if edge in WHOLE else [thorough]) for edge in EDGES])
def test_edges_are_released(released: Make, edge: str) -> None:
    """No record at all, trees of one leaf, levels of only children, and fan-outs that differ are released and verified."""
    mechanism = MECHANISMS[list(EDGES).index(edge) % 4]
    found = released(people=people_of(edge), **EDGES[edge][0] | {"mechanism": mechanism})
    expected = 0 if "nobody" in edge else 600
    assert abs(found.query().row(0, named=True)["count"] - expected) < 200


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_edges_add_up(write: Callable[..., Path], edge: str, mechanism: str) -> None:
    """They are sums of whole counts with every mechanism; intervals that hold at once are the wider ones."""
    spec = write(people_of(edge), **EDGES[edge][0] | {"mechanism": mechanism})
    of, _, trial = try_spec(spec)
    check_rows(trial, is_nested=True)
    assert abs(int(trial.released[0].counts.sum()) - (0 if "nobody" in edge else 600)) < 200
    if edge == "two distinct records" and mechanism == "unbiased_tree":
        moved = [terms.l2_sensitivity_squared for terms in of.levels]
        assert (moved[0], moved[-1]) == (4, 2)  # the root by 2, distinct leaves by √2


def rewritten(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change a published table."""
    schema = pl.read_parquet_schema(path)
    change(pl.read_parquet(path)).cast(schema).write_parquet(path)


def stated(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Return what changes a manifest."""

    def of_folder(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return of_folder


def table(name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    """Return what changes a table."""
    return lambda folder: rewritten(folder / name, change)


def moved(by: list[int]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return what moves the first noisy counts."""
    return lambda of: of.with_columns(noisy_count=of["noisy_count"] + pl.Series([*by, *[0] * (of.height - len(by))]))


def higher(of: pl.DataFrame) -> pl.DataFrame:
    """Return a table with higher ends."""
    return of.with_columns(high=pl.col("high") + 1)


def one_more(of: pl.DataFrame) -> pl.DataFrame:
    """Return a table with higher counts."""
    return higher(of).with_columns(count=pl.col("count") + 1)


LIES: list[tuple[str, Callable[[Path], None], str]] = [
    ("unbiased tree", table("noisy_counts/level_2.parquet", moved([300, -300])), "is not what the noisy counts are settled to"),
    ("unbiased tree", table("counts/level_3.parquet", higher), "does not have the intervals that follow from the noise of the levels"),
    ("unbiased tree", table("noisy_counts/level_4.parquet", pl.DataFrame.reverse), "must list every cell in the order of the tree"),
    ("unbiased tree", stated(lambda of: of["levels"][1]["deviations"].update(most=1.01 * of["levels"][1]["deviations"]["most"])), "does not have the deviations that the manifest states"),
    ("unbiased tree", stated(lambda of: of.pop("covariance")), "half_width"),
    ("grid", table("noisy_counts/view_age.parquet", moved([400])), "is not what the noisy counts are settled to"),
    ("grid", table("noisy_counts/view_age_1.parquet", pl.DataFrame.reverse), "must list every cell in the order of its areas"),
    ("grid", table("views/age.parquet", higher), "does not have the intervals that follow from the noise of all pairs of levels"),
    ("grid", table("views/age_1.parquet", one_more), "does not add up the counts of the finest level"),
    ("grid", stated(lambda of: of["views"][0]["deviations"].update(most=1.01 * of["views"][0]["deviations"]["most"])), "does not have the deviations that the manifest states"),
    ("grid", stated(lambda of: of.update(covariance="tree")), "covariance must be grid where"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "lie", "said"), LIES, ids=[f"{name}: {said}" for name, _, said in LIES])
def test_verify_finds_what_does_not_follow(
    library: Library, tmp_path: Path, name: str, lie: Callable[[Path], None], said: str
) -> None:
    """Noisy counts that give other counts, other intervals, another order, other deviations, other sums, and another rule."""
    folder = library[name].copied(tmp_path)
    lie(folder)
    failures = [failure for failure in verify(folder) if "not the file that was published" not in failure]
    assert any(said in failure for failure in failures), failures


@pytest.mark.thorough
def test_intervals_are_verified_without_noisy_counts(released: Make) -> None:
    """They follow from the manifest and from the codes that the spec lists."""
    folder = released(release={"order": ["zone", "age"], "noisy_counts": False}).folder
    own = folder / "counts" / "level_2.parquet"
    before = own.read_bytes()
    for column in ("low", "high"):
        rewritten(own, lambda of, column=column: of.with_columns(pl.col("count").alias(column)))
        assert any("does not have the intervals" in failure for failure in verify(folder))
        own.write_bytes(before)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"privacy": PRIVACY | {"split": {"targets": {"age": 5}}}}, "privacy.split.targets replaces epsilon"),
    ({"privacy": {**PRIVACY, "epsilon": None, "split": {"targets": {"age": 0}}}}, "must be a finite number > 0"),
    (
        {"privacy": {**PRIVACY, "epsilon": None, "split": {"targets": {"age": 0.4}}}},
        "targets.age must be > 0.41 records",
    ),
    (
        {"privacy": {**PRIVACY, "epsilon": None, "split": {"targets": {"ages": 5}}}},
        "must be one of the released levels",
    ),
    ({"privacy": PRIVACY | {"split": {"workload": "areas"}}}, "must be"),
    ({"priority": "least_squares"}, "priority must be left out"),
    ({"release": {"order": ["zone", "age"], "views": "margins"}}, "release.views must be left out"),
    ({"release": {"order": ["zone", "age"], "records": True}}, "release.records must be left out"),
    (
        {"privacy": PRIVACY | SUBSTITUTION | {"invariants": ["zone"], "i_accept_unprotected": True}},
        "privacy.invariants",
    ),
    (
        {"privacy": {**PRIVACY, "epsilon": None, "target": {"level": "age", "max_error": 9, "confidence": 0.9}}},
        "privacy.target must be left out",
    ),
    ({"noise": {"law": "laplace"}}, "noise.law must be gaussian"),
    ({"mechanism": "cascade", "privacy": PRIVACY | {"split": "uniform"}}, "unbiased_tree takes any"),
    ({"mechanism": "inftda", "privacy": PRIVACY | {"split": "cascade"}}, "privacy.split cascade needs"),
    ({"mechanism": "inftda", "privacy": PRIVACY | {"split": {"workload": "nodes"}}}, "privacy.split.workload needs"),
    (
        {"mechanism": "inftda", "privacy": {**PRIVACY, "epsilon": None, "split": {"targets": {"age": 3}}}},
        "privacy.split.targets needs",
    ),
    (
        {"privacy": PRIVACY | SUBSTITUTION, "hierarchy": {"zone": {"values": 1}, "age": {"ordered": 1}}},
        "hierarchy must leave something to measure",
    ),
    (
        {"hierarchy": {"zone": {"values": 2000}, "age": {"ordered": 100_000}}},
        "must leave at most 100,000,000 leaves with mechanism unbiased_tree",
    ),
    (
        {
            "hierarchy": {"zone": {"values": 2}, "age": {"values": 9}},
            "privacy": PRIVACY | {"split": {"workload": "ranges"}},
        },
        "needs an ordered axis",
    ),
]

REFUSED_GRIDS: list[tuple[dict[str, Any], str]] = [
    ({"mechanism": "inftda_reconciled"}, "release.grid needs a mechanism that measures every node"),
    ({"release": {"grid": ["zone"]}}, "release.grid must name two features"),
    ({"release": {"grid": ["zone", "zone"]}}, "release.grid must name two features"),
    ({"release": {"grid": ["zone", "ages"]}}, "release.grid must name two features"),
    ({"release": {"grid": ["zone", "age"], "order": ["zone", "age"]}}, "release.order must be left out"),
    ({"release": {"grid": ["zone", "age"], "views": "margins"}}, "release.views must be left out"),
    ({"hierarchy": HIERARCHY | {"zone": {"values": ["n", "s"]}}}, "release.grid must name ordered axes, got zone"),
    ({"privacy": PRIVACY | {"split": {"finest": 2}}}, "privacy.split must be a rule for both axes"),
    (
        {"privacy": {**PRIVACY, "epsilon": None, "split": {"targets": {"age": 9}}}},
        "privacy.split.targets must be left out with release.grid",
    ),
    (
        {"hierarchy": {"zone": {"ordered": 4000}, "age": {"ordered": 4000}}},
        "must leave at most 10,000,000 leaves",
    ),
]

CASES_REFUSED = [
    *(({"mechanism": "unbiased_tree"} | keys, said) for keys, said in REFUSED),
    *((GRID | keys, said) for keys, said in REFUSED_GRIDS),
]


@pytest.mark.parametrize(("keys", "said"), CASES_REFUSED, ids=[said for _, said in CASES_REFUSED])
def test_what_does_not_fit_is_refused(
    write: Callable[..., Path], tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    """Each with its field and the rule, before the store is touched."""
    spec = write(**keys)
    with pytest.raises(SpecError) as refused:
        make_plan(load_spec(spec))
    assert said in f"{refused.value} {refused.value.hint}"
    assert not (tmp_path / "home").exists()


def test_too_many_leaves_name_the_mechanism_that_prunes(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint of the refusal is the default mechanism."""
    write()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as refused:
        plan(SPEC | {"hierarchy": {"zone": {"values": 2000}, "age": {"ordered": 100_000}}})
    assert "inftda_reconciled" in refused.value.hint


def test_unbiased_counts_have_the_stated_variance(write: Callable[..., Path]) -> None:
    """Over the nodes of a large axis, the errors of a level have the variance that its deviations state."""
    people = draw_people(20_000, ages=2000)
    hierarchy = {"zone": ["n", "s"], "age": {"ordered": 2000}}
    of, table, trial = try_spec(write(people, hierarchy=hierarchy, mechanism="hierarchical"))
    true, found = table.levels[-1], trial.released[-1]
    errors = np.zeros((2, 2000), dtype=np.int64)
    np.add.at(errors, tuple(found.areas), found.counts)
    np.subtract.at(errors, tuple(true.areas), true.true_counts)
    published = trial.published
    for level in range(len(of.levels)):
        published.rows(level)
    least, most = published.known_after()[-1].deviations
    assert least * 0.93 < float(np.std(errors)) < most * 1.07  # 4,000 errors: five standard errors


def true_count(zones: range, ages: range) -> int:
    """Return how many people a rectangle has."""
    names = [HIERARCHY["zone"]["ordered"][zone] for zone in zones]
    return draw_people().filter(pl.col("zone").is_in(names), pl.col("age").cast(int).is_in(list(ages))).height


@pytest.mark.parametrize(
    ("mechanism", "neighbours"),
    [("cascade", "substitution"), *(pytest.param(name, "add_remove", marks=thorough) for name in MECHANISMS[1:3])],
)
def test_every_pair_of_levels_is_measured_charged_and_published(
    released: Make, mechanism: str, neighbours: str
) -> None:
    """Levels and views are all pairs, each is charged by itself unless its precision is 0, and all sum the same leaves."""
    found = released(**GRID | {"mechanism": mechanism, "privacy": PRIVACY | {"neighbours": neighbours}})
    assert audit_answer().findings == []
    check_pairs(found)
    manifest = found.manifest
    assert sum(part.rho for part in manifest.parts) == pytest.approx(manifest.privacy.rho)
    charged = {part.level for part in manifest.parts if part.rho}
    assert charged == {seal.level for seal in manifest.seals} - ({0} if neighbours == "substitution" else set())
    if neighbours == "substitution":
        assert counts(found.folder, len(manifest.levels) - 1)["count"].sum() == 600


def check_pairs(found: PublishedRelease) -> None:
    """Check that all pairs of levels are published, each the sums of the same leaves."""
    manifest = found.manifest
    pairs = [(part.axes.get("zone"), part.axes.get("age")) for part in manifest.parts]
    assert set(pairs) == set(product([None, "zone_1", "zone"], [None, "age_1", "age_2", "age_3", "age"]))
    assert manifest.covariance == "grid"
    leaves = counts(found.folder, len(manifest.levels) - 1)
    for view in manifest.views:
        table = pl.read_parquet(found.folder / "views" / f"{view.name}.parquet")
        own = [name for name in table.columns if name in leaves.columns and name not in {"count", "low", "high"}]
        sums = leaves.group_by(own).agg(pl.col("count").sum().alias("sum"))
        both = table.join(sums, on=own, how="left").with_columns(pl.col("sum").fill_null(0))
        assert (both["count"] == both["sum"]).all()
        assert view.intervals.promise == "cells"
    assert {entry.intervals.promise for entry in manifest.levels} == {"cells"}


def test_without_noise_every_rectangle_is_the_truth(released: Make) -> None:
    """All ranges of zones and ages, asked for on both axes at once; one whose ends are reversed is refused."""
    found = released(**GRID | EXACT)
    names = HIERARCHY["zone"]["ordered"]
    for zones, ages in [
        (range(3), range(10)),
        (range(1), range(2, 5)),
        (range(1, 3), range(9, 10)),
        (range(2, 3), range(10)),
    ]:
        asked = {"zone": f"{names[zones[0]]}..{names[zones[-1]]}", "age": f"{ages[0]}..{ages[-1]}"}
        assert found.query(**asked).row(0, named=True)["count"] == true_count(zones, ages)
    with pytest.raises(UsageError, match="is reversed"):
        found.query(zone="s..n")


def check_deviation(found: PublishedRelease) -> None:
    """Check that a rectangle's is that of dense least squares over all pairs, with the sigmas that the manifest states."""
    tree = tree_of_spec(found.manifest)
    one, two = (incidences(tree_by([np.diff(first).tolist() for first in axis.first_child])) for axis in tree.axes)
    names = [(None, *axis.level_names) for axis in tree.axes]
    is_public = not found.manifest.levels[0].rho
    information = np.full((30, 30), 1e3 if is_public else 0.0)  # of a total that is exact, nearly
    for part in found.manifest.parts:
        if part.rho:
            zone, age = (names[axis].index(part.axes.get(name)) for axis, name in enumerate(("zone", "age")))
            pairs = np.kron(one[zone], two[age])
            information += pairs.T @ pairs / part.sigma**2
    inside = np.zeros((3, 10))
    inside[1:3, 2:7] = 1
    wanted = inside.ravel() @ np.linalg.inv(information) @ inside.ravel() + GRID_ROUNDING_VARIANCE
    row = open_release(found.folder).query(zone="e..s", age="2..6").row(0, named=True)
    assert row["sd"] == pytest.approx(wanted**0.5, rel=1e-5)


def test_the_deviation_of_a_rectangle_follows_from_the_manifest(released: Make, library: Library) -> None:
    """Also of a total that is public, and where noisy counts are not published."""
    check_deviation(library["grid"].found)
    check_pairs(library["grid"].found)
    exact_total = {"privacy": PRIVACY | SUBSTITUTION, "release": {"grid": ["zone", "age"], "noisy_counts": False}}
    check_deviation(released(**GRID | exact_total))


def test_intervals_of_all_rectangles_can_hold_at_once(released: Make) -> None:
    """They are wider; the order of the grid says which of the two axes, that take turns, is refined first."""
    found = released(**GRID | {"release": {"grid": ["age", "zone"], **BOTH}})
    assert steps_of(found.manifest) == (1, 0, 1, 0, 1, 1)
    one = found.query(zone="e..s", age="2..6").row(0, named=True)
    both = found.query(zone="e..s", age="2..6", simultaneous=True).row(0, named=True)
    assert both["low"] < one["low"] <= one["high"] < both["high"]


def test_compare_tries_grids(write: Callable[..., Path]) -> None:
    """Mechanisms that measure every node are tried with all pairs, others go down the tree; exact deviations of rectangles are shown."""
    names = ["cascade", "unbiased_tree", "inftda_reconciled"]
    comparison = make_comparison(load_spec(write(**GRID | {"public_data": True})), names, [1.0], 2)
    cascade, best, pruned = comparison.entries
    assert best.variances["ranges"] < cascade.variances["ranges"]
    assert cascade.variances["nodes"] > 0
    assert pruned.variances == {}
    released = best.try_on(comparison.table).released[-1]
    assert abs(int(released.counts.sum()) - 600) < 300
