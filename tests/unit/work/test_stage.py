"""Stages as Prefect sees them, of which it keeps neither a result nor a key nor a word, and work that is shared out among threads."""

import pkgutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Barrier, Lock

import pytest
from prefect.cache_policies import NO_CACHE

import tasks
from flows.cluster.processes import Processes
from storage.errors import Interrupted
from storage.machine.locks import ask_to_stop, held
from tasks.steps import STAGES
from tasks.work.capacity import side_by_side
from tasks.work.stage import Stage, running_remotely, stage

ROOMS = {"ingest", "tree", "slicing", "steps", "validate", "publish"}


def stages():
    """Yield the Prefect task of each stage that a module of `tasks` holds, with the name of the module."""
    for found in pkgutil.walk_packages(tasks.__path__, "tasks."):
        for value in vars(import_module(found.name)).values():
            if isinstance(value, Stage):
                yield found.name, value.task
    for of_kind in STAGES.values():
        yield "tasks.steps", of_kind.task


def test_no_stage_has_its_result_kept():
    """Each stage of each room refuses results, caching and printed lines, whatever the settings of Prefect say."""
    assert {module.removesuffix(".task").rpartition(".")[2] for module, _ in stages()} == ROOMS
    for module, task in stages():
        kept = task.persist_result, task.log_prints, task.cache_policy, task.cache_key_fn, task.result_storage
        assert (module, task.name, kept) == (module, task.name, (False, False, NO_CACHE, None, None))


def test_what_runs_here_while_others_run_elsewhere_takes_each_core_once(tmp_path, monkeypatch):
    """More stages are submitted than there are cores where orders are in hand elsewhere; of those that stay, one runs on each core."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))
    monkeypatch.setattr("tasks.work.stage.cores", lambda: 2)
    lock, running, most = threading.Lock(), 0, 0
    both = threading.Barrier(2)

    def count(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(20)
        time.sleep(0.2)  # in which all others would begin
        with lock:
            running -= 1

    counted = stage("count")(count)
    elsewhere = Processes.__new__(Processes)  # which takes orders alone
    with running_remotely(elsewhere), ThreadPoolExecutor(6) as threads:
        for future in [threads.submit(counted.fn, "somebody") for _ in range(6)]:
            future.result()
    assert most == 2


def test_a_stop_is_heard_by_what_waits_for_a_core(tmp_path, monkeypatch):
    """What was submitted before a release was asked to stop, and waits for a core here, does not begin."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))
    monkeypatch.setattr("tasks.work.stage.cores", lambda: 1)
    begun, go_on, done = threading.Event(), threading.Event(), list[str]()

    def work(release_id):
        begun.set()
        assert go_on.wait(20)
        done.append(release_id)

    worked = stage("work")(work)
    with held("made"), running_remotely(Processes.__new__(Processes)), ThreadPoolExecutor(2) as threads:
        first = threads.submit(worked.fn, "made")
        assert begun.wait(20)
        second = threads.submit(worked.fn, "made")
        ask_to_stop("made")
        go_on.set()
        first.result()
        with pytest.raises(Interrupted):
            second.result()
    assert done == ["made"]


@pytest.mark.parametrize(("threads", "waiting"), [(1, 0), (3, 1)])
def test_few_items_are_begun_before_results_are_taken(threads, waiting):
    """Results come in the order of items; as many are begun beyond those taken as there are threads, and a result that waits."""
    # What an item raises reaches who takes the results.
    begun, most, lock = 0, 0, Lock()

    def work(item):
        nonlocal begun
        with lock:
            begun += 1
        return -item

    taken = list[int]()
    for result in side_by_side(work, range(20), threads, waiting):
        with lock:
            most = max(most, begun - len(taken))
        taken.append(result)
    assert taken == [-item for item in range(20)]
    assert most <= threads + waiting + 1  # the one that was just taken
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda item: 1 // (2 - item), range(20), threads, waiting))


def test_threads_work_at_the_same_time():
    """Two items that wait for each other are both begun."""
    both = Barrier(2, timeout=10)
    assert sorted(side_by_side(lambda _: both.wait(), range(2), 2)) == [0, 1]
