"""Data frames in place of the tables of a spec: each becomes a Parquet file in TRELLIS_HOME for as long as it is needed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import Any

import numpy as np
import polars as pl

from storage.errors import UsageError
from storage.machine.home import subfolder
from storage.machine.locks import held, holder_of

_FRAMES = "frames-"  # how the names of their folders begin


@contextmanager
def frames_in_files(keys: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the keys of a spec with the path of a file in place of each data frame: of Polars or pandas, or an Arrow table.

    Paths become texts, and numbers and arrays of numpy those of Python.

    Raises:
        UsageError: a data frame cannot be written as a table.
    """
    with ExitStack() as stack:
        yield _written(keys, cache(lambda: stack.enter_context(_new_folder())), "")


@contextmanager
def _new_folder() -> Iterator[Path]:
    """Yield a folder for as long as it is needed; its lock is there before it, and after it."""
    folder = subfolder("tmp") / f"{_FRAMES}{token_hex(8)}"
    with held(folder.name):
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            rmtree(folder, ignore_errors=True)


def sweep_frames() -> None:
    """Delete the folders of data frames whose process was killed: nobody holds their locks."""
    for folder in subfolder("tmp").glob(f"{_FRAMES}*"):
        if holder_of(folder.name) is None:
            rmtree(folder, ignore_errors=True)


def _written(value: Any, folder: Callable[[], Path], key: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _written(item, folder, f"{key}.{name}".lstrip(".")) for name, item in value.items()}
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):  # several tables may be one
        return [_written(item, folder, f"{key}.{number}") for number, item in enumerate(value)]
    if not hasattr(value, "__arrow_c_stream__") and not isinstance(value, pl.LazyFrame):
        return value
    path = folder() / f"{key.replace('.', '-').replace('/', '-')}.parquet"
    with suppress(Exception):  # whose text could quote the data
        if any(getattr(getattr(value, "index", None), "names", ())):  # of pandas, where named indices are columns too
            value = value.reset_index()
        (value.collect() if isinstance(value, pl.LazyFrame) else pl.DataFrame(value)).write_parquet(path)
        return str(path)
    hint = "Each column must hold values of one type. Cast codes to text."
    raise UsageError(f"{key}: the data frame cannot be written as a table.", field=key, hint=hint)
