"""Data frames in place of the tables of a spec: each becomes a Parquet file in TRELLIS_HOME for as long as it is needed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from storage.errors import UsageError
from storage.machine.home import subfolder


@contextmanager
def frames_in_files(keys: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the keys of a spec with the path of a file in place of each data frame: of Polars or pandas, or an Arrow table.

    Paths become texts, and numbers and arrays of numpy those of Python.

    Raises:
        UsageError: a data frame cannot be written as a table.
    """
    with ExitStack() as stack:
        new_folder = cache(lambda: stack.enter_context(TemporaryDirectory(prefix="frames-", dir=subfolder("tmp"))))
        yield _written(keys, new_folder, "")


def _written(value: Any, folder: Callable[[], str], key: str) -> Any:
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
    path = Path(folder()) / f"{key.replace('.', '-').replace('/', '-')}.parquet"
    with suppress(Exception):  # whose text could quote the data
        if any(getattr(getattr(value, "index", None), "names", ())):  # of pandas, where named indices are columns too
            value = value.reset_index()
        (value.collect() if isinstance(value, pl.LazyFrame) else pl.DataFrame(value)).write_parquet(path)
        return str(path)
    hint = "Each column must hold values of one type. Cast codes to text."
    raise UsageError(f"{key}: the data frame cannot be written as a table.", field=key, hint=hint)
