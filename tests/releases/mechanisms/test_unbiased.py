"""Releases of which every node is measured: unbiased counts that add up, their deviations, what `verify` finds, and what is refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.api import PublishedRelease, plan
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.errors import SpecError
from tasks.unbiased.variance import ROUNDING_VARIANCE
from tasks.verify.folder import verify
from tests.support.ages import EXACT, PRIVACY, SPEC, draw_people, people_released

MECHANISMS = ["cascade", "wavelet", "hierarchical", "unbiased_tree"]

SUBSTITUTION = {"neighbours": "substitution"}


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PublishedRelease]:
    """Return what releases the people, each time in a folder of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    number = iter(range(100))

    def make(**keys: Any) -> PublishedRelease:
        folder = tmp_path / str(next(number))
        folder.mkdir()
        return people_released(folder, dataset=f"people-{folder.name}", **keys)

    return make


def counts(folder: Path, level: int) -> pl.DataFrame:
    """Return the table of a level."""
    return pl.read_parquet(folder / "counts" / f"level_{level}.parquet")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("order", [["zone", "age"], ["age.age_1", "zone", "age"], ["age", "zone"]])
def test_without_noise_the_counts_are_the_true_ones(
    released: Callable[..., PublishedRelease], mechanism: str, order: list[str]
) -> None:
    """Whatever the split and the order, measuring every node without noise gives the table, and the folder is intact."""
    found = released(mechanism=mechanism, **EXACT, release={"order": order})
    assert verify(found.folder) == []
    true = draw_people().group_by("zone", "age").len("count").cast({"count": pl.Int64})
    finest = counts(found.folder, len(found.levels) - 1).select("zone", "age", "count")
    assert finest.sort("zone", "age").equals(true.sort("zone", "age"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("neighbours", ["add_remove", "substitution"])
def test_levels_add_up_and_state_their_deviations(
    released: Callable[..., PublishedRelease], mechanism: str, neighbours: str
) -> None:
    """Every level sums the next one, zeros and negative counts included; a public total is met; cascade has one deviation for all."""
    found = released(mechanism=mechanism, privacy=PRIVACY | {"neighbours": neighbours})
    assert verify(found.folder) == []
    manifest, totals = (
        found.manifest,
        {int(counts(found.folder, of.level)["count"].sum()) for of in found.manifest.levels},
    )
    assert len(totals) == 1
    assert manifest.covariance == "tree"
    assert manifest.waived == ["counts_positive"]
    assert manifest.levels[-1].nonzero <= 20
    deviations = [entry.deviations for entry in manifest.levels]
    if neighbours == "substitution":
        assert totals == {600}
        assert (deviations[0].least, deviations[0].most) == (0, 0)
        assert manifest.unprotected
    if mechanism == "cascade" and neighbours == "add_remove":
        root = manifest.levels[0]
        least, most = min(of.least for of in deviations), max(of.most for of in deviations)
        assert most / least < 1.2  # equal where all fan-outs of a level are
        assert deviations[0].most < math.sqrt(root.sigma**2 + ROUNDING_VARIANCE)
    for entry in manifest.levels:
        assert (entry.sigma > 0) == (entry.level > 0 or neighbours == "add_remove")


def test_the_root_of_the_wavelet_is_not_measured(released: Callable[..., PublishedRelease]) -> None:
    """It is not charged, not sealed, and has no noisy counts; its count is the sum of the leaves, with a deviation of its own."""
    found = released(mechanism="wavelet")
    root, *below = found.manifest.levels
    assert root.summed
    assert (root.rho, root.cells) == (0, 0)
    assert all(entry.rho > 0 and not entry.summed for entry in below)
    assert {seal.level for seal in found.manifest.seals} == {entry.level for entry in below}
    assert not (found.folder / "noisy_counts" / "level_0.parquet").exists()
    assert root.deviations.most > below[0].deviations.most


def test_targets_replace_epsilon(released: Callable[..., PublishedRelease]) -> None:
    """No level's counts deviate more than asked, one by exactly as much, and the release says what that costs."""
    asked = {"age_1": 6.0, "age": 9.0}
    keys = {key: value for key, value in PRIVACY.items() if key != "epsilon"} | {"split": {"targets": asked}}
    found = released(mechanism="unbiased_tree", privacy=keys)
    assert verify(found.folder) == []
    most = {entry.axes["age"]: entry.deviations.most for entry in found.manifest.levels}
    ratios = [most[name] / target for name, target in asked.items()]
    assert max(ratios) == pytest.approx(1, rel=1e-6)
    assert max(ratios) <= 1 + 1e-9
    assert found.manifest.privacy.epsilon > 0


@pytest.mark.parametrize("split", ["cascade", "wavelet", "uniform", {"finest": 2}, {"workload": "prefix"}, [1] * 6])
def test_any_split_may_be_given(released: Callable[..., PublishedRelease], split: Any) -> None:
    """Shares of ρ and rules for trees alike."""
    found = released(mechanism="unbiased_tree", privacy=PRIVACY | {"split": split})
    assert verify(found.folder) == []
    assert sum(entry.rho for entry in found.manifest.levels) == pytest.approx(found.manifest.privacy.rho)


EDGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one code": ({"zone": {"values": 1}, "age": {"ordered": 1}}, {"zone": "0", "age": "0"}),
    "an axis of one area": ({"zone": {"values": ["n", "s"]}, "age": {"ordered": 1}}, {"age": "0"}),
    "not a power of three": ({"zone": {"values": ["n", "s"]}, "age": {"ordered": 11, "branching": 3}}, {}),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_small_trees_are_released(released: Callable[..., PublishedRelease], edge: str, mechanism: str) -> None:
    """A tree of one leaf, levels of only children, and fan-outs that differ are released and verified."""
    hierarchy, codes = EDGES[edge]
    people = draw_people().with_columns(**{name: pl.lit(code) for name, code in codes.items()})
    found = released(people=people, hierarchy=hierarchy, mechanism=mechanism)
    assert verify(found.folder) == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_empty_table_is_released(released: Callable[..., PublishedRelease], mechanism: str) -> None:
    """No record at all: counts are noise around 0."""
    found = released(people=draw_people().head(0), mechanism=mechanism)
    assert verify(found.folder) == []
    assert abs(int(counts(found.folder, 0)["count"].item())) < 200


def test_several_records_per_unit_raise_the_noise(released: Callable[..., PublishedRelease]) -> None:
    """Two records of a unit in distinct cells move a level by √2 at the leaves, and the root by 2."""
    found = released(privacy=PRIVACY | {"max_records_per_unit": 2, "distinct": "age"})
    assert verify(found.folder) == []
    moved = [entry.l2_sensitivity**2 for entry in found.manifest.levels]
    assert moved[0] == pytest.approx(4)
    assert moved[-1] == pytest.approx(2)


def test_simultaneous_intervals_hold_those_of_rows(released: Callable[..., PublishedRelease]) -> None:
    """They are wider, follow from the deviations, and `verify` knows them."""
    found = released(release={"order": ["zone", "age"], "intervals": {"simultaneous": True}})
    assert verify(found.folder) == []
    table = counts(found.folder, 3)
    assert ((table["simultaneous_low"] <= table["low"]) & (table["high"] <= table["simultaneous_high"])).all()


def rewritten(path: Path, table: pl.DataFrame) -> None:
    """Write a table in place of a published one."""
    schema = pl.read_parquet_schema(path)
    table.cast(schema).write_parquet(path)


@pytest.mark.parametrize(
    ("level", "name", "said"),
    [
        (2, "noisy_counts", "is not what the noisy counts are settled to"),
        (3, "intervals", "does not have the intervals that follow from the noise of the levels"),
        (4, "order", "must list every cell in the order of the tree"),
        (1, "deviations", "does not have the deviations that the manifest states"),
        (1, "covariance", "half_width"),
    ],
)
def test_verify_finds_what_does_not_follow(
    released: Callable[..., PublishedRelease], level: int, name: str, said: str
) -> None:
    """Noisy counts that give other counts, other intervals, another order, other deviations, and a manifest without the rule."""
    folder = released().folder
    noisy, own = folder / "noisy_counts" / f"level_{level}.parquet", folder / "counts" / f"level_{level}.parquet"
    if name == "noisy_counts":
        table = pl.read_parquet(noisy)
        moved = pl.Series([300, -300, *[0] * (table.height - 2)])
        rewritten(noisy, table.with_columns(noisy_count=table["noisy_count"] + moved))
    elif name == "intervals":
        rewritten(own, pl.read_parquet(own).with_columns(high=pl.col("high") + 1))
    elif name == "order":
        rewritten(noisy, pl.read_parquet(noisy).reverse())
    else:
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        if name == "covariance":
            del manifest["covariance"]
        else:
            manifest["levels"][level]["deviations"]["most"] *= 1.01
        path.write_text(json.dumps(manifest))
    failures = [failure for failure in verify(folder) if "not the file that was published" not in failure]
    assert any(said in failure for failure in failures), failures


@pytest.mark.parametrize("column", ["low", "high"])
def test_intervals_are_verified_without_noisy_counts(released: Callable[..., PublishedRelease], column: str) -> None:
    """They follow from the manifest and from the codes that the spec lists."""
    folder = released(release={"order": ["zone", "age"], "noisy_counts": False}).folder
    assert verify(folder) == []
    own = folder / "counts" / "level_2.parquet"
    rewritten(own, pl.read_parquet(own).with_columns(pl.col("count").alias(column)))
    assert any("does not have the intervals" in failure for failure in verify(folder))


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


@pytest.mark.parametrize(("keys", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], said: str
) -> None:
    """Each with its field and the rule, before the store is touched."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    draw_people().write_csv(tmp_path / "people.csv")
    spec = SPEC | {"mechanism": "unbiased_tree"} | keys
    spec["privacy"] = {key: value for key, value in spec["privacy"].items() if value is not None}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    with pytest.raises(SpecError) as refused:
        make_plan(load_spec(tmp_path / "spec.yaml"))
    assert said in f"{refused.value} {refused.value.hint}"
    assert not (tmp_path / "home").exists()


def test_too_many_leaves_name_the_mechanism_that_prunes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint of the refusal is the default mechanism."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    draw_people().write_csv(tmp_path / "people.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as refused:
        plan(SPEC | {"hierarchy": {"zone": {"values": 2000}, "age": {"ordered": 100_000}}})
    assert "inftda_reconciled" in refused.value.hint


def test_unbiased_counts_have_the_stated_variance(released: Callable[..., PublishedRelease]) -> None:
    """Over the nodes of a large axis, the errors of a level have the variance that its deviations state."""
    people = draw_people(20_000, ages=2000)
    found = released(people=people, hierarchy={"zone": ["n", "s"], "age": {"ordered": 2000}}, mechanism="hierarchical")
    true = people.group_by("zone", "age").len("true")
    every = pl.DataFrame({"zone": ["n", "s"]}).join(pl.DataFrame({"age": list(map(str, range(2000)))}), how="cross")
    table = counts(found.folder, len(found.levels) - 1).select("zone", "age", "count")
    both = every.join(true, on=["zone", "age"], how="left").join(table, on=["zone", "age"], how="left").fill_null(0)
    errors = both["count"].cast(int).to_numpy() - both["true"].cast(int).to_numpy()
    stated = found.manifest.levels[-1].deviations
    assert stated.least * 0.93 < float(np.std(errors)) < stated.most * 1.07  # 4,000 errors: five standard errors
