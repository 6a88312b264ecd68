"""Releases of all pairs of levels of two ordered axes: rectangles, their deviations, what `verify` finds, and what is refused."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.answers.audit import audit_answer
from flows.api import PublishedRelease, open_release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.trials.comparison import make_comparison
from storage.errors import SpecError, UsageError
from tasks.format.published_tree import steps_of, tree_of_spec
from tasks.unbiased.grid import GRID_ROUNDING_VARIANCE
from tasks.verify.folder import verify
from tests.support.ages import EXACT, PRIVACY, SPEC, draw_people, people_released
from tests.support.shapes import incidences, tree_by

HIERARCHY = {"zone": {"ordered": ["n", "e", "s"]}, "age": {"ordered": 10}}
GRID: dict[str, Any] = {"hierarchy": HIERARCHY, "release": {"grid": ["zone", "age"]}, "mechanism": "unbiased_tree"}
SUBSTITUTION = {"neighbours": "substitution"}


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PublishedRelease]:
    """Return what releases the people on a grid, each time in a folder of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    number = iter(range(100))

    def make(**keys: Any) -> PublishedRelease:
        folder = tmp_path / str(next(number))
        folder.mkdir()
        return people_released(folder, dataset=f"people-{folder.name}", **GRID | keys)

    return make


def true_count(zones: range, ages: range) -> int:
    """Return how many people a rectangle has."""
    names = [HIERARCHY["zone"]["ordered"][zone] for zone in zones]
    return draw_people().filter(pl.col("zone").is_in(names), pl.col("age").cast(int).is_in(list(ages))).height


@pytest.mark.parametrize("mechanism", ["cascade", "wavelet", "hierarchical", "unbiased_tree"])
@pytest.mark.parametrize("neighbours", ["add_remove", "substitution"])
def test_every_pair_of_levels_is_measured_charged_and_published(
    released: Callable[..., PublishedRelease], mechanism: str, neighbours: str
) -> None:
    """Levels and views are all pairs, each is charged by itself unless its precision is 0, and all sum the same leaves."""
    found = released(mechanism=mechanism, privacy=PRIVACY | {"neighbours": neighbours})
    assert verify(found.folder) == []
    assert audit_answer().findings == []
    manifest = found.manifest
    pairs = [(part.axes.get("zone"), part.axes.get("age")) for part in manifest.parts]
    assert set(pairs) == set(product([None, "zone_1", "zone"], [None, "age_1", "age_2", "age_3", "age"]))
    assert manifest.covariance == "grid"
    assert sum(part.rho for part in manifest.parts) == pytest.approx(manifest.privacy.rho)
    sealed = {seal.level for seal in manifest.seals}
    assert {part.level for part in manifest.parts if part.rho} == sealed - (
        {0} if neighbours == "substitution" else set()
    )
    leaves = pl.read_parquet(found.folder / "counts" / f"level_{len(manifest.levels) - 1}.parquet")
    for view in manifest.views:
        table = pl.read_parquet(found.folder / "views" / f"{view.name}.parquet")
        own = [name for name in table.columns if name in leaves.columns and name not in {"count", "low", "high"}]
        sums = leaves.group_by(own).agg(pl.col("count").sum().alias("sum"))
        both = table.join(sums, on=own, how="left").with_columns(pl.col("sum").fill_null(0))
        assert (both["count"] == both["sum"]).all()
        assert view.intervals.promise == "cells"
    if neighbours == "substitution":
        assert leaves["count"].sum() == 600
    assert {entry.intervals.promise for entry in manifest.levels} == {"cells"}


def test_without_noise_every_rectangle_is_the_truth(released: Callable[..., PublishedRelease]) -> None:
    """All ranges of zones and ages, asked for on both axes at once."""
    found = released(**EXACT)
    for zones, ages in [
        (range(3), range(10)),
        (range(1), range(2, 5)),
        (range(1, 3), range(9, 10)),
        (range(2, 3), range(10)),
    ]:
        names = HIERARCHY["zone"]["ordered"]
        row = found.query(zone=f"{names[zones[0]]}..{names[zones[-1]]}", age=f"{ages[0]}..{ages[-1]}").row(
            0, named=True
        )
        assert row["count"] == true_count(zones, ages)


@pytest.mark.parametrize(
    ("neighbours", "published"), [("add_remove", True), ("add_remove", False), ("substitution", True)]
)
def test_the_deviation_of_a_rectangle_follows_from_the_manifest(
    released: Callable[..., PublishedRelease], neighbours: str, published: bool
) -> None:
    """It is that of dense least squares over all pairs, with the sigmas that the manifest states; noisy counts are not needed."""
    release = {"grid": ["zone", "age"], "noisy_counts": published}
    found = released(privacy=PRIVACY | {"neighbours": neighbours}, release=release)
    assert verify(found.folder) == []
    tree = tree_of_spec(found.manifest)
    one, two = (incidences(tree_by([np.diff(first).tolist() for first in axis.first_child])) for axis in tree.axes)
    names = [(None, *axis.level_names) for axis in tree.axes]
    information = np.full((30, 30), 1e3 if neighbours == "substitution" else 0.0)  # of a total that is exact, nearly
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


