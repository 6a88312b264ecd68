"""The intervals that `trellis compare` holds against the truth are those that a release publishes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.trials.entries import Entry
from flows.trials.in_memory import Trial
from tasks.laws.samplers import discrete_gaussian
from tasks.laws.thresholded import thresholded_laplace
from tasks.tree.job import tree_of
from tasks.tree.order import Tree
from tasks.validate.coverage import Bounds
from tests.support.cases import Case, case_csv, case_precise
from tests.support.making import MECHANISM, Made, levels_of, make, noise_of_the_cell, quick, sealed_of
from tests.support.passes import replay

SIZES = {"BRANCH_CELLS": 80, "CHUNK_CELLS": 60}  # so that there are some


def table_of(tree: Tree, bounds: Bounds) -> pl.DataFrame:
    """Return the released cells among some bounds as a published level has them."""
    codes: dict[str, Any] = {}
    for axis, reached, areas in zip(tree.axes, tree.axis_levels(bounds.level), bounds.areas, strict=True):
        for own in range(1, reached + 1):
            codes[f"{axis.name}_{axis.level_names[own - 1]}"] = axis.codes[own - 1].gather(
                axis.ancestors(areas, reached, own)
            )
    numbers = {"count": bounds.counts, "low": bounds.low, "high": bounds.high}
    rows = pl.DataFrame(codes | numbers).filter((pl.col("count") != 0) | (bounds.level == 0))
    return rows.sort(list(codes)) if codes else rows


def check_published(made: Made, tried: Trial) -> list[Bounds | None]:
    """Check the published lows and highs of every level, null where none is stated, against those of fixed cells in a trial.

    Returns:
        The intervals of fixed cells, which lie in those of rows.
    """
    plan = make_plan(load_spec(made.home.parent / "spec.yaml"))
    tree, terms = tree_of(made.release), made.release.terms.intervals
    assert terms.rounded != plan.file.spec.keep_noisy_counts
    bounds = Entry(plan.mechanism.name, 4.0, plan).bounds(tree, tried, terms)
    for level, of_level in enumerate(bounds):
        published = made.level(level).drop("signal")
        if of_level:
            fixed, ends = table_of(tree, of_level), ("low", "high")
            assert_frame_equal(fixed.drop(ends), published.drop(ends))
            assert (published["low"] <= fixed["low"]).all()
            assert (fixed["high"] <= published["high"]).all()
        else:
            assert published["low"].is_null().all()
    assert bounds[-1]
    assert len(made.level(tree.depth)) > 1
    return bounds


def test_compared_intervals_lie_in_those_that_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From sealed noisy counts alone, memory comes to intervals within those published, rounded or not, however it was cut."""
    unkept = partial(quick, keep_noisy_counts=False)  # so that intervals are rounded
    with noise_of_the_cell() as sampler:
        kept, rounded = (
            make(tmp_path / name, case(case_csv), sampler, sizes=SIZES, mechanism=MECHANISM)
            for name, case in (("kept", quick), ("rounded", unkept))
        )
    monkeypatch.setenv("TRELLIS_HOME", str(kept.home))
    tried = replay(tree_of(kept.release), kept.release.levels, sealed_of(kept.release), MECHANISMS[MECHANISM])
    bounds = check_published(kept, tried)
    monkeypatch.setenv("TRELLIS_HOME", str(rounded.home))
    wider = check_published(rounded, tried)
    assert bounds[-1].high.sum() < wider[-1].high.sum()


@pytest.mark.parametrize(
    ("mechanism", "case", "sampler"),
    [
        ("gaussian", quick(case_precise), discrete_gaussian),
        ("stability_histogram", case_precise, thresholded_laplace),
    ],
)
def test_so_are_those_of_leaves_and_their_sums(
    mechanism: str, case: Callable[[Path], Case], sampler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is released is what was measured, and says all; sums of a thresholded histogram have none."""
    made = make(tmp_path / "made", case, sampler, mechanism=mechanism)
    monkeypatch.setenv("TRELLIS_HOME", str(made.home))
    bounds = check_published(made, SimpleNamespace(released=levels_of(made.release)))
    assert (bounds[0] is None) == (mechanism == "stability_histogram")
