"""What a release may take of the machine: how much memory, on how many cores, and what does not fit."""

import os

import polars as pl
import pytest

import flows.planning.scheme
import tasks.work.capacity
from flows.specification.sections.run import LEAST_MEMORY
from storage.errors import SpecError
from storage.mailbox.cluster_file import CLUSTER
from storage.releases.terms import RunTerms
from tasks.tree.branches import most_cells
from tasks.work.capacity import cores, default_memory, memory_of
from tasks.work.stage import memory_of_branch, running_remotely
from tests.support.certificates import write_cluster_file
from tests.support.keys import features_of, planned_of

AREAS = 900_000  # below one node: 256 MB are for 800,000 cells at most, on one core


@pytest.fixture
def flat(tmp_path, own_home):
    """Return a folder with a codebook of one level, all areas of which lie in the one node above."""
    codes = pl.int_range(AREAS, eager=True).cast(pl.String).str.zfill(6)
    pl.DataFrame({"area": codes}).write_parquet(tmp_path / "codebook.parquet")
    return tmp_path


def planned(folder, **run):
    """Return the plan of a release of these areas with a section `run`."""
    areas = features_of({"area": {"table": "codebook.parquet", "levels": ["area"]}})
    return planned_of(folder, areas, {"privacy.accountant": "zcdp", "run": run})


def test_a_node_with_more_children_than_fit_is_refused_with_advice(flat):
    """The plan says how many children there are and what memory they take; with that much the spec is planned."""
    told = r"run\.max_memory must be at least (.*GB): everything holds 900,000 areas"
    with pytest.raises(SpecError, match=told) as refused:
        planned(flat, max_memory=LEAST_MEMORY)
    assert refused.value.field == "run.max_memory"
    assert "add a level between" in refused.value.hint
    plan = planned(flat, max_memory=str(refused.value).partition("at least ")[2].partition(":")[0])
    assert most_cells(memory_of(plan.terms.run), cores()) >= AREAS


class Workers:
    """A cluster of three workers that is never asked."""

    width, branches = 3, 12

    def __init__(self, memory):
        self.memory = memory

    def takes(self, order):
        """Say that planning asks for nothing to be carried out."""
        raise AssertionError(order)

    def run(self, order):
        """Say the same."""
        raise AssertionError(order)


@pytest.mark.parametrize(("at_home", "at_worker"), [("256MB", "300MB"), ("300MB", "256MB"), ("300MB", "300MB")])
def test_a_plan_for_a_cluster_refuses_what_its_release_could_not_hold(flat, at_home, at_worker, monkeypatch):
    """With dask, home holds one branch at a time however many cores it has, and a worker holds what its file says."""
    monkeypatch.setattr(flows.planning.scheme, "cores", lambda: 64)
    monkeypatch.setenv(CLUSTER, str(write_cluster_file(flat, memory_per_worker=at_worker)))
    with running_remotely(Workers(int(at_worker.removesuffix("MB")) * 10**6)):
        fits = most_cells(memory_of_branch(int(at_home.removesuffix("MB")) * 10**6), 1) >= AREAS
    assert fits == (at_home == at_worker == "300MB")
    if fits:
        planned(flat, workers="dask", max_memory=at_home)
        return
    with pytest.raises(SpecError, match=r"must be at least .*GB: everything holds 900,000 areas") as refused:
        planned(flat, workers="dask", max_memory=at_home)
    assert refused.value.field == ("run.max_memory" if at_home == "256MB" else "memory_per_worker")


def test_a_plan_needs_no_cluster(tmp_path, own_home, monkeypatch):
    """Without a cluster file, and with one that cannot be used, a spec that wants a cluster is planned."""
    monkeypatch.delenv(CLUSTER, raising=False)
    planned_of(tmp_path, features_of({"area": 9}), {"run": {"workers": "dask"}})
    monkeypatch.setenv(CLUSTER, str(tmp_path / "none.yaml"))
    planned_of(tmp_path, features_of({"area": 9}), {"run": {"workers": "dask"}})


def test_a_release_takes_the_cores_it_may_and_a_quarter_of_the_memory(tmp_path, monkeypatch):
    """Without a bound in the spec; a container's limit of memory counts where it is less than the machine's."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(tasks.work.capacity, "_MEMORY_OF_CONTAINER", limit)
    assert default_memory() == memory_of(RunTerms("threads", None)) == there // 4
    limit.write_text("max\n")
    assert default_memory() == there // 4
    limit.write_text("400000000\n")
    assert default_memory() == 100_000_000
    assert memory_of(RunTerms("threads", 7)) == 7
    assert cores() == len(os.sched_getaffinity(0))
