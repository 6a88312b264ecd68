"""Data frames in place of the tables of a spec: each becomes a Parquet file in TRELLIS_HOME for as long as it is needed."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from storage.errors import UsageError
from storage.machine.home import subfolder


@contextmanager
def frames_in_files(keys: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the keys of a spec with the path of a file in place of each data frame; the files are deleted afterwards.

    A data frame is one of Polars or pandas, an Arrow table, or anything else that gives away its columns as Arrow does.

    Raises:
        UsageError: a data frame cannot be written as a table.
    """
    with ExitStack() as stack:
        folder = cache(lambda: Path(stack.enter_context(TemporaryDirectory(prefix="frames-", dir=subfolder("tmp")))))
        yield {key: _written(item, folder, str(key)) for key, item in keys.items()}


def _written(value: Any, folder: Callable[[], Path], key: str) -> Any:
    """Return a value with the path of a file in place of each data frame in it."""
    if isinstance(value, Mapping):
        return {name: _written(item, folder, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item, folder, f"{key}.{number}") for number, item in enumerate(value)]
    if not (hasattr(value, "__arrow_c_stream__") or isinstance(value, pl.LazyFrame)):
        return value
    if isinstance(value, pl.Series):
        return value.to_list()
    path = folder() / f"{re.sub(r'[^A-Za-z0-9_]+', '-', key)}.parquet"
    with suppress(Exception):  # whose text could quote the data
        (value.collect() if isinstance(value, pl.LazyFrame) else pl.DataFrame(value)).write_parquet(path)
        return str(path)
    raise UsageError(
        f"{key}: the data frame cannot be written as a table.",
        field=key,
        hint="Each column must hold values of one type. Cast codes to text.",
    )
