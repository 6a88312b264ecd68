"""The pages of a published folder, which follow from its tables and its manifest: they are written again, and compared."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from storage.counts.columns import COUNT
from storage.errors import TrellisError
from storage.releases.register import REPORT
from tasks.explore.check import explorer_failures, is_explorer_unread
from tasks.explore.page import EXPLORER, explorer
from tasks.export.described import metadata_of
from tasks.export.written_by import code_of_pages
from tasks.format.formulas import formulas_in
from tasks.format.manifest import Manifest, published_manifest
from tasks.format.metadata import METADATA
from tasks.format.rows import Rows
from tasks.query.folder import PublishedFolder, open_folder
from tasks.report.facts import Collector, Facts
from tasks.report.readme.page import readme
from tasks.report.release_page import report
from tasks.tabulate.tables import Rows as TableRows
from tasks.tabulate.tables import Tables
from tasks.tabulate.totals import ends_of_sizes, ranges_of_areas
from tasks.tree.ordered import ordered_axes
from tasks.uncertainty.shares import Shares

README = "README.md"
MOST_ROWS = 2_000_000  # of all tables together; the report of a larger release is not written again
_FAULTS = (OSError, ValueError, LookupError, TrellisError, pa.ArrowException, pl.exceptions.PolarsError)


def page_failures(folder: Path) -> list[str]:
    """Return which pages of a folder whose tables are sound differ from what this code writes from them.

    Of pages that other code wrote, only the data in the explorer is compared. `unread_pages` says so, and which pages do not follow from
    the folder.
    """
    manifest = published_manifest(folder)
    if manifest is None or not _are_of_this_code(manifest):
        return explorer_failures(folder)
    published, failures = open_folder(folder), []
    for name in _written_again(published):
        try:
            is_right = _text(folder / name) == _again(name, published)
        except _FAULTS:  # the manifest says what cannot be
            is_right = False
        if not is_right:
            failures.append(f"{name} does not say what follows from the tables and the manifest.")
    return failures


def unread_pages(folder: Path) -> list[str]:
    """Return the pages of which only the checksums are compared, each with the reason."""
    manifest = published_manifest(folder)
    if manifest is None or not _are_of_this_code(manifest):
        return [*_unread_words(manifest), *_unread_data(folder)]
    left = {README, REPORT} - {*_written_again(PublishedFolder(folder, manifest))}
    many = "it has many rows" if _rows(manifest) > MOST_ROWS else "the folder does not list all codes"
    return [f"{name}: only the checksum was compared, because {many}." for name in sorted(left)]


def _unread_words(manifest: Manifest | None) -> list[str]:
    """Return a sentence that words were not compared; none for a folder that does not say who wrote its pages."""
    if manifest is None or manifest.pages is None:
        return []
    names = f"{README}, {REPORT}, {EXPLORER}, {METADATA}"
    return [f"{names}: what they say in words was not compared, because other code of Trellis wrote them."]


def _unread_data(folder: Path) -> list[str]:
    if not is_explorer_unread(folder):
        return []
    return [f"{EXPLORER}: only the checksum was compared, because another version of Trellis wrote its data."]


def _are_of_this_code(manifest: Manifest) -> bool:
    return manifest.pages is not None and manifest.pages.code == code_of_pages()


def _rows(manifest: Manifest) -> int:
    return sum(entry.nonzero for entry in [*manifest.levels, *manifest.views])


def _written_again(folder: PublishedFolder) -> list[str]:
    """Return the pages that follow from a folder: those that need all codes only where it has them, the report only of so many rows."""
    if not folder.has_tree:
        return [EXPLORER, METADATA]
    return [README, *([REPORT] if _rows(folder.manifest) <= MOST_ROWS else []), EXPLORER, METADATA]


def _text(file: Path) -> str | None:
    """Return what a page says, with its ends of lines as they are; None where it is missing."""
    return file.read_bytes().decode() if file.is_file() else None


def _again(name: str, folder: PublishedFolder) -> str | None:
    """Return what this code writes into a page; None where there is no such file."""
    manifest = folder.manifest
    if manifest.pages is None:
        raise ValueError("the manifest does not say who wrote the pages.")
    if name == EXPLORER:
        return explorer(folder)
    if name == METADATA:
        return metadata_of(folder.path, manifest)
    formulas, how_counted = formulas_in(folder.tree, folder.names), manifest.pages.how_counted
    if name == README:
        return readme(manifest, how_counted, formulas)
    return report(manifest, _facts(folder), manifest.pages.checks, how_counted, formulas)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the report takes from the terms of a level.

    Attributes:
        sigma: the standard deviation of its noise, records.
        possible_cells: the cells if every node survived; None where no codebook lists them.
        threshold: the least count that a leaf is kept with, records; 0 where every leaf is.
        is_summed: whether its counts are sums of those of finer levels or views.
    """

    sigma: float
    possible_cells: int | None
    threshold: int
    is_summed: bool


def _facts(folder: PublishedFolder) -> Facts:
    """Return what the report shows of the tables."""
    manifest, tables = folder.manifest, Tables(folder)
    tree = tables.tree
    terms = [
        _Terms(
            entry.sigma,
            tree.possible_cells(entry.level) if tree.is_listed(entry.level) else None,
            entry.threshold,
            entry.summed,
        )
        for entry in manifest.levels
    ]
    collector = Collector(
        tree,
        terms,
        ordered_axes(manifest.spec),
        of_sizes=bool(manifest.statistic),
        names=folder.names,
        shapes=folder.shapes,
    )
    for entry in manifest.levels:
        above, noise = entry.above_noise, entry.noise_rows
        shares = (
            Shares(noise.estimate, noise.at_most, above.rows, above.records)
            if above is not None and noise is not None
            else None
        )
        collector.take(_counted(tables.rows(entry.level), manifest.bounds), shares)
    for view in manifest.views:
        if not any(name in manifest.derived for name in view.axes):
            rows = tables.view(view)
            collector.take_view(view.name, rows.levels, _counted(rows, manifest.bounds[:2]))
    return collector.facts(ranges_of_areas(tables), ends_of_sizes(tables))


def _counted(rows: TableRows, bounds: tuple[str, ...]) -> Rows:
    """Return rows as the report reads them; without intervals where none is stated."""
    are_stated = bool(bounds) and not any(rows.table[name].has_nulls() for name in bounds)
    return Rows(rows.areas, rows.column(COUNT), tuple(rows.column(name) for name in bounds) if are_stated else ())
