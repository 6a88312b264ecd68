"""The levels of a release as rows of a table."""

from tasks.format.manifest import LevelEntry, Manifest
from tasks.report.levels import above_noise_of, deviations_of, noise_rows_of, twice_the_noise
from tasks.words.numbers import NOT_STATED, format_bound, format_sigma

_ALWAYS = ("rows", "noise (sigma)")  # columns that every table of levels has


def facts_of_levels(manifest: Manifest) -> list[dict[str, str]]:
    """Return, per level, what tables of levels say of it, by heading; no column that would be empty."""
    rows = [_row(level, manifest) for level in manifest.levels]
    heads = [head for head in rows[0] if head in _ALWAYS or any(row[head] != NOT_STATED for row in rows)]
    return [{head: row[head] for head in heads} for row in rows]


def _row(level: LevelEntry, manifest: Manifest) -> dict[str, str]:
    """Return the cells of a level by their headings."""
    return {
        "rows": f"{level.nonzero:,}",
        "noise (sigma)": format_sigma(level.sigma, summed=level.summed, digits=2)
        + ("" if level.same_as is None else f", same as level {level.same_as}")
        + (", a sum" if level.summed and level.sigma and manifest.sums_of_source else ""),
        "sd of a count": deviations_of(level),
        "noise rows": noise_rows_of(level),
        f"rows, records above {twice_the_noise(manifest)[0]}": above_noise_of(level),
        "error bound (95%)": format_bound(level.sigma, level.bound, summed=level.summed),
        "bound as released": format_bound(level.sigma, level.bound_after, summed=level.summed),
    }
