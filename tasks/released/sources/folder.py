"""A published folder as queries read it: its manifest, and scans that read only what they need of its tables."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import ValidationError

from storage.errors import StoreError, UsageError
from storage.releases.terms import DENSE
from storage.tables import NOISY
from tasks.format.entries import LevelEntry
from tasks.format.manifest import Manifest
from tasks.format.noisy_counts import CODEBOOK, noisy_counts_path, noisy_view_path
from tasks.format.published_tree import (
    DERIVED,
    axes_of,
    axis_columns,
    derived_columns,
    published_names,
    published_shapes,
    steps_of,
    tree_of_codebook,
    tree_of_spec,
)
from tasks.format.strategy import STRATEGY, read_strategy, strategy_file
from tasks.released.boxes import level_of
from tasks.tree.axis import Axis, IntArray, axis_from_codebook
from tasks.tree.order import Tree
from tasks.tree.ordered import in_order, ordered_axes
from tasks.tree.views import Derived
from tasks.unbiased.dense import Strategies, Strategy
from tasks.words.areas import Names, Shapes


@dataclass(frozen=True)
class PublishedFolder:
    """A published folder, of which nothing but the manifest is read before it is asked for."""

    path: Path
    manifest: Manifest

    @cached_property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axes, and the names of their released levels, coarse to fine."""
        return axes_of(self.manifest)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The order in which the axes are refined, as in `Tree`."""
        return steps_of(self.manifest)

    @cached_property
    def tree(self) -> Tree:
        """The tree, from the codebook that is published with the noisy counts, or from the codes that the spec lists."""
        tree = None if self.manifest.noisy_counts else tree_of_spec(self.manifest)
        tree = tree or tree_of_codebook(self.manifest, self._read(CODEBOOK).collect())
        return in_order(tree, self.manifest.spec).cascading(self.manifest.cascades)

    @cached_property
    def has_tree(self) -> bool:
        """Whether every area is known, with a count or without."""
        return self.manifest.noisy_counts or (
            bool(self.manifest.covariance) and tree_of_spec(self.manifest) is not None
        )

    @cached_property
    def strategies(self) -> Strategies:
        """What was measured of axes in place of the counts of their leaves, by the numbers of the axes; nothing where counts were.

        Raises:
            StoreError: one is missing, or no strategy.
        """
        found = dict[int, Strategy]()
        if self.manifest.covariance != DENSE:
            return found
        for number, axis in enumerate(self.axes):
            name = strategy_file(axis, self.axes)
            if name != STRATEGY and not (self.path / name).exists():
                continue  # it was measured as a tree
            try:
                with _as_published(self.path):
                    found[number] = Strategy(read_strategy(self.path / name))
            except ValueError as fault:
                raise StoreError(f"{name}: {fault}", field="FOLDER") from None
        return found

    @cached_property
    def derived(self) -> dict[str, Derived]:
        """The derived columns by name, where views are published."""
        with _as_published(self.path):
            return derived_columns(self.path, self.manifest)

    @cached_property
    def codes_of(self) -> dict[str, list[str]]:
        """The codes of each derived column, sorted; no tree is needed."""
        listed = {name: self.derived_table(name).select(name).unique().sort(name) for name in self.manifest.derived}
        tables = self.collect([*listed.values()])
        return {name: table[name].to_list() for name, table in zip(listed, tables, strict=True)}

    @cached_property
    def names(self) -> Names:
        """The names of areas."""
        with _as_published(self.path):
            return published_names(self.path, self.manifest)

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes of areas."""
        with _as_published(self.path):
            return published_shapes(self.path, self.manifest)

    @cached_property
    def ordered(self) -> dict[str, Axis]:
        """The ordered axes by name, down to their finest released levels."""
        return {
            name: axis_from_codebook(name, of.codebook().select(self.axes[name]).unique(maintain_order=True))
            for name, of in ordered_axes(self.manifest.spec).items()
        }

    def columns(self, axis: str, level: int) -> list[str]:
        """Return the columns that identify the areas of an axis level: those of its path, coarse to fine."""
        return axis_columns(self.manifest, axis)[:level]

    def reached(self, level: int) -> tuple[int, ...]:
        """Return, per axis, the axis level that a tree level has reached."""
        return tuple(self.steps[:level].count(axis) for axis in range(len(self.axes)))

    def is_exact(self, levels: Sequence[int]) -> bool:
        """Return whether the counts of boxes at some axis levels are published without noise; other intervals of one number are so by chance."""
        if self.manifest.has_groups and not levels[-1]:  # the list says how many groups a place has
            return True
        return self.manifest.levels[level_of(self.steps, levels)].is_exact

    def scan(self, entry: LevelEntry) -> pl.LazyFrame:
        """Return the table of a level or view, as a lazy scan."""
        return self._read(*entry.files)

    def derived_table(self, name: str) -> pl.LazyFrame:
        """Return the table of a derived column, as a lazy scan."""
        return self._read(f"{DERIVED}/{name}.parquet")

    def noisy_view(self, name: str) -> pl.LazyFrame:
        """Return the noisy counts of a view, in the order of its table, as a lazy scan."""
        return self._read(str(noisy_view_path(Path(), name)))

    def noisy(self, level: int, areas: Sequence[IntArray]) -> pl.LazyFrame:
        """Return the noisy counts of a level whose areas are among some, ascending, per axis, in the order of the tree."""
        met = [
            pl.col(axis.name).is_between(*of_axis[[0, -1]].tolist())
            if len(of_axis) and of_axis[-1] - of_axis[0] < len(of_axis)
            else pl.col(axis.name).cast(pl.Int64).is_in(pl.Series(of_axis).implode())
            for axis, size, of_axis in zip(self.tree.axes, self.tree.sizes(level), areas, strict=True)
            if len(of_axis) < size
        ]
        names = [axis.name for axis, own in zip(self.tree.axes, self.tree.axis_levels(level), strict=True) if own]
        cells = self._read(str(noisy_counts_path(Path(), level))).select(*names, NOISY)
        return cells.filter(*met) if met else cells

    def areas_of(self, level: int, cells: pl.DataFrame) -> tuple[IntArray, ...]:
        """Return, per axis, the areas of the noisy counts of a level, shape (cells,)."""
        return tuple(
            cells[axis.name].to_numpy().astype(np.int64) if own else np.zeros(cells.height, dtype=np.int64)
            for axis, own in zip(self.tree.axes, self.tree.axis_levels(level), strict=True)
        )

    def collect(self, scans: Sequence[pl.LazyFrame]) -> list[pl.DataFrame]:
        """Return the results of scans of this folder, in the order of the rows.

        Raises:
            StoreError: a file is missing, or differs from what was published.
        """
        with _as_published(self.path):
            return pl.collect_all(scans)

    def _read(self, *names: str) -> pl.LazyFrame:
        paths = [self.path / name for name in names]
        with _as_published(self.path):
            if not all(path.is_file() for path in paths):
                raise FileNotFoundError
            return pl.scan_parquet(paths, glob=False)


def open_folder(path: Path) -> PublishedFolder:
    """Return a published folder.

    Raises:
        UsageError: the folder has no manifest, or not a valid one.
    """
    try:
        return PublishedFolder(path, Manifest.model_validate_json((path / "manifest.json").read_bytes()))
    except OSError:
        message = f"{path} is not a published folder: it has no manifest.json that can be read."
    except ValidationError:
        message = f"{path}/manifest.json is not a valid manifest."
    hint = "`trellis show ID` names the folder of a release; `trellis verify FOLDER` says what is wrong with a folder."
    raise UsageError(message, field="FOLDER", hint=hint)


@contextmanager
def _as_published(path: Path) -> Iterator[None]:
    """Refuse to go on where a table of a folder is missing or cannot be read."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError):
        raise StoreError(
            f"{path} differs from what was published: a table is missing or cannot be read.",
            field="FOLDER",
            hint=f"`trellis verify {path}` says which one.",
        ) from None
