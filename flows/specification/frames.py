"""Data frames in place of the tables of a spec: each becomes a Parquet file in TRELLIS_HOME for as long as it is needed.

That of a confidential table has values only in the columns that somebody looks at, and no row where nobody looks at rows.
"""

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

from storage.database.connections import store
from storage.errors import UsageError
from storage.ledger.recognition import known_contents
from storage.machine.home import subfolder
from storage.machine.locks import held, holder_of
from tasks.ingest.tables import in_nfc

_FRAMES = "frames-"  # how the names of their folders begin


@contextmanager
def frames_in_files(keys: Mapping[str, Any], *, only_headers: bool = False) -> Iterator[Any]:
    """Yield the keys of a spec with the path of a file in place of each data frame: of Polars or pandas, or an Arrow table.

    Paths become texts, and numbers and arrays of numpy those of Python.

    Args:
        only_headers: whether the confidential table has no rows, for who reads none.
    Raises:
        UsageError: a data frame cannot be written as a table.
    """
    with ExitStack() as stack:
        folder = cache(lambda: stack.enter_context(_new_folder()))
        yield _written(keys, folder, "", cache(lambda: None if only_headers else _looked_at(keys)))


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


def _looked_at(keys: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns of a confidential table that its spec names, or by which the ledger recognises the tables of others."""
    with store() as con:
        known = [name for of in known_contents(con).values() for name in (*of.columns.codes, of.columns.count or "")]
    return frozenset(map(in_nfc, [*known, *_texts([keys.get("input"), keys.get("hierarchy")])]))


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in the keys of a spec."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.values()])
    elif isinstance(value, list | tuple | np.ndarray):
        for item in value:
            yield from _texts(item)


def _written(value: Any, folder: Callable[[], Path], key: str, looked_at: Callable[[], frozenset[str] | None]) -> Any:
    if isinstance(value, Mapping):
        return {name: _written(item, folder, f"{key}.{name}".lstrip("."), looked_at) for name, item in value.items()}
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):  # several tables may be one
        return [_written(item, folder, f"{key}.{number}", looked_at) for number, item in enumerate(value)]
    if not hasattr(value, "__arrow_c_stream__") and not isinstance(value, pl.LazyFrame):
        return value
    path = folder() / f"{key.replace('.', '-').replace('/', '-')}.parquet"
    is_confidential = key == "input.table" or key.startswith("input.table.")
    columns = looked_at() if is_confidential else None
    with suppress(Exception):  # whose text could quote the data
        if any(getattr(getattr(value, "index", None), "names", ())):  # of pandas, where named indices are columns too
            value = value.reset_index()
        frame = value if isinstance(value, pl.LazyFrame) else pl.DataFrame(value).lazy()
        if is_confidential:
            frame = frame.head(0) if columns is None else _without_others(frame, columns)
        frame.collect().write_parquet(path)
        return str(path)
    hint = "Each column must hold values of one type. Cast codes to text."
    raise UsageError(f"{key}: the data frame cannot be written as a table.", field=key, hint=hint)


def _without_others(frame: pl.LazyFrame, columns: frozenset[str]) -> pl.LazyFrame:
    """Return a data frame with its header, and no values in other columns than these."""
    others = {name: kind for name, kind in frame.collect_schema().items() if in_nfc(name) not in columns}
    return frame.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in others.items())
