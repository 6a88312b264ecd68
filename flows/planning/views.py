"""The views of a release: what its spec names beside the tree, over the codebooks."""

import math
from collections.abc import Mapping, Sequence

from flows.spec.file import SpecFile
from flows.spec.keys import Spec
from storage.errors import SpecError
from storage.machine.files import sha256_of
from storage.releases.terms import ViewTerms
from tasks.ingest.derived import DerivedSource, read_derived
from tasks.ingest.task import Source
from tasks.tree.order import Tree
from tasks.tree.views import Derived, View, every_level
from tasks.words.refinements import refinement

MOST_VIEW_CELLS = 10**7


def derived_sources(file: SpecFile) -> tuple[DerivedSource, ...]:
    """Return where the derived columns of a spec come from.

    Raises:
        InputError: a table does not exist.
    """
    spec, found = file.spec, []
    for name, keys in spec.derived.items():
        of = tuple(place for one in keys.of if (place := refinement(one, spec.released_levels)))
        table = file.table(f"derived.{name}.table", keys.table)
        found.append(DerivedSource(name, table, of, sha256_of(table.path)))
    return tuple(found)


def derived_columns(sources: Sequence[DerivedSource], of: Source, tree: Tree) -> dict[str, Derived]:
    """Return the derived columns of a spec, by name. Does not open the confidential table."""
    codes = {column for axis in of.axes for column in axis.columns}
    return {source.name: read_derived(source, of.table, codes, of.count, tree) for source in sources}


def views_of(spec: Spec, tree: Tree, derived: Mapping[str, Derived]) -> tuple[tuple[ViewTerms, View], ...]:
    """Return the views of a spec, in its order, with their terms; one with the cells of a tree level has the number of that.

    Raises:
        SpecError: two views have the same cells, or one has too many.
    """
    found, levels = list[tuple[ViewTerms, View]](), every_level(tree)
    number = len(levels)
    for name, of in spec.views.items():
        view = _view(number, of, tree, derived)
        for terms, other in found:
            if view.is_same_as(other):
                raise SpecError(
                    f"release.views.{name} must not repeat another view: it has the cells of {terms.name}.",
                    field=f"release.views.{name}",
                )
        if (cells := math.prod(view.sizes(tree))) > MOST_VIEW_CELLS:
            raise SpecError(
                f"release.views.{name} must have at most {MOST_VIEW_CELLS:,} cells, got {cells:,}.",
                field=f"release.views.{name}",
                hint="Name coarser levels, or leave an axis out.",
            )
        level = next((level for level in levels if view.is_same_as(level)), None)
        if level is None:
            number += 1
        view = level or view
        columns = tuple(column.name for column in view.derived)
        found.append((ViewTerms(name, view.number, view.axis_levels, columns), view))
    return tuple(found)


def _view(number: int, of: Mapping[str, str], tree: Tree, derived: Mapping[str, Derived]) -> View:
    levels = tuple(axis.level_names.index(of[axis.name]) + 1 if axis.name in of else 0 for axis in tree.axes)
    columns = tuple(column for name, column in derived.items() if name in of)
    names: dict[str, str | None] = {axis.name: of.get(axis.name) for axis in tree.axes}
    return View(number, levels, names | {column.name: column.name for column in columns}, columns)
