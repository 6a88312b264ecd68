"""Mechanisms in the store: the same as in memory however they are cut or begun again, with every cell measured or survivors' cells."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import flows.planning.compatibility
import tasks.optimize.shrink_statistics
import tasks.tree.branches
from flows.answers.verify import verify_answer
from flows.api import open_release
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from flows.trials.comparison import make_comparison
from flows.trials.entries import Entry
from storage.database.connections import store
from storage.record import load_record
from tasks.laws.law import Sampling
from tasks.mechanisms import MECHANISMS
from tasks.tree.job import tree_of
from tests.support.cases import CASES, case_csv
from tests.support.folders import changed, rewrite
from tests.support.laws import drawn_by
from tests.support.making import CUT, MECHANISM, levels_of, make, no_noise, noise_of_the_cell, quick, sealed_of
from tests.support.passes import replay
from tests.support.spec import spec_in


@pytest.fixture(autouse=True)
def _every_level_has_a_prior(monkeypatch):
    """Let a prior be fitted to a level of any size."""
    monkeypatch.setattr(tasks.optimize.shrink_statistics, "FEWEST", 1)


@contextmanager
def limit(measure):
    """Let no more cells of a level be measured than leads to some cells, and yield the keys that ask for them."""
    with pytest.MonkeyPatch.context() as patch:
        if measure == "above":
            patch.setattr(flows.planning.compatibility, "MOST_MEASURED", 143)  # of the 144 pairs of municipalities
        yield {} if measure is None else {"measure": "all" if measure == "above" else measure}


def listed(levels):
    """Return, per level, the areas and the counts of its nodes, in their order."""
    return [[column.tolist() for column in (*nodes.areas, nodes.counts)] for nodes in levels]


def noise_by_count(true_counts, scale):
    """Add noise that depends on the true count alone, also where the cells of a level have different scales."""
    return true_counts * 7919 % 13 - 6 + true_counts


def kept_by_count(true_counts, scale, threshold):
    """Keep the leaves that reach a threshold with noise that depends on their true count alone."""
    noisy = noise_by_count(true_counts, scale)
    return np.flatnonzero(noisy >= threshold), noisy[noisy >= threshold]


def public(case, mechanism, **keys):
    """Return a case whose table may be seen, with little noise and with other keys."""

    def made(folder):
        of_case = case(folder)
        of_case.keys["privacy"] |= {"epsilon": 40.0}
        of_case.keys["budget"] |= {"epsilon": 40.0}
        if mechanism != "stability_histogram":
            of_case.keys["privacy"]["accountant"] = "zcdp"
        of_case.keys.update(public_data=True, **keys)
        return of_case

    return made


def tried_on(spec, mechanism, sampler, **change):
    """Return the plan of a trial of `compare` with a sampler and a changed mechanism, and what it comes to, uncut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MECHANISMS, mechanism, replace(MECHANISMS[mechanism], **change))
        patch.setitem(MECHANISMS, mechanism, drawn_by(mechanism, {"opendp": Sampling(sampler)}))
        comparison = make_comparison(load_spec(spec), [mechanism], [40.0], 1)
        [entry] = comparison.entries
        return entry.plan, listed(entry.try_on(comparison.table).released)


def sparse(folder):
    """Make the plain case with a tenth of its trips, so that many cells are empty."""
    made = case_csv(folder)
    few = pl.read_csv(folder / "trips.csv", infer_schema=False)
    few.gather_every(10).write_csv(folder / "trips.csv")
    return replace(made, truth=made.truth.gather_every(10))


ROWS, PATHS, DUCKDB = "Parquet without counts, origin tree", "a column per level", "DuckDB, two codebooks"
CSV, SPARSE = "CSV, destination tree", "few trips"
thorough = pytest.mark.thorough


