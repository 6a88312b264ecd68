"""What a manifest states of levels and views, as texts: the same in every table of them, whoever shows it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.format.entries import LevelEntry, ViewEntry
from tasks.format.manifest import Manifest
from tasks.words.numbers import (
    NOT_STATED,
    format_bound,
    format_deviations,
    format_noise_rows,
    format_share,
    format_sigma,
)

_ALWAYS = ("rows", "noise (sigma)")  # columns that every table of levels has


@dataclass(frozen=True, slots=True)
class Twice:
    """Above what a true count stands above the noise, in short and in words."""

    short: str
    long: str


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts: its heads, one per column, and its rows, one cell per column."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def twice_the_noise(manifest: Manifest) -> Twice:
    """Return above what a true count stands above the noise: unbiased counts have a deviation of their own."""
    return (
        Twice("2 sd", "twice its standard deviation") if manifest.is_unbiased else Twice("2 sigma", "twice the noise")
    )


def noise_rows_of(level: LevelEntry) -> str:
    """Return which share of a level's rows is noise alone, estimated and at most."""
    share = level.noise_rows
    return format_noise_rows(share.estimate, share.at_most) if share else NOT_STATED


def deviations_of(level: LevelEntry) -> str:
    """Return the least and the most standard deviation of the counts of a level, where every node was measured."""
    return format_deviations(level.deviations.least, level.deviations.most) if level.deviations else NOT_STATED


def above_noise_of(level: LevelEntry) -> str:
    """Return which share of a level's rows, and of its records, is estimated to be in cells above twice the noise."""
    above = level.above_noise
    return f"{format_share(above.rows)}, {format_share(above.records)}" if above and level.sigma else NOT_STATED


def levels_stated(manifest: Manifest) -> list[dict[str, str]]:
    """Return, per level, what tables of levels say of it, by heading; no column that would be empty."""
    rows = [_level(level, manifest) for level in manifest.levels]
    heads = [head for head in rows[0] if head in _ALWAYS or any(row[head] != NOT_STATED for row in rows)]
    return [{head: row[head] for head in heads} for row in rows]


def _level(level: LevelEntry, manifest: Manifest) -> dict[str, str]:
    """Return the cells of a level by their headings."""
    return {
        "rows": f"{level.nonzero:,}",
        "noise (sigma)": format_sigma(level.sigma, summed=level.summed, digits=2)
        + ("" if level.same_as is None else f", same as level {level.same_as}")
        + (", a sum" if level.summed and level.sigma and manifest.sums_of_source else ""),
        "sd of a count": deviations_of(level),
        "noise rows": noise_rows_of(level),
        f"rows, records above {twice_the_noise(manifest).short}": above_noise_of(level),
        "error bound (95%)": format_bound(level.sigma, level.bound, summed=level.summed),
        "bound as released": format_bound(level.sigma, level.bound_after, summed=level.summed),
    }


def views_stated(manifest: Manifest) -> TextTable:
    """Return a row per view: its name, what it counts by, its cells, its cost, its noise, its standard deviations where it has some, and its interval."""
    has_deviations = any(view.deviations for view in manifest.views)
    rows = [
        [
            view.name,
            ", ".join(f"{level} of {axis}" if level != axis else axis for axis, level in view.axes.items() if level)
            or "everything",
            f"{view.cells:,}",
            _cost_of_view(view),
            "exact" if not view.sigma else format_sigma(view.sigma, summed=view.summed),
            *([deviations_of(view)] if has_deviations else []),
            "exact" if not view.sigma else "differs" if view.half_width is None else f"± {view.half_width:,}",
        ]
        for view in manifest.views
    ]
    of_noise = ["noise (sigma)", *(["sd of a count"] if has_deviations else []), "interval"]
    return TextTable(["view", "counts by", "cells", "cost", *of_noise], rows)


def _cost_of_view(view: ViewEntry) -> str:
    """Return what a view costs, or with which level it shares its cells and its cost."""
    if view.same_as is not None or view.summed:
        return f"as level {view.source if view.same_as is None else view.same_as}"
    return f"ε = {view.epsilon:.4g}" if view.epsilon else f"ρ = {view.rho:.4g}"
