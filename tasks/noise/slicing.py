"""The thin layer that cuts the vault into slices at home, and the truth that a worker of a cluster reads from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn
from uuid import uuid4

import numpy as np
import polars as pl

from storage.counts.slices import Slice, open_slice, slice_name, write_slice
from storage.counts.vault import count_true_nodes, read_true_rows, vault
from storage.database.connections import Connection
from storage.errors import StoreError, TakenAlready
from storage.machine.home import subfolder
from storage.mailbox.cluster_file import read_cluster_file
from storage.mailbox.keys import release_key
from storage.mailbox.places import namespace_of_home
from storage.record import Record
from storage.releases.shards import TRUNK, Branch
from tasks.noise.measure import Truth
from tasks.tree.axis import IntArray
from tasks.tree.branches import top_branch
from tasks.tree.frontier import Frontier, locate
from tasks.tree.job import Job, stored_job
from tasks.tree.true_tree import TrueFamilies
from tasks.work.capacity import memory_of
from tasks.work.stage import stage

_ROWS = 2**17  # of a true level at a time


@stage("slice vault")
def slice_vault(release_id: str) -> None:
    """Put the slices of a release into the mailbox of its cluster, as far as they are not there. Call it once the trunk is cut.

    It runs at home: it reads the vault.
    """
    cluster = read_cluster_file()
    place, key = namespace_of_home(cluster.place()), release_key(release_id, cluster.mailbox_key())
    job = stored_job(release_id)
    there = set(place.list(f"{release_id}/slices/"))

    def put(name: str, file: Path) -> None:
        try:
            place.put_new(name, file)
        except TakenAlready:  # by this process, whose answer was lost: nobody else has the key and writes slices
            return

    with vault(release_id, memory=memory_of(job.record.release.terms.run) // 4) as con:
        cut_slices(job, con, key, put, there)


def cut_slices(
    job: Job, con: Connection, key: bytes, put: Callable[[str, Path], None], there: set[str] | None = None
) -> None:
    """Cut the vault of a release into a slice for each level of each branch of the trunk, and put each somewhere. Confidential.

    Args:
        job: the release, whose trunk is cut.
        put: keeps a slice under its name; the file is deleted then.
        there: the names of slices that are kept already.
    """
    release, depth = job.record.release, job.record.finest
    branches = [branch for branch in job.record.branches.values() if branch.parent == TRUNK]
    if not branches:
        return
    runs = _runs_at_cut(job, con, branches)
    with TemporaryDirectory(prefix="slices-", dir=subfolder("tmp")) as folder:
        for branch, run in zip(branches, runs, strict=True):
            for level in range(branch.cut_level, depth + 1):
                job.check_going_on()
                name = slice_name(release.id, key, level, branch.name)
                if name not in (there or ()):
                    file = Path(folder) / "slice"
                    write_slice(file, con, level, len(release.terms.axes), run, key, name)
                    put(name, file)
                    file.unlink()
                run = _run_below(con, level, run) if level < depth else run


def _runs_at_cut(job: Job, con: Connection, branches: Sequence[Branch]) -> list[range]:
    """Return, per branch, the positions from its first true node at the level of the cut to its last one.

    Both the true nodes and the frontier are in the order of the tree. So what lies between belongs to no other branch: it is of
    this one, or was not left of the frontier.
    """
    level, tree = branches[0].cut_level, job.tree
    frontier = job.nodes(job.record.shards["counts"][level, TRUNK])
    ends = np.array([branch.end_node for branch in branches])
    first, end = np.full(len(branches), np.iinfo(np.int64).max), np.zeros(len(branches), dtype=np.int64)
    for position, chunk in _true_nodes(con, level, len(tree.axes)):
        rows = locate(chunk.areas, frontier.areas, tree.sizes(level))
        kept = np.flatnonzero(rows >= 0)
        of = np.searchsorted(ends, rows[kept], side="right")
        np.minimum.at(first, of, position + kept)
        np.maximum.at(end, of, position + kept + 1)
    return [range(int(begin), int(stop)) if stop else range(0) for begin, stop in zip(first, end, strict=True)]


def _true_nodes(con: Connection, level: int, axes: int) -> Iterator[tuple[int, Frontier]]:
    """Yield the true nodes of a level, a few at a time, each with the position of the first of them. Confidential."""
    nodes = count_true_nodes(con, level)
    for first in range(0, nodes, _ROWS):
        rows = read_true_rows(con, level, range(axes), first, min(first + _ROWS, nodes))
        areas = tuple(rows[f"area_{axis}"] for axis in range(axes))
        yield first, Frontier(level, areas, rows["true_count"])


def _run_below(con: Connection, level: int, run: range) -> range:
    """Return the positions of the children of consecutive true nodes, which are consecutive too."""
    if not run:
        return run
    (first,) = read_true_rows(con, level, (), run.start, run.start + 1)["first_child"]
    last = read_true_rows(con, level, (), run.stop - 1, run.stop)
    return range(int(first), int(last["first_child"][0] + last["children"][0]))


@contextmanager
def sliced_truth(
    record: Record, level: int, branch: str, key: bytes, get: Callable[[str, Path], None], folder: Path
) -> Iterator[Truth]:
    """Yield the truth from which a level of a branch is measured, read from the slices of two levels.

    Args:
        level: of the cells, below the cut of the trunk.
        branch: any branch but the trunk.
        get: copies what the mailbox has under a name to a file.
        folder: where slices are kept as they are in the mailbox; one that is there is not fetched again.
    Raises:
        StoreError: a slice is not in the mailbox or was altered; reading the truth raises it too.
    """
    of = top_branch(branch)
    names = [slice_name(record.release.id, key, above, of) for above in (level - 1, level)]
    files = [folder / name.replace("/", "_") for name in names]
    try:
        with ExitStack() as stack:
            slices = []
            for name, file in zip(names, files, strict=True):
                _fetch(get, name, file)
                slices.append(stack.enter_context(open_slice(file, key, name)))
            yield _Slices(level, *slices)
    except StoreError:
        for file in files:  # one that was altered is not kept: what home puts there next is
            file.unlink(missing_ok=True)
        raise


def _fetch(get: Callable[[str, Path], None], name: str, file: Path) -> None:
    """Copy a slice to a file unless it is there; other threads may do the same meanwhile."""
    if not file.exists():
        partial = file.with_name(f"{uuid4().hex}.partial")
        try:
            get(name, partial)
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Slices:
    """The truth of a level of a branch, in two open slices: that of the level above, and that of its own cells."""

    level: int
    parents: Slice
    cells: Slice

    def families(self, level: int, refined: int, lowest: Sequence[int], highest: Sequence[int]) -> TrueFamilies:
        if level != self.level - 1:
            raise StoreError(f"The slices of level {self.level} hold no families of level {level}.")
        areas, first_child, children = self.parents.nodes(lowest, highest)
        first, end = (int(first_child.min()), int((first_child + children).max())) if len(children) else (0, 0)
        return TrueFamilies(tuple(areas), first_child - first, children, *self.cells.counts(refined, first, end))

    @property
    def before(self) -> Sequence[Truth]:
        return ()

    def root(self) -> IntArray:
        return self._refuse()

    def leaves(self, level: int, axes: int, most: int) -> Iterator[tuple[Sequence[IntArray], IntArray]]:  # noqa: ARG002
        self._refuse()

    def codes(self) -> Mapping[int, pl.DataFrame]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StoreError("What is not cut into branches is measured at home.")