@pytest.mark.parametrize(("mechanism", "measure", "case", "priority"), [
    pytest.param("inftda", None, CSV, "false_positives", marks=thorough),
    ("inftda", None, PATHS, "false_negatives"),
    pytest.param("inftda", None, CSV, "least_squares", marks=thorough),
    pytest.param("tda_l2", None, ROWS, None, marks=thorough),
    pytest.param("tda_linf", None, ROWS, None, marks=thorough),
    pytest.param(MECHANISM, None, PATHS, None, marks=thorough),
    pytest.param(MECHANISM, None, DUCKDB, None, marks=thorough),
    pytest.param(MECHANISM, "all", SPARSE, None, marks=thorough),
    (MECHANISM, "above", SPARSE, None),
    pytest.param("inftda_lenient", None, CSV, None, marks=thorough),
    pytest.param("inftda_lenient", "all", SPARSE, None, marks=thorough),
    pytest.param("inftda_lenient", "above", SPARSE, None, marks=thorough),
    ("inftda_shrunk", "survivors", SPARSE, None),
    pytest.param("inftda_shrunk", "all", DUCKDB, None, marks=thorough),
    pytest.param("gaussian", None, CSV, None, marks=thorough),
    ("stability_histogram", None, CSV, None),
    ("unbiased_tree", None, CSV, None),
    *(pytest.param(name, None, CSV, None, marks=thorough) for name in ("cascade", "wavelet", "hierarchical")),
])  # fmt: skip
def test_the_store_and_memory_agree(mechanism, measure, case, priority, tmp_path, monkeypatch):
    """A release in branches, a trial of `compare`, and what follows from the sealed noisy counts alone come to the same counts."""
    with limit(measure) as keys, noise_of_the_cell() as of_the_cell:
        keys |= {"priority": priority} if priority else {}
        sampler = {"stability_histogram": kept_by_count, "cascade": noise_by_count}.get(mechanism, of_the_cell)
        write = public(sparse if case == SPARSE else CASES[case], mechanism, **keys)
        made = make(tmp_path / "made", write, sampler, sizes=CUT, mechanism=mechanism)
        monkeypatch.setenv("TRELLIS_HOME", str(made.home))
        released = listed(levels_of(made.release))
        plan, tried = tried_on(made.home.parent / "spec.yaml", mechanism, sampler)
        _, exact = tried_on(made.home.parent / "spec.yaml", mechanism, no_noise)
    assert plan.levels == made.release.levels
    assert released == tried
    assert released[-1] != exact[-1]  # so that it is noisy
    recipe = MECHANISMS[mechanism]
    if recipe.cells == "survivors":
        recipe = replace(recipe, measure=measure or recipe.measure)
        sealed = sealed_of(made.release)
        again = replay(tree_of(made.release), made.release.levels, sealed, recipe, priority=priority)
        assert listed(again.released) == released
    if measure and recipe.chooses_cells:
        check_measured(made, measure)
    assert verify_answer(made.folder).failures == []


def check_measured(made, measure):
    """Check that seals and noisy counts hold every cell of the complete levels once, and that manifest and README say which."""
    with store() as con:
        record = load_record(con, made.release.id)
    manifest, depth = open_release(made.folder).manifest, len(made.release.levels) - 1
    assert record.release.terms.measure == manifest.measure == measure
    assert len(record.branches) > 2
    possible, measured = ([getattr(of, name) for of in levels] for name, levels in (
        ("possible_cells", record.release.levels), ("cells", manifest.levels)
    ))  # fmt: skip
    complete = {"all": depth, "above": depth - 1, "survivors": 0}[measure]
    assert measured[: complete + 1] == possible[: complete + 1]
    assert (measured[-1] == possible[-1]) == (measure == "all")
    for entry in manifest.levels[1:]:
        noisy = pl.read_parquet(made.folder / "noisy_counts" / f"level_{entry.level}.parquet")
        areas = [axis for axis, level in entry.axes.items() if level]
        assert noisy.height == noisy.select(areas).unique().height == entry.cells
        assert entry.nonzero == made.level(entry.level).height
        assert (made.level(entry.level)["count"] > 0).all()
    assert [level.nonzero for level in record.released_levels()] == [entry.nonzero for entry in manifest.levels]
    said = " ".join((made.folder / "README.md").read_text().split())
    assert ("Every cell of every level was measured" in said) == (measure == "all")
    assert ("At level 6, only cells below a cell of level 5" in said) == (measure == "above")


