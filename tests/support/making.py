"""Releases of cases through the plain driver, in this process, cut as a test asks, with the noise that it asks for."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import local

import numpy as np
import polars as pl
import pytest
import yaml

import flows.cluster.processes
import tasks.noise.measure
import tasks.noise.task
import tasks.optimize.task
import tasks.released.sources.job
import tasks.tree.branches
from flows.cluster.cluster import on_cluster
from flows.cluster.processes import _begin_worker, in_processes
from flows.planning.plan import make_plan
from flows.run.driver import make_release
from flows.run.reservation import new_release
from flows.run.runner import report_nothing, submit_to
from flows.specification.file import load_spec
from storage.database.connections import store
from storage.releases.register import Release, find_release
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import Sampling
from tasks.mechanisms import MECHANISMS
from tasks.tree.frontier import expand, joined
from tasks.tree.job import stored_job
from tasks.tree.true_tree import true_counts_of
from tests.support.cases import Case
from tests.support.laws import drawn_by

CHUNKED = (tasks.noise.task, tasks.noise.measure, tasks.optimize.task, tasks.released.sources.job)


@dataclass(frozen=True)
class Made:
    """A release that was made, and where; whether it was to be cut into branches."""

    case: Case
    home: Path
    release: Release
    is_cut: bool

    @property
    def folder(self):
        """Where it is published."""
        return Path(self.release.folder)

    def level(self, level):
        """Return a published level."""
        return pl.read_parquet(self.folder / "counts" / f"level_{level}.parquet")

    def counts(self, level):
        """Return a published level without the intervals."""
        return self.level(level).drop("low", "high", "signal")

    def errors(self, level):
        """Return by how many records each node of a level is off, those that are not released included."""
        on = self.case.columns(level)
        if not on:
            return (self.level(level)["count"] - self.case.true_level(level)["count"]).abs()
        there = self.level(level).join(self.case.true_level(level), on=on, how="full", coalesce=True, suffix="_true")
        return (there["count"].fill_null(0) - there["count_true"].fill_null(0)).abs()

    def tables(self):
        """Return the bytes of the published tables."""
        files = [*(self.folder / "counts").iterdir(), self.folder / "counts.csv"]
        return {file.name: file.read_bytes() for file in files}


def no_noise(true_counts, scale, threshold=None):
    """Add nothing, and keep everything."""
    return true_counts.copy() if threshold is None else (np.arange(len(true_counts)), true_counts.copy())


_here = local()  # the noise of the cells whose true counts this thread has just read


def noted(tree, parents, true):
    """Return the true counts of cells, and let the sampler know which cells they are."""
    cells = expand(tree, parents)
    mixed = sum(areas * prime for areas, prime in zip(cells.areas, (7919, 104_729, 1_299_709), strict=False))
    _here.noise = (mixed + 3) % 13 - 6
    return true_counts_of(tree, parents, true)


@dataclass
class NoiseOfTheCell:
    """A sampler whose noise depends on the cell and on nothing else, so that no way to cut the work can change it."""

    calls: int = 0  # how often it has drawn in this process

    def __call__(self, true_counts, scale):  # noqa: ARG002 (a sampler's arguments)
        """Add that noise."""
        self.calls += 1
        return true_counts + _here.noise


def begin_with_noise_of_the_cell(mechanism, named, law, heard):
    """Set up a worker process, which will end with the test, in which a mechanism has this sampler."""
    assert multiprocessing.parent_process()
    _begin_worker(heard)
    tasks.noise.measure.true_counts_of = noted
    MECHANISMS[mechanism] = drawn_by(mechanism, {named: Sampling(NoiseOfTheCell(), GAUSSIAN.samplers[named].tau)}, law)


@contextmanager
def noise_of_the_cell():
    """Yield the sampler, with its cells noted in this process, of releases in the store and in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks.noise.measure, "true_counts_of", noted)
        yield NoiseOfTheCell()


def make(folder, case, sampler, *, workers=2, sizes=None, named="opendp", run=None, mechanism="inftda", law=None):
    """Make a release of a case with a sampler in a folder of its own, by threads, cut into trunk, branches and chunks of sizes.

    Args:
        sizes: those that differ from what users get.
        run: the spec's `run`; with `workers: processes` each stage is run by a worker process, in chunks as users get; with
            `workers: dask` by the cluster that TRELLIS_CLUSTER names, whose noise is its workers' own.
        law: the mechanism's first one if left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = case(folder)
    made.keys.update(mechanism=mechanism, noise={"sampler": named, **({"law": law} if law else {})}, run=run or {})
    for key in MECHANISMS[mechanism].laws[law].refused if law else ():
        made.keys["privacy"].pop(key, None)
    (folder / "spec.yaml").write_text(yaml.safe_dump(made.keys, allow_unicode=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        samplers = {named: Sampling(sampler, GAUSSIAN.samplers[named].tau)}
        patch.setitem(MECHANISMS, mechanism, drawn_by(mechanism, samplers, law))
        for name, size in (sizes or {}).items():
            for module in CHUNKED if name == "CHUNK_CELLS" else (tasks.tree.branches,):
                patch.setattr(module, name, size)
        plan = make_plan(load_spec(folder / "spec.yaml"))
        release = new_release(plan, release_id=f"{folder.parent.name}-{folder.name}")
        by = plan.file.spec.run.workers
        if by == "processes":
            assert isinstance(sampler, NoiseOfTheCell)  # a worker process knows no other
            begin = partial(begin_with_noise_of_the_cell, mechanism, named, law)
            patch.setattr(flows.cluster.processes, "_begin_worker", begin)
        where = {"processes": in_processes, "dask": on_cluster}.get(by, store)  # an open store keeps processes waiting
        with where(), ThreadPoolExecutor(workers) as executor:
            make_release(plan, release, submit_to(executor), report_nothing)
        with store() as con:
            return Made(made, folder / "home", find_release(con, release.id), is_cut=bool(sizes))


MECHANISM = "inftda_reconciled"
CUT = {"BRANCH_CELLS": 2, "CHUNK_CELLS": 3}


def seeded(fudge):
    """Return a sampler with noise of a fudged scale that is the same in every run on one thread."""
    generator = np.random.default_rng(11)

    def sample(true_counts, scale):
        return true_counts + np.rint(generator.normal(0, fudge * scale, len(true_counts))).astype(np.int64)

    return sample


def quick(case, **keys):
    """Return a case with other keys, and an accountant that finds its noise in no time."""

    def made(folder):
        of_case = case(folder)
        of_case.keys["privacy"]["accountant"] = "zcdp"
        of_case.keys.update(keys)
        return of_case

    return made


def levels_of(release):
    """Return the released nodes of levels 0 to T, as the store has them."""
    job = stored_job(release.id)
    return [joined(of.level, job.level(of.level, job.record.released)) for of in release.levels]


def sealed_of(release):
    """Return the sealed noisy counts of levels 0 to T, in the order of the tree."""
    job = stored_job(release.id)
    parts = [[job.noisy(level, name) for name in job.record.branches_of(level)] for level in range(len(release.levels))]
    return [np.concatenate([part for of in of_level for part in of]) for of_level in parts]
