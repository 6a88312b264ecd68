"""Verification of a published folder: it needs no store, no codebook and no network."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
from pydantic import ValidationError

from storage.machine.files import sha256_of_all
from storage.releases.register import REPORT
from storage.tables import COUNT, COUNTS, column_name, flat_features, level_csv
from tasks.folder.export.formats import format_failures, unknown_files
from tasks.folder.export.tables import PublishedTables
from tasks.folder.verify.estimated import estimate_failures, noisy_counts_failures
from tasks.folder.verify.levels import check_level
from tasks.folder.verify.views import named, signal_failures, view_failures
from tasks.format.areas import AxisAreas
from tasks.format.csv import NAMES, csv_failures, names_in, records_failures
from tasks.format.entries import LevelEntry, ViewEntry
from tasks.format.manifest import CUMULATIVE, Manifest, published_manifest
from tasks.format.metadata import METADATA, described_files, metadata_failures
from tasks.format.noisy_counts import FOLDER as NOISY_COUNTS
from tasks.format.published_tree import BOUNDARIES, axes_of, axis_columns, names_path, shapes_path
from tasks.format.tables import UNREADABLE, batches, level_paths, scan_level
from tasks.laws.days import MOST_DAYS, Days
from tasks.pages.explorer.page import EXPLORER
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.ordered import ordered_axes
from tasks.uncertainty.intervals import margins_of, row_margins
from tasks.uncertainty.sources import own_levels
from tasks.words.areas import GEOMETRY, geo_metadata, name_column
from tasks.words.levels import in_short
from tasks.work.capacity import cores

_OF_BOTH = ("id", "spec", "privacy", "mechanism", "codebooks", "noisy_counts", "covariance", "intervals", "days")
_SLACK = 1 + 1e-9

SUMS = "SHA256SUMS"
MANIFEST = "manifest.json"


def verify(folder: Path, workers: int | None = None) -> list[str]:
    """Return what is wrong with a published folder, one sentence per failure; an empty list means that it is intact.

    Args:
        workers: how many files are read at once; one per core if left out.
    """
    workers = workers or cores()
    if not folder.is_dir():
        return [f"There is no folder {folder}."]
    try:
        is_release = any((folder / name).exists() for name in (SUMS, MANIFEST))
        if not is_release and (inside := sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}"))):
            return [
                f"{folder} is not a release: it holds releases ({in_short(inside)}). Verify the folder of one of them."
            ]
        failures = _checksums(folder, workers)
    except OSError as fault:
        return [f"{fault.filename} cannot be read ({fault.strerror})."]
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except OSError:
        return [*failures, "manifest.json is missing or cannot be read."]
    except ValidationError as fault:
        where = "; ".join(f"{'.'.join(map(str, error['loc'])) or 'file'}: {error['msg']}" for error in fault.errors())
        return [*failures, f"manifest.json is not valid ({where})."]
    if manifest.cumulative:
        return [f"{folder} has the cumulative counts of {manifest.id}. Verify the folder of that day: it checks both."]
    files = ["README.md", REPORT, EXPLORER, *([METADATA] if manifest.csv and described_files(folder) else [])]
    missing = [f"{name} is missing." for name in files if not (folder / name).is_file()]
    failures += [failure for failure in missing if failure not in failures]
    failures += [
        f"{name} is no file of this release."
        for name in unknown_files(folder, manifest)
        if f"{name} is not listed in {SUMS}." not in failures
    ]
    failures += _manifest(manifest)
    if [entry.level for entry in manifest.levels] != list(range(len(manifest.levels))):
        return [*failures, "manifest.json does not list the levels 0, 1, 2, … in order."]
    return failures + _tables(folder, manifest, workers) + cumulative_failures(folder, manifest, workers)


def cumulative_failures(folder: Path, manifest: Manifest, workers: int) -> list[str]:
    """Return what is wrong with the noise of a day of a series that is measured with others, and with the cumulative counts beside it."""
    if manifest.days is None:
        return []
    days, runs = Days(tuple(manifest.days.weights)), manifest.days.runs
    failures = [
        f"{MANIFEST}: level {entry.level} has a sigma that does not follow from its scale and the weights of days."
        for entry in manifest.levels
        if entry.rho and not _is_of_day(entry, days, runs)
    ]
    place = folder / CUMULATIVE
    whole = published_manifest(place)
    if whole is None:
        return [*failures, f"{CUMULATIVE}/{MANIFEST} is missing or is not valid."]
    if any(getattr(whole, name) != getattr(manifest, name) for name in _OF_BOTH) or len(whole.levels) != len(
        manifest.levels
    ):
        failures.append(f"{CUMULATIVE}/{MANIFEST} is not that of the same release.")
        return failures
    failures += [
        f"{CUMULATIVE}/{MANIFEST}: level {entry.level} has a sigma that does not follow from its scale and the days."
        for entry, own in zip(whole.levels, manifest.levels, strict=True)
        if (entry.rho, entry.scale, entry.axes) != (own.rho, own.scale, own.axes)
        or (entry.rho and not math.isclose(entry.sigma, days.cumulative_deviation(own.scale, runs), rel_tol=1e-9))
    ]
    return failures or [f"{CUMULATIVE}/{failure}" for failure in _manifest(whole) + _tables(place, whole, workers)]


def _is_of_day(entry: LevelEntry, days: Days, runs: Sequence[int]) -> bool:
    """Return whether the sigma of a level is that of its day: where days before are missing, as if they were not, which is no less."""
    least, most = (days.deviation(entry.scale, before) for before in (runs[-1] - 1, MOST_DAYS))
    return least <= entry.sigma * _SLACK and entry.sigma <= most * _SLACK


def _manifest(manifest: Manifest) -> list[str]:
    """Return the contradictions inside the manifest."""
    failures = []
    if not math.isclose(sum(entry.rho for entry in manifest.parts), manifest.privacy.rho, rel_tol=1e-9):
        failures.append("manifest.json: the rho of the levels must add up to the rho of the release.")
    measured = {entry.level for entry in own_levels(manifest.parts) if not entry.summed}
    if {seal.level for seal in manifest.seals} != measured:
        failures.append("manifest.json: the measured levels, and only they, must have seals.")
    for entry in manifest.parts:
        level = f"manifest.json: level {entry.level}"
        if entry.same_as is not None:
            failures += _repeated(entry, manifest.levels[: manifest.levels.index(entry)])
            continue
        if entry.summed and (entry.rho or entry.epsilon):
            failures.append(f"{level} is summed and must cost nothing.")
        elif entry.summed or entry.epsilon:
            continue
        elif (entry.rho == 0) != (entry.sigma == 0):
            failures.append(f"{level} must have both rho and sigma, or neither.")
        elif entry.scale and not math.isclose(entry.sigma, entry.noise.sigma, rel_tol=1e-9):
            failures.append(f"{level} has a sigma that is not that of its scale.")
        if entry.is_exact and not any(
            re.match(rf"level {entry.level}\b", statement) for statement in manifest.unprotected
        ):
            failures.append(f"{level} is exact, but unprotected does not list it.")
    failures += _promises(manifest)
    failures += _rounding(manifest) if manifest.has_sources else _margins(manifest)
    if manifest.supersedes != manifest.spec.get("supersedes") or manifest.supersedes == manifest.id:
        failures.append("manifest.json: supersedes must be the release that the spec names, and not this release.")
    return failures


# what a level that repeats another one states as that one does
_OF_NOISE = (
    *("sigma", "mechanism", "scale", "bound", "bound_after", "half_width", "cap_margin", "simultaneous_half_width"),
    *("intervals", "signal", "noise_rows", "above_noise"),
)


def _repeated(entry: LevelEntry, above: Sequence[LevelEntry]) -> list[str]:
    """Return how a level that repeats another one contradicts that one, or states a cost."""
    level = f"manifest.json: level {entry.level}"
    own = [other for other in above if other.same_as is None][-1:]
    if not own or entry.same_as != own[0].level or entry.summed:
        return [f"{level} must be the same as the nearest level above it that is none's same."]
    if entry.rho or entry.epsilon or entry.delta or entry.l2_sensitivity:
        return [f"{level} is the same as level {entry.same_as} and must cost nothing."]
    if any(getattr(entry, name) != getattr(own[0], name) for name in _OF_NOISE):
        return [f"{level} must state the noise, the bounds and the shares of level {entry.same_as}."]
    return []


def _are_repeated(folder: Path, above: LevelEntry, entry: LevelEntry) -> bool:
    """Return whether the rows of a level are those of the level above, but for the code that each has in addition."""
    rows, own = (scan_level(folder, of).collect() for of in (above, entry))
    return own.select(rows.columns).equals(rows.filter(pl.col(COUNT) != 0))


def _promises(manifest: Manifest) -> list[str]:
    """Return which levels and views state another promise of their intervals than the mechanism can make."""
    failures, of_levels = [], "cells" if manifest.covariance else "rows"
    for entry in [*manifest.levels, *manifest.views]:
        promise = "cells" if isinstance(entry, ViewEntry) else of_levels
        if manifest.levels[-1].threshold and not isinstance(entry, ViewEntry):
            promise = "cells" if entry.threshold else ""
        expected = (promise, manifest.intervals.confidence) if promise else None
        stated = entry.intervals
        if (None if stated is None else (stated.promise, stated.confidence)) != expected:
            failures.append(f"{named(entry)} does not promise what its intervals hold.")
    return failures


def _rounding(manifest: Manifest) -> list[str]:
    """Return how the statement about rounding contradicts itself, or leaves out what was measured."""
    names = {entry.level: f"level_{entry.level}" for entry in manifest.levels}
    names |= {view.level: view.name for view in manifest.own_views}
    measured = {names[part.level] for part in manifest.parts if not part.summed}
    stated = manifest.rounding.deviation if manifest.rounding else {}
    if manifest.rounding is None or stated.keys() != measured:
        return ["manifest.json: rounding must state a deviation for everything that was measured."]
    of_leaves = stated.get(names[manifest.levels[-1].level], 0.0)
    if not (of_leaves < 1 and all(0 <= deviation < math.inf for deviation in stated.values())):
        return ["manifest.json: rounding moves leaves by less than one record, and no count without end."]
    if manifest.rounding.exact != all(deviation < 1 for deviation in stated.values()):
        return ["manifest.json: rounding must be exact where, and only where, all deviations are below 1."]
    return []


def _margins(manifest: Manifest) -> list[str]:
    """Return which levels state margins that do not follow from their noise and the stated confidence."""
    if manifest.is_unbiased or any(entry.summed for entry in manifest.levels):
        return []
    own, confidence = own_levels(manifest.levels), manifest.intervals.confidence
    noises = [entry.noise for entry in own]
    cells, rows = [entry.cells for entry in own], [entry.nonzero for entry in own]
    of_rows, fixed = row_margins(noises, cells, rows, confidence), margins_of(noises, confidence)
    return [
        f"manifest.json: level {entry.level} has a half_width or cap_margin that does not follow from the noise, the rows and the confidence."
        for entry, of_row, of_cell in zip(own, of_rows, fixed, strict=True)
        if (entry.half_width, entry.cap_margin) != (of_row.own, of_cell.cap)
    ]


def _checksums(folder: Path, workers: int) -> list[str]:
    sums = folder / SUMS
    if not sums.is_file():
        return [f"{SUMS} is missing."]
    lines = (line.partition("  ") for line in sums.read_text(errors="replace").splitlines())
    expected = {name: sha256 for sha256, _, name in lines}
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} - {SUMS}
    failures = [f"{name} is not listed in {SUMS}." for name in sorted(there - expected.keys())]
    failures += [f"{name} is missing." for name in sorted(expected.keys() - there)]
    both = sorted(there & expected.keys())
    hashes = zip(both, sha256_of_all((folder / name for name in both), workers), strict=True)
    return failures + [f"{name} is not the file that was published." for name, sha in hashes if sha != expected[name]]


def _tables(folder: Path, manifest: Manifest, workers: int) -> list[str]:
    """Return what is wrong with the tables; sums are checked only if every table on its own is correct."""
    columns = _columns(manifest)
    orders = {
        axis: [codes.to_arrow() for _, codes in order.levels()] for axis, order in ordered_axes(manifest.spec).items()
    }
    areas = {axis: AxisAreas(orders.get(axis, [])) for axis in columns[-1]}
    wrong, do_not_add_up, above = [], [], None
    for entry, of_axes in zip(manifest.levels, columns, strict=True):
        try:
            above = check_level(folder, manifest, entry, of_axes, areas, above, workers)
        except UNREADABLE:
            return [f"{_unreadable(level_paths(folder, entry), folder)} is missing or is not a Parquet file."]
        wrong += [f"level_{entry.level}: {failure}" for failure in above.wrong]
        if not above.adds_up:
            do_not_add_up.append(f"level_{entry.level}: the counts do not add up to those of the level above.")
    if wrong:
        return wrong
    if wrong_areas := area_failures(folder, manifest):
        return wrong_areas
    do_not_add_up += [
        f"level_{entry.level}: the rows are not those of level {entry.same_as}."
        for entry in manifest.levels
        if entry.same_as is not None and not _are_repeated(folder, manifest.levels[entry.level - 1], entry)
    ]
    if not do_not_add_up:
        do_not_add_up += signal_failures(folder, manifest)
    if (manifest.views or manifest.has_sources) and not do_not_add_up:
        try:
            do_not_add_up += view_failures(folder, manifest)
        except UNREADABLE:
            return ["A table of views/ or derived/ is missing or is not a Parquet file."]
    if manifest.noisy_counts:
        do_not_add_up += noisy_counts_failures(folder, manifest)
    if not do_not_add_up and PublishedFolder(folder, manifest).has_tree:
        do_not_add_up += estimate_failures(folder, manifest, workers)
    if not manifest.noisy_counts and (folder / NOISY_COUNTS).exists():
        do_not_add_up.append(f"{NOISY_COUNTS}/ exists, but the manifest says that noisy counts are not published.")
    return do_not_add_up + _copies(folder, manifest, list(columns[-1].values()))


def _unreadable(paths: Sequence[Path], folder: Path) -> str:
    """Return which of some files cannot be read to its end: its name, and where it is a part also that of its folder."""
    for path in paths:
        try:
            for _ in batches([path]):
                pass
        except UNREADABLE:
            break
    return str(path.relative_to(folder / COUNTS))


def _copies(folder: Path, manifest: Manifest, axes: list[list[str]]) -> list[str]:
    """Return where the other files differ from the tables."""
    csv, finest = folder / "counts.csv", level_paths(folder, manifest.levels[-1])
    names = names_in(folder)
    failures = csv_failures(csv, finest, names=names) if manifest.csv is True or csv.exists() else []
    for entry in manifest.levels:
        csv, level = folder / level_csv(entry.level), f"level {entry.level}"
        if manifest.csv == "every_level" or csv.exists():
            failures += csv_failures(csv, level_paths(folder, entry), level, names)
    if manifest.records in {"csv", "parquet"}:
        failures += records_failures(folder, manifest.records, finest, axes)
    for view in manifest.views:
        table = folder / "views" / f"{view.name}.parquet"
        if table.with_suffix(".csv").exists():
            failures += csv_failures(table.with_suffix(".csv"), [table], f"view {view.name}", names)
    failures += format_failures(PublishedTables(folder, manifest))
    return failures or metadata_failures(folder)


def _columns(manifest: Manifest) -> list[dict[str, list[str]]]:
    """Return, per level and axis, the columns that the table must have, one per axis level reached."""
    flat = flat_features(manifest.spec)
    reached: dict[str, list[str]] = {axis: [] for entry in manifest.levels for axis in entry.axes}
    columns = []
    for entry in manifest.levels:
        for axis, level in entry.axes.items():
            name = column_name(axis, level, flat) if level else None
            if name and name not in reached[axis]:
                reached[axis].append(name)
        columns.append({axis: list(of_axis) for axis, of_axis in reached.items()})
    return columns


def area_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return where names and shapes of areas are not those that the manifest lists, or say less or other than they should."""
    for place, listed, path_of, fault_of in (
        (NAMES, manifest.names, names_path, _misnamed),
        (BOUNDARIES, manifest.boundaries, shapes_path, _misshapen),
    ):
        axes = axes_of(manifest)
        if any(level not in axes.get(axis, ()) for axis, levels in listed.items() for level in levels):
            return [f"manifest.json: {place} must list levels that are released."]
        codes = [
            axis_columns(manifest, axis)[: axes[axis].index(level) + 1]
            for axis, levels in listed.items()
            for level in levels
        ]
        columns_of = {path_of(folder, columns[-1]): columns for columns in codes}
        if {path for path in (folder / place).rglob("*") if path.is_file()} != columns_of.keys():
            return [f"{place}/ does not hold the files that manifest.json lists."]
        try:
            faults = {path.name: fault_of(path, columns) for path, columns in columns_of.items()}
        except UNREADABLE:
            return [f"A table of {place}/ is not a Parquet file."]
        if failures := [f"{place}/{name} {fault}" for name, fault in faults.items() if fault]:
            return failures
    return []