def test_cells_that_are_missing_are_found(library, tmp_path):
    """A folder whose noisy counts lack cells that were measured by its own account is not in order."""
    folder, plain = (library[name].copied(tmp_path) for name in ("trips in two passes", "trips"))
    fewer = library["trips in two passes"].copied(tmp_path / "fewer")
    assert '"measure"' not in (folder / "manifest.json").read_text()  # as before there was a choice
    rewrite(folder, lambda manifest: manifest.update(measure="all"))
    told = "must have a row for every cell of the level"
    assert any(told in failure for failure in verify_answer(folder).failures)
    rewrite(plain, lambda manifest: manifest.update(measure="all"))
    assert verify_answer(plain).failures
    changed("noisy_counts/level_3.parquet", lambda table: table.head(3))(fewer)
    assert verify_answer(fewer).failures


def test_a_comparison_tries_all_cells_by_name_or_by_the_spec(tmp_path, own_home):
    """Behind a colon, or as the spec's key, the cells of an entry are those of a release; others say that they have no choice."""
    made = quick(case_csv)(tmp_path)
    made.keys.update({"public_data": True, "measure": "auto", "mechanism": MECHANISM})
    names = [MECHANISM, f"{MECHANISM}:survivors", "inftda_lenient:all", "inftda"]
    comparison = make_comparison(load_spec(spec_in(tmp_path, made.keys)), names, [0.1], 1)
    assert comparison.refused == {}
    records = [entry.try_on(comparison.table).job.record for entry in comparison.entries]
    measured = [[record.cells_of(level)[0] for level in range(7)] for record in records]
    possible = [[level.possible_cells for level in entry.plan.levels] for entry in comparison.entries]
    are_all = [one == other for one, other in zip(measured, possible, strict=True)]
    assert are_all == [True, False, True, False]
    assert any(note.startswith("measure is left out") for note in comparison.notes["inftda"])
    assert not any("measure" in note for note in comparison.notes.get(MECHANISM, []))


IN_PARTS = {"BRANCH_CELLS": 80, "CHUNK_CELLS": 60}  # so that there are some


def table_of(tree, bounds):
    """Return the released cells among some bounds as a published level has them."""
    codes = {}
    for axis, reached, areas in zip(tree.axes, tree.axis_levels(bounds.level), bounds.areas, strict=True):
        for own in range(1, reached + 1):
            above = axis.ancestors(areas, reached, own)
            codes[f"{axis.name}_{axis.level_names[own - 1]}"] = axis.codes[own - 1].gather(above)
    numbers = {"count": bounds.counts, "low": bounds.low, "high": bounds.high}
    rows = pl.DataFrame(codes | numbers).filter((pl.col("count") != 0) | (bounds.level == 0))
    return rows.sort(list(codes)) if codes else rows


def check_published(made, tried):
    """Check the published lows and highs of every level against those of fixed cells in a trial, which lie in them and are returned."""
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


def test_compared_intervals_lie_in_those_that_are_published(tmp_path, monkeypatch):
    """From sealed noisy counts alone, memory comes to intervals within those published, rounded or not, however it was cut."""
    unkept = partial(quick, keep_noisy_counts=False)  # so that intervals are rounded
    with noise_of_the_cell() as sampler:
        cases = {"kept": quick, "rounded": unkept}.items()
        make_in_parts = partial(make, sampler=sampler, sizes=IN_PARTS, mechanism=MECHANISM)
        kept, rounded = (make_in_parts(tmp_path / name, case(case_csv)) for name, case in cases)
    monkeypatch.setenv("TRELLIS_HOME", str(kept.home))
    tried = replay(tree_of(kept.release), kept.release.levels, sealed_of(kept.release), MECHANISMS[MECHANISM])
    bounds = check_published(kept, tried)
    monkeypatch.setenv("TRELLIS_HOME", str(rounded.home))
    wider = check_published(rounded, tried)
    assert bounds[-1].high.sum() < wider[-1].high.sum()
    assert not (rounded.folder / "noisy_counts").exists()
    for entry in open_release(rounded.folder).manifest.levels[1:]:
        ends, step = rounded.level(entry.level).select("low", "high"), ceil(entry.sigma)
        assert {*(ends["low"] % step), *(ends["high"] % step), entry.bound_after % step} == {0}
