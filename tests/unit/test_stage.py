"""Stages as Prefect sees them: tasks of which it keeps neither a result nor a key nor a word."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from prefect import Task
from prefect.cache_policies import NO_CACHE

import tasks
from tasks.stage import Stage

ROOMS = {"groups", "ingest", "tree", "noise", "optimize", "settle", "shrink", "unbiased", "validate", "publish"}


def stages() -> Iterator[tuple[str, Task]]:
    """Yield the Prefect task of each stage that a module of `tasks` holds, with the name of the module."""
    for found in pkgutil.walk_packages(tasks.__path__, "tasks."):
        for value in vars(import_module(found.name)).values():
            if isinstance(value, Stage):
                yield found.name, value.task


def test_no_stage_has_its_result_kept() -> None:
    """Each stage of each room refuses results, caching and printed lines, whatever the settings of Prefect say."""
    assert {module.split(".")[1] for module, _ in stages()} == ROOMS
    for module, stage in stages():
        kept = stage.persist_result, stage.log_prints, stage.cache_policy, stage.cache_key_fn, stage.result_storage
        assert (module, stage.name, kept) == (module, stage.name, (False, False, NO_CACHE, None, None))
