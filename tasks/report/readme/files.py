"""The files of a published folder, a line of Markdown each."""

from storage.counts.columns import COUNT, SIGNAL
from tasks.format.manifest import Manifest

_CSV: dict[bool | str, str] = {
    True: "- `counts.csv`: the finest level again, as CSV. Read the codes as text: leading zeros matter.\n",
    "every_level": "- `counts/level_<k>.csv`: the same tables as CSV. Read the codes as text: leading zeros matter.\n",
    False: "",
}
_PARTS = "- `counts/level_<k>/part-0000.parquet` and so on: a large level, in parts that follow one another in the order of the codes.\n"
_METADATA = (
    "- `metadata.json`: a description of the columns of the CSV files, for programs (CSVW,"
    " https://www.w3.org/ns/csvw).\n"
)
_NOISY_COUNTS = (
    "- `noisy_counts/level_<k>.parquet`: the measurements, one row per measured cell: the count with unbiased noise, a whole\n"
    "  number that may be below zero, and the variance of the noise. Use them for your own estimates. Areas have the numbers\n"
    "  of `noisy_counts/codebook.parquet`.\n"
)
_RECORDS = {
    "csv": "- `records.csv`: the finest level again, with one row for each record that it counts. No row belongs to anyone.\n",
    "parquet": "- `records.parquet`: the finest level again, with one row for each record that it counts. No row belongs to"
    " anyone.\n",
    "left out": "- The spec asks for synthetic records. They are left out, because the finest level counts too many records to"
    " write a\n  row for each.\n",
    None: "",
}
_FORMATS = {
    "xlsx": "- `counts.xlsx`: a workbook for spreadsheets, with a sheet for each table. Its first sheet says how to read the others.\n",
    "omx": "- `omx/level_<k>.omx`: matrices for transport models (Open Matrix), of each level with the same areas at both ends: rows are\n"
    "  origins, columns destinations. A missing row has the count 0, and no `low` and `high`. The mapping `zone_code` has the codes.\n",
    "geoparquet": "- `geo/level_<k>.parquet`: the tables of levels with the shapes of areas (GeoParquet), for maps. With two axes, a row is a\n"
    "  line from a point in one area to a point in the other.\n",
    "sdmx": "- `sdmx/level_<k>.csv`: the tables of levels as SDMX-CSV 2.0. `sdmx/structure.xml` has their structure, as SDMX-ML 3.0.\n",
}
_ALWAYS = (
    "- `report.html`: the same information with pictures, for a browser; it needs no network.\n"
    "- `explorer.html`: look up areas, pairs and attributes by name, with their intervals and how to quote them; for a browser,"
    " without a network.\n"
    "- `manifest.json`: the spec, the guarantee, the noise of every level, the hashes of codebooks and of sealed measurements.\n"
    "- `SHA256SUMS`: the hash of each file. `sha256sum --check SHA256SUMS` compares them; `trellis verify` also checks the content.\n"
)


def files_section(manifest: Manifest) -> str:
    """Return what the files of the folder are: a list in Markdown."""
    columns = "`, `".join((COUNT, *manifest.bounds, SIGNAL))
    lines = [
        f"- `counts/level_<k>.parquet`: one table per level. Codes are text, from coarse to fine; the columns after them are `{columns}`.\n",
        _PARTS if any(entry.parts for entry in manifest.levels) else "",
        _CSV[manifest.csv],
        _files_of_signal(manifest),
        _files_of_views(manifest),
        _files_of_areas(manifest),
        _files_of_formats(manifest),
        _NOISY_COUNTS if manifest.noisy_counts else "",
        _file_of_records(manifest),
        _METADATA if manifest.csv or manifest.records == "csv" else "",
        _ALWAYS,
    ]
    return "".join(lines)


def _file_of_records(manifest: Manifest) -> str:
    """Return the line about the synthetic records, and that their sums differ from views where they do."""
    line = _RECORDS[manifest.records]
    if not manifest.differences or manifest.records in {None, "left out"}:
        return line
    named = ", ".join(f"`{name}`" for name in manifest.differences)
    return f"{line.rstrip()}\n  Its sums differ from the tables of {named}, as stated above: take these totals from the views.\n"


def _files_of_signal(manifest: Manifest) -> str:
    """Return the line about the tables of the rows that stand out; empty without them."""
    if not manifest.signal_tables:
        return ""
    finest, also = manifest.signal_tables[-1], "; the same as CSV beside it" if manifest.csv else ""
    return (
        "- `signal/level_<k>.parquet`: the rows of each level that stand out, and remainder rows, so that they add up: "
        f"{finest.rows:,} rows\n  at the finest level{also}.\n"
    )


def _files_of_formats(manifest: Manifest) -> str:
    """Return the lines about the files of more kinds, and the tables that are too large for one; empty if there are none."""
    lines = ""
    for name in manifest.formats:
        lines += _FORMATS[name]
        if left_out := manifest.left_out.get(name):
            tables = ", ".join(f"`{path}`" for path in left_out)
            lines += f"  Tables that are too large for it are left out: {tables}.\n"
    return lines


def _files_of_areas(manifest: Manifest) -> str:
    """Return the lines about the names and the shapes of areas; empty if there are none."""
    lines = ""
    if manifest.names:
        lines += (
            "- `names/<column of codes>.parquet`: what areas are called; CSV files have the names beside the codes.\n"
        )
    if manifest.boundaries:
        lines += "- `boundaries/<column of codes>.parquet`: the shapes of areas, as GeoParquet in degrees (WGS 84).\n"
    return lines


def _files_of_views(manifest: Manifest) -> str:
    """Return the lines about the files of views and of derived columns; empty if there are none."""
    if not manifest.views:
        return ""
    lines = "- `views/<name>.parquet`: one table per view: its codes, `count`, `low` and `high`" + (
        "; the same as CSV beside it.\n" if manifest.csv else ".\n"
    )
    if manifest.derived:
        names = ", ".join(f"`{name}`" for name in manifest.derived)
        lines += f"- `derived/<name>.parquet`: what {names} is for every combination of codes on which it depends.\n"
    return lines
