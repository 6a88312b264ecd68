"""Differentially private count tables over public hierarchies, from Python.

>>> import trellis
>>> print(trellis.plan("spec.yaml").statement)
>>> released = trellis.release("spec.yaml")
>>> released.query(origin=["44007", "44009"], destination="all")

The functions live in `flows.api`, which is imported when the first of them is used.
"""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.api import check, compare, ledger, open_release, plan, plan_page, release, releases, rerun, verify

__all__ = [
    "check",
    "compare",
    "ledger",
    "open_release",
    "plan",
    "plan_page",
    "release",
    "releases",
    "rerun",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if foreign := _foreign_package():
        raise ImportError(foreign)
    return getattr(import_module("flows.api"), name)


def __dir__() -> list[str]:
    return __all__


def _command() -> None:
    """Run the command line, `trellis`."""
    if foreign := _foreign_package():
        sys.exit(foreign)
    gc.set_threshold(50_000)  # most of what a command makes are its modules, and they stay
    import_module("flows.cli.main").run()


def _foreign_package() -> str:
    """Return a sentence about a package of another project that Python finds in place of one of ours; empty if there is none."""
    for name in ("flows", "tasks", "storage"):
        found = find_spec(name)
        if found is None or found.origin is None:  # a folder without __init__.py
            where = next(iter(found.submodule_search_locations or ()), None) if found else None
        else:
            where = found.origin
        if where is None or Path(where).resolve().parent.parent != Path(__file__).resolve().parent:
            return (
                f"Trellis cannot start: Python finds {where or 'nothing'} in place of Trellis' package {name}."
                " Start in another folder or with PYTHONSAFEPATH=1, take that folder out of PYTHONPATH, or rename what is there."
            )
    return ""
