"""The README of a published folder: what a statistician passes on with the tables."""

from textwrap import fill

from storage.releases.terms import ADJUSTED
from tasks.format.manifest import Manifest
from tasks.report.readme.files import files_section
from tasks.report.readme.levels import facts_of_levels
from tasks.report.readme.protected import protection
from tasks.report.readme.reading import reading
from tasks.report.readme.views import views_section
from tasks.words.levels import level_columns
from tasks.words.readers import about, title_of


def readme(manifest: Manifest, how_counted: str = ADJUSTED, formulas: str = "") -> str:
    """Return the text of README.md.

    Args:
        manifest: the release's manifest.
        how_counted: how its mechanism counts, in words that follow "the noise in one measurement,".
        formulas: a warning about codes, from `formulas_in`; empty if there is nothing to warn of.
    """
    unprotected = "\n".join(f"- {statement}" for statement in manifest.unprotected) or "- nothing"
    columns = level_columns([level.axes for level in manifest.levels])
    places = zip(*columns.values(), strict=True)
    of_levels = facts_of_levels(manifest)
    heads = list(of_levels[0])
    levels = "\n".join(
        f"| {level.level} | {' | '.join(place)} | {' | '.join(row.values())} |"
        for level, place, row in zip(manifest.levels, places, of_levels, strict=True)
    )
    superseded = f"\n\n{text}" if (text := revision(manifest)) else ""
    stated = f"{fill(text, 120)}\n\n" if (text := about(manifest.spec)) else ""
    finest = "areas" if "origin" in manifest.roles.values() else "cells"
    return f"""# {title_of(manifest.spec, manifest.id)}

`{manifest.id}`

{stated}Counts with differential privacy, on {len(manifest.levels)} levels from the total to the finest {finest}{_and_views(manifest)}. Trellis
{manifest.versions["trellis"]} made them with the mechanism `{manifest.mechanism}`.{superseded}

## What is protected

{protection(manifest)}

Not protected, because it is published exactly:

{unprotected}

## How to read the counts

{reading(manifest, how_counted, formulas)}

| level | {" | ".join(columns)} | {" | ".join(heads)} |
|---|{"---|" * (len(columns) + len(heads))}
{levels}
{views_section(manifest)}{f"{chr(10)}{text}{chr(10)}" if (text := manifest.warning_of_margins) else ""}
## Files

{files_section(manifest)}"""


def _and_views(manifest: Manifest) -> str:
    many = len(manifest.views)
    return f", and in {many} view{'s' if many > 1 else ''}" if many else ""


def revision(manifest: Manifest) -> str:
    """Return in Markdown which release this one replaces; empty if it replaces none."""
    if manifest.supersedes is None:
        return ""
    return (
        f"**This release supersedes `{manifest.supersedes}`:** use these counts instead of the earlier ones. They are a new"
        " measurement with\nnoise of its own, so a count that differs does not have to mean that anything has changed."
    )
