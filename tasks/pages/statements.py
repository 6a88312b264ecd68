"""What templates state of a release: in README.md, in the report and on the first sheet of the workbook."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import polars as pl

from storage.releases.terms import ADJUSTED, COUNTS_POSITIVE, FIXED_TOTAL
from storage.tables import COUNT, ENDS, SIGNAL, SIZE
from tasks.format.manifest import Manifest
from tasks.format.published_tree import tree_of_spec
from tasks.format.stated import Twice, levels_stated, twice_the_noise, views_stated
from tasks.laws.named import LAWS
from tasks.pages.templates import headed_lines, markdown
from tasks.tree.order import Tree
from tasks.tree.ordered import ordered_axes
from tasks.words.areas import NAME, Names
from tasks.words.levels import about, level_columns, title_of

_FORMULA = r"^[=+\-@\t\r]"  # how codes and names begin that a spreadsheet takes for formulas
_NUMBER = r"^[+-]?[0-9]+([.,][0-9]+)?$"


@dataclass(frozen=True, slots=True)
class StatedFacts:
    """What templates ask about a release where its manifest does not say it in one field.

    Attributes:
        counts_flows: whether it counts trips from areas to areas.
        cells: the word for its cells.
        counted: the word for what it counts.
        twice: above what a true count stands above the noise.
        exact: the levels that are published exactly and that a unit could change; empty where only a public total is exact.
        has_negative: whether a count may be below zero.
        total_is_sum: whether the total is the sum of counts although the number of records is public.
        largest_size: of group sizes, the code of the largest one; empty for others.
        by_deviations: whether the intervals of sums follow from the deviations of counts.
        estimates_noise_rows: whether the share of noise rows is estimated, and not only bounded.
        law: of the noise that costs ε, by name.
        epsilon: the ε that it costs in all.
    """

    counts_flows: bool
    cells: str
    counted: str
    twice: Twice
    exact: Sequence[int]
    has_negative: bool
    total_is_sum: bool
    largest_size: str
    by_deviations: bool
    estimates_noise_rows: bool
    law: str
    epsilon: float


def facts_stated(manifest: Manifest) -> StatedFacts:
    """Return what templates ask about a release."""
    levels, counts_flows = manifest.levels, "origin" in manifest.roles.values()
    exact = [level.level for level in levels if level.is_exact and level.same_as is None]
    sizes = ordered_axes(manifest.spec)[SIZE].codes if manifest.counts_groups else [""]
    shares = [level.noise_rows for level in levels if level.noise_rows]
    return StatedFacts(
        counts_flows=counts_flows,
        cells="pairs" if tuple(manifest.roles.values()) == ENDS else "cells",
        counted="groups" if manifest.counts_groups else "records",
        twice=twice_the_noise(manifest),
        exact=exact if len(exact) > 1 or not manifest.privacy.exact_records_per_unit else [],
        has_negative=COUNTS_POSITIVE in manifest.waived,
        total_is_sum=FIXED_TOTAL in manifest.waived,
        largest_size=sizes[-1],
        by_deviations=manifest.is_unbiased and tree_of_spec(manifest) is not None,
        estimates_noise_rows={share.estimate for share in shares if share.at_most} != {None},
        law=LAWS[manifest.finest_drawn.mechanism].called,
        epsilon=fsum(entry.epsilon for entry in manifest.parts),
    )


def readme(manifest: Manifest, how_counted: str = ADJUSTED, formulas: Sequence[str] = ()) -> str:
    """Return the text of README.md, which a statistician passes on with the tables.

    Args:
        how_counted: how its mechanism counts, in words that follow "the noise in one measurement,".
        formulas: codes and names that a spreadsheet takes for formulas, from `formulas_in`.
    """
    columns = level_columns([level.axes for level in manifest.levels])
    of_levels = levels_stated(manifest)
    rows = [
        [level.level, *place, *stated.values()]
        for level, place, stated in zip(manifest.levels, zip(*columns.values(), strict=True), of_levels, strict=True)
    ]
    return markdown(
        "README.md",
        m=manifest,
        facts=facts_stated(manifest),
        title=title_of(manifest.spec, manifest.id),
        about=about(manifest.spec),
        how_counted=how_counted,
        formulas=formulas,
        columns=(COUNT, *manifest.bounds, SIGNAL),
        levels={"heads": ["level", *columns, *of_levels[0]], "rows": rows},
        views=views_stated(manifest),
    )


def workbook_words(manifest: Manifest, how_counted: str) -> list[tuple[str, list[str]]]:
    """Return what the first sheet of a workbook says before it lists the others: its headings, each with its paragraphs.

    Args:
        manifest: the release's manifest, as far as it is known.
        how_counted: as in `readme`.
    """
    facts, stated = facts_stated(manifest), about(manifest.spec)
    return headed_lines("workbook.txt", m=manifest, facts=facts, about=stated, how_counted=how_counted)


def formulas_in(tree: Tree, names: Names) -> list[str]:
    """Return the codes of a tree, and the names of its areas, that begin like a formula, sorted.

    Codes and names are published as the codebook has them, and CSV files have the names beside the codes. A spreadsheet that opens a
    CSV file evaluates what begins with =, +, - or @, unless it is a number.
    """
    finest = zip(tree.axes, tree.axis_levels(tree.depth), strict=True)
    codes = [codes for axis, level in finest for codes in axis.codes[:level]]
    texts = pl.concat([*codes, *(areas[NAME].rename("") for areas in names.tables.values())], rechunk=False)
    return texts.filter(texts.str.contains(_FORMULA) & ~texts.str.contains(_NUMBER)).unique().sort().to_list()
