"""The views of a release as a table in Markdown."""

from textwrap import fill

from tasks.format.manifest import Manifest, ViewEntry
from tasks.words.numbers import format_percent, format_sigma

VIEW_HEADS = ("view", "counts by", "cells", "cost", "noise (sigma)", "interval")


def views_section(manifest: Manifest) -> str:
    """Return the views as a table in Markdown; empty if there is none."""
    if not manifest.views:
        return ""
    confidence = format_percent(manifest.intervals.confidence)
    rows = "\n".join(f"| {' | '.join(row)} |" for row in view_rows(manifest))
    return f"""
Views are groupings beside the tree. Each lists all its cells, those with a count of 0 too. With {confidence} probability, the true count of
a cell that was fixed beforehand lies between `low` and `high`.

| {" | ".join(VIEW_HEADS)} |
|{"---|" * len(VIEW_HEADS)}
{rows}
{_wrapped(manifest.warning_of_views)}"""


def view_rows(manifest: Manifest) -> list[list[str]]:
    """Return a row per view: its name, what it counts by, its cells, its cost, its noise and its interval."""
    return [
        [
            view.name,
            ", ".join(f"{level} of {axis}" if level != axis else axis for axis, level in view.axes.items() if level)
            or "everything",
            f"{view.cells:,}",
            _cost_of_view(view),
            "exact" if not view.sigma else format_sigma(view.sigma, summed=view.summed),
            "exact" if not view.sigma else "differs" if view.half_width is None else f"± {view.half_width:,}",
        ]
        for view in manifest.views
    ]


def _cost_of_view(view: ViewEntry) -> str:
    """Return what a view costs, or with which level it shares its cells and its cost."""
    if view.same_as is not None or view.summed:
        return f"as level {view.source if view.same_as is None else view.same_as}"
    return f"ε = {view.epsilon:.4g}" if view.epsilon else f"ρ = {view.rho:.4g}"


def _wrapped(paragraph: str) -> str:
    return f"\n{fill(paragraph, 118, break_on_hyphens=False)}\n" if paragraph else ""
