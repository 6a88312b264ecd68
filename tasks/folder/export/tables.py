"""The tables of a published folder as other kinds of files take them: with plain text, and names beside codes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.format.csv import names_in, plain, with_names
from tasks.format.manifest import Manifest
from tasks.format.published_tree import axes_of, axis_columns
from tasks.format.tables import batches
from tasks.words.levels import axes_called, grouped_by, place


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A published table.

    Attributes:
        path: its path in the folder, such as `counts/level_3.parquet`, or that of the folder of its parts.
        counts_by: what it counts by, in words.
        axes: per axis, the name of the level that its rows have; None where the axis is summed over.
        level: the tree level; None for views and for tables of the rows that stand out.
        parts: the paths of its files in the folder, where it is in parts.
    """

    path: str
    title: str
    counts_by: str
    axes: Mapping[str, str | None]
    level: int | None = None
    parts: Sequence[str] = ()

    def path_in(self, folder: str, ending: str) -> str:
        """Return the path of its copy among files of another kind, such as `omx/level_3.omx`."""
        return f"{folder}/{Path(self.path).stem}.{ending}"


@dataclass(frozen=True)
class PublishedTables:
    """The published tables of a folder. Whoever reads one that is not a Parquet file raises UNREADABLE."""

    folder: Path
    manifest: Manifest

    @cached_property
    def names(self) -> list[pl.DataFrame]:
        """The names of areas, as in `names_in`."""
        return names_in(self.folder)

    @cached_property
    def levels(self) -> list[PublishedTable]:
        """The tables of the levels."""
        tables = []
        for of in self.manifest.levels:
            by = place(axes_called(self.manifest.spec, of.axes)) if any(of.axes.values()) else "everything"
            parts = of.files if of.parts else ()
            tables.append(PublishedTable(of.path, f"level {of.level}", by, of.axes, of.level, parts))
        return tables

    @cached_property
    def every(self) -> list[PublishedTable]:
        """All tables of counts: of the levels, then of the rows that stand out, then of the views."""
        of_signal = [
            PublishedTable(
                f"signal/level_{of.level}.parquet",
                f"level {of.level} signal",
                f"the rows of level {of.level} that stand out, and remainders",
                self.manifest.levels[of.level].axes,
            )
            for of in self.manifest.signal_tables
        ]
        of_views = [PublishedTable(of.path, f"view {of.name}", grouped_by(of), of.axes) for of in self.manifest.views]
        return [*self.levels, *of_signal, *of_views]

    def rows(self, table: PublishedTable) -> int:
        """Return how many rows a table has."""
        return sum(int(pq.read_metadata(path).num_rows) for path in self._files(table))

    def schema(self, table: PublishedTable) -> pa.Schema:
        """Return the columns of a table: codes with names beside them, and numbers."""
        return with_names(pq.read_schema(self._files(table)[0]).empty_table(), self.names).schema

    def parts(self, table: PublishedTable) -> Iterator[pa.Table]:
        """Yield the rows of a table in parts of many rows, with names beside codes."""
        for batch in batches(self._files(table)):
            yield with_names(plain(pa.Table.from_batches([batch])), self.names)

    def _files(self, table: PublishedTable) -> list[Path]:
        return [self.folder / name for name in table.parts or [table.path]]

    def codes_of(self, table: PublishedTable, axis: str) -> list[str]:
        """Return the columns of codes of an axis that a table has, coarse to fine."""
        reached = table.axes.get(axis)
        levels = axes_of(self.manifest)[axis]
        return axis_columns(self.manifest, axis)[: levels.index(reached) + 1 if reached else 0]


_DAY_OF_ID = re.compile(r"-(\d{4})-?(\d{2})-?(\d{2})(?:T\d{6}Z)?$")


def day_of(manifest: Manifest) -> datetime:
    """Return the day in a release's id, for files that must state when they were made: the same release is the same bytes."""
    if match := _DAY_OF_ID.search(manifest.id):
        with suppress(ValueError):
            year, month, day = map(int, match.groups())
            return datetime(year, month, day, tzinfo=UTC)
    return datetime(1980, 1, 1, tzinfo=UTC)