def test_intervals_of_all_rectangles_can_hold_at_once(released: Callable[..., PublishedRelease]) -> None:
    """They are wider, and made of the fewest cells of pairs of levels."""
    found = released(release={"grid": ["zone", "age"], "intervals": {"simultaneous": True}})
    assert verify(found.folder) == []
    one = found.query(zone="e..s", age="2..6").row(0, named=True)
    both = found.query(zone="e..s", age="2..6", simultaneous=True).row(0, named=True)
    assert both["low"] < one["low"] <= one["high"] < both["high"]


def rewritten(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change a published table."""
    schema = pl.read_parquet_schema(path)
    change(pl.read_parquet(path)).cast(schema).write_parquet(path)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("noisy_counts/view_age.parquet", "is not what the noisy counts are settled to"),
        ("noisy_counts/view_age_1.parquet", "must list every cell in the order of its areas"),
        ("views/age.parquet", "does not have the intervals that follow from the noise of all pairs of levels"),
        ("views/age_1.parquet", "does not add up the counts of the finest level"),
        ("manifest", "does not have the deviations that the manifest states"),
        ("covariance", "covariance must be grid where"),
    ],
)
def test_verify_finds_what_does_not_follow(released: Callable[..., PublishedRelease], what: str, said: str) -> None:
    """Other noisy counts, another order, other intervals, other counts, other deviations, and another rule."""
    folder = released().folder
    if what == "noisy_counts/view_age.parquet":
        rewritten(
            folder / what,
            lambda table: table.with_columns(noisy_count=table["noisy_count"] + pl.Series([400, *[0] * 9])),
        )
    elif what == "noisy_counts/view_age_1.parquet":
        rewritten(folder / what, pl.DataFrame.reverse)
    elif what == "views/age.parquet":
        rewritten(folder / what, lambda table: table.with_columns(high=pl.col("high") + 1))
    elif what == "views/age_1.parquet":
        rewritten(folder / what, lambda table: table.with_columns(count=pl.col("count") + 1, high=pl.col("high") + 1))
    else:
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        if what == "manifest":
            manifest["views"][0]["deviations"]["most"] *= 1.01
        else:
            manifest["covariance"] = "tree"
        path.write_text(json.dumps(manifest))
    failures = [failure for failure in verify(folder) if "not the file that was published" not in failure]
    assert any(said in failure for failure in failures), failures


EDGES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "one code on one axis": ({"zone": {"ordered": ["n", "s"]}, "age": {"ordered": 1}}, {"age": "0"}),
    "one code on both": ({"zone": {"ordered": ["n"]}, "age": {"ordered": 1}}, {"zone": "n", "age": "0"}),
    "not powers": ({"zone": {"ordered": ["n", "s"]}, "age": {"ordered": 11, "branching": 3}}, {}),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("mechanism", ["cascade", "wavelet", "unbiased_tree"])
def test_small_grids_are_released(released: Callable[..., PublishedRelease], edge: str, mechanism: str) -> None:
    """Axes of one code, and fan-outs that differ."""
    hierarchy, codes = EDGES[edge]
    people = draw_people().with_columns(**{name: pl.lit(code) for name, code in codes.items()})
    found = released(people=people, hierarchy=hierarchy, mechanism=mechanism)
    assert verify(found.folder) == []
    assert abs(found.query().row(0, named=True)["count"] - 600) < 200


def test_an_empty_table_is_released(released: Callable[..., PublishedRelease]) -> None:
    """No record at all: counts are noise around 0."""
    assert verify(released(people=draw_people().head(0)).folder) == []


def test_the_first_axis_is_refined_first(released: Callable[..., PublishedRelease]) -> None:
    """The levels of the two axes take turns, and the order of the grid says which comes first."""
    found = released(release={"grid": ["age", "zone"]})
    assert steps_of(found.manifest) == (1, 0, 1, 0, 1, 1)
    assert verify(found.folder) == []


def test_compare_tries_grids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mechanisms that measure every node are tried with all pairs, others go down the tree; exact deviations of rectangles are shown."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    draw_people().write_csv(tmp_path / "people.csv")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC | GRID | {"public_data": True}))
    comparison = make_comparison(
        load_spec(tmp_path / "spec.yaml"), ["cascade", "unbiased_tree", "inftda_reconciled"], [1.0], 2
    )
    cascade, best, pruned = comparison.entries
    assert best.variances["ranges"] < cascade.variances["ranges"]
    assert cascade.variances["nodes"] > 0
    assert pruned.variances == {}
    released = best.try_on(comparison.table).released[-1]
    assert abs(int(released.counts.sum()) - 600) < 300


REFUSED: list[tuple[dict[str, Any], str]] = [
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


@pytest.mark.parametrize(("keys", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], said: str
) -> None:
    """Each with its field and the rule, before the store is touched."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    draw_people().write_csv(tmp_path / "people.csv")
    spec = SPEC | GRID | keys
    spec["privacy"] = {key: value for key, value in spec["privacy"].items() if value is not None}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    with pytest.raises(SpecError) as refused:
        make_plan(load_spec(tmp_path / "spec.yaml"))
    assert said in f"{refused.value} {refused.value.hint}"
    assert not (tmp_path / "home").exists()


def test_a_range_that_does_not_exist_is_refused(released: Callable[..., PublishedRelease]) -> None:
    """Its ends are reversed."""
    with pytest.raises(UsageError, match="is reversed"):
        released().query(zone="s..n")