def _misnamed(path: Path, columns: Sequence[str]) -> str:
    """Return what is wrong with a table of names, as the end of a sentence; empty if nothing is."""
    areas, name = pl.read_parquet(path, glob=False), name_column(columns[-1])
    has_columns = areas.schema == dict.fromkeys([*columns, name], pl.String)
    is_named = has_columns and areas.height and (areas[name].str.strip_chars().fill_null("") != "").all()
    is_right = is_named and not areas.null_count().sum_horizontal().item() and _are_sorted(areas.select(columns))
    return "" if is_right else "does not name each area once, in the order of codes."


def _are_sorted(codes: pl.DataFrame) -> bool:
    """Return whether each area is there once, in the order of codes."""
    return not codes.is_duplicated().any() and codes.equals(codes.sort(codes.columns))


def _misshapen(path: Path, columns: Sequence[str]) -> str:
    """Return what is wrong with a file of shapes, as the end of a sentence; empty if nothing is."""
    areas = pl.read_parquet(path, glob=False)
    if areas.schema != dict.fromkeys(columns, pl.String) | {GEOMETRY: pl.Binary} or not areas.height:
        return "must have columns of codes, and geometry."
    if areas.null_count().sum_horizontal().item() or not _are_sorted(areas.select(columns)):
        return "does not have each area once, in the order of codes."
    import shapely

    shapes = shapely.from_wkb(areas[GEOMETRY].to_numpy(), on_invalid="ignore")
    kinds = {shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON}
    if not kinds.issuperset(shapely.get_type_id(shapes)) or not shapely.is_valid(shapes).all():
        return "has a shape that is not a valid polygon or several."
    if shapely.is_empty(shapes).any():
        return "has an area whose shape is empty."
    stated = (pq.read_schema(path).metadata or {}).get(b"geo", b"")
    if stated != geo_metadata(GEOMETRY, areas[GEOMETRY].to_list())[b"geo"]:
        return "does not say what its shapes are, as GeoParquet does."
    return ""
