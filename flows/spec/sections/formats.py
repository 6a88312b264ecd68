"""The rules for the kinds of files in which a release is published."""

from collections.abc import Iterator, Sequence
from typing import Literal

from storage.releases.terms import Format
from tasks.atlas.shapes import GEOMETRY

CsvKeys = Literal[True, False, "every_level"]


def each_once(formats: list[Format]) -> list[Format]:
    """Refuse repeated formats."""
    if len(set(formats)) < len(formats):
        raise ValueError("must list each format once.")
    return formats


def faults_of_formats(
    formats: Sequence[Format],
    csv: CsvKeys | None,
    columns: Sequence[str],
    *,
    has_ends: bool,
    same_codebook: bool,
    has_shapes: bool,
) -> Iterator[str]:
    """Yield what keeps a list of formats from fitting the rest of a spec.

    Args:
        formats: the list.
        csv: the value of release.csv.
        columns: the published columns of codes.
        has_ends: whether the axes are the two ends of trips.
        same_codebook: whether both ends of trips have the same codebook.
        has_shapes: whether any axis has boundaries.
    """
    if "csv" in formats and csv is False:
        yield "release.formats must not list csv where release.csv is false."
    if "omx" in formats and not has_ends:
        yield "release.formats must not list omx without input.origin and input.destination: a matrix has trips from zone to zone."
    elif "omx" in formats and not same_codebook:
        yield (
            "release.formats must not list omx unless both ends have one hierarchy.table and the same levels: the rows and the columns"
            " of a matrix are the same zones."
        )
    if "geoparquet" in formats and not has_shapes:
        yield "release.formats must not list geoparquet without hierarchy.boundaries, which has the shapes of areas."
    elif "geoparquet" in formats and GEOMETRY in {column.casefold() for column in columns}:
        yield f"release.formats would give two columns of a published file the name {GEOMETRY}."
