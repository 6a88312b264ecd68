"""The sources that a manifest states: the measurements from whose noisy counts the intervals of levels and views follow."""

import math
from collections.abc import Mapping

import numpy as np
import polars as pl

from tasks.format.manifest import LevelEntry, Manifest, ViewEntry
from tasks.format.published_tree import derived_places, view_columns, view_of
from tasks.laws.law import LevelNoise
from tasks.laws.named import noise_of
from tasks.tree.order import Tree
from tasks.tree.views import Derived, View
from tasks.uncertainty.sources import best_source

_NO_CODES = pl.Series([], dtype=pl.String), np.zeros(0, dtype=np.int32)


def source_failures(manifest: Manifest, finest: pl.DataFrame) -> list[str]:
    """Return which sources cannot be the measurements that say most about their levels and views, as far as that shows without a codebook.

    A source is measured and refines its level or view, and no measurement in between has as little noise. A sum has the noise of a
    whole number of cells of its source.

    Args:
        manifest: the manifest.
        finest: the released cells of the finest level, with the derived columns.
    """
    derived = {name: Derived(name, of, *_NO_CODES) for name, of in derived_places(manifest).items()}
    measured = _measured(manifest, derived)
    entries = {part.level: part for part in manifest.parts}
    failures = []
    for part in [*manifest.levels, *manifest.views]:
        if part.source not in measured:
            failures.append(f"{_named(part)} must have a source that was measured.")
            continue
        own, (source, noise) = view_of(manifest, part, derived), measured[part.source]
        between = [
            number
            for number, (view, other) in measured.items()
            if number != part.source and source.refines(view) and view.refines(own) and other.variance <= noise.variance
        ]
        if not (source.refines(own) or _follows(manifest, part, entries[source.number], finest)):
            failures.append(f"{_named(part)} has a source that does not refine it.")
        elif between:
            failures.append(
                f"{_named(part)} must have a source that says as much about it as {_named(entries[between[0]])}."
            )
        elif part.summed and not _is_sum(part.sigma, noise):
            failures.append(f"{_named(part)} has a sigma that is not that of sums of its source.")
    return failures


def best_source_failures(manifest: Manifest, derived: Mapping[str, Derived], tree: Tree) -> list[str]:
    """Return which sources are not the measurements that say most about their levels and views, by the published codebook."""
    measured, failures = _measured(manifest, derived), []
    for part in [*manifest.levels, *manifest.views]:
        number, noise = best_source(view_of(manifest, part, derived), measured, tree)
        if part.source != number:
            failures.append(f"{_named(part)} must have source {number}, which says most about it.")
        elif part.summed and not math.isclose(part.sigma, noise.sigma, rel_tol=1e-9):
            failures.append(f"{_named(part)} has a sigma that is not that of sums of its source.")
    return failures


def _measured(manifest: Manifest, derived: Mapping[str, Derived]) -> dict[int, tuple[View, LevelNoise]]:
    """Return what is measured or exact, by number, with the noise of a cell."""
    return {
        part.level: (view_of(manifest, part, derived), noise_of(part)) for part in manifest.parts if not part.summed
    }


def _follows(manifest: Manifest, part: LevelEntry, source: LevelEntry, finest: pl.DataFrame) -> bool:
    """Return whether the codes of a level or view follow from those of its source in every released cell, as codebooks may make them."""
    of_source = view_columns(manifest, source)
    both = list(dict.fromkeys([*of_source, *view_columns(manifest, part)]))
    cells = finest.select(of_source).n_unique() if of_source else min(finest.height, 1)
    return finest.select(both).n_unique() == cells


def _is_sum(sigma: float, noise: LevelNoise) -> bool:
    """Return whether a σ is that of a sum of a whole number of cells with some noise."""
    if not noise:
        return sigma == 0
    terms = (sigma / noise.sigma) ** 2
    return terms > 0.5 and math.isclose(terms, round(terms), rel_tol=1e-9)


def _named(part: LevelEntry) -> str:
    """Return how a failure names a level or view."""
    return f"manifest.json: view {part.name}" if isinstance(part, ViewEntry) else f"manifest.json: level {part.level}"
