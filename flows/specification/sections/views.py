"""The keys of a spec that name groupings of its cells: derived columns, views beside the tree, and axes side by side.

Below, `levels` are the released levels of each axis, coarse to fine, in the order of the axes, and `flat` is as in `column_name`.
A view has a name, and the level of each axis that is not left out.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from flows.specification.rules import Columns, Keys, Location
from storage.tables import NOISY, NUMBERS, SIGNAL, VARIANCE, column_name
from tasks.tree.order import alternate
from tasks.words.spelling import refinement, with_question

_MOST_TABLES = 500  # of a grid, each with files of its own


def faults_of_grid(grid: Sequence[str], depths: Mapping[str, int]) -> Iterator[str]:
    """Yield what is wrong with the axes of a grid, given how many levels of each axis are released."""
    if sorted(grid) != sorted(depths) or len(grid) < 2:
        yield (
            f"release.grid must name every axis of the release once, and at least two, got {', '.join(grid)} of"
            f" {', '.join(depths)}."
        )
        return
    tables = math.prod(depth + 1 for depth in depths.values())
    if tables > _MOST_TABLES:
        levels = ", ".join(f"{name} {depth}" for name, depth in depths.items())
        yield (
            f"release.grid must make at most {_MOST_TABLES} tables, one for each choice of a level, or none, of every axis, got"
            f" {tables:,}. The axes have so many levels: {levels}; a larger branching or a coarser finest makes fewer."
        )


def tables_beside_levels(
    grid: Sequence[str], levels: Mapping[str, Sequence[str]], flat: frozenset[str]
) -> dict[str, dict[str, str]]:
    """Return the tables of a grid that are no levels of its tree, as views."""
    axes = list(levels)
    reached = [0] * len(axes)
    of_tree = {tuple(reached)}
    for axis in alternate([len(levels[name]) for name in axes], axes.index(grid[0])):
        reached[axis] += 1
        of_tree.add(tuple(reached))
    views = [
        {axis: levels[axis][level - 1] for axis, level in zip(axes, at, strict=True) if level}
        for at in product(*(range(len(of) + 1) for of in levels.values()))
        if at not in of_tree
    ]
    return {"_by_".join(column_name(axis, level, flat) for axis, level in view.items()): view for view in views}


MARGINS, ONE_WAY, ATTRIBUTES, NO_VIEWS = "margins", "one_way", "attributes", "none"
_MOST_PAIRED = 3  # attributes of which all pairs are views by default

LEAVES, TREE = "leaves", "tree"  # what `privacy.split` calls what is measured beside views

# pydantic adds these names to the path of an error
_BY_RULE, _BY_NAME = "<by rule>", "<by view>"
VIEW_TAGS = {_BY_RULE, _BY_NAME}

_RESERVED = {LEAVES, TREE, MARGINS, ONE_WAY, ATTRIBUTES, NO_VIEWS, "finest", "geometric", "minimise", "uniform"}
NOT_OF_CODES = (*NUMBERS, SIGNAL, NOISY, VARIANCE)  # columns of published tables that no axis may have
_FORM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


class DerivedKeys(Keys):
    """A column that is a public function of the axes, such as the mode of a trip or its distance band.

    Attributes:
        table: The public table of it: a column for each axis in `of`, named as the axis, and one named as this column. It lists
            every combination of codes once. It must not be made from the records.
        of: The axes on which it depends, each with a level: axis.level. An axis alone means its finest level.
    """

    table: Location
    of: Columns


def _one_column(value: object) -> object:
    """Return the levels of a view as text; YAML reads an empty value as nothing."""
    return {} if value is None else value


Views = Annotated[
    Annotated[Literal["margins", "one_way", "attributes", "none"], Tag(_BY_RULE)]
    | Annotated[dict[str, Annotated[dict[str, str], BeforeValidator(_one_column)]], Field(min_length=1), Tag(_BY_NAME)],
    Discriminator(lambda value: _BY_RULE if isinstance(value, str) else _BY_NAME),
]


def margin_views(levels: Mapping[str, Sequence[str]], flat: frozenset[str]) -> dict[str, dict[str, str]]:
    """Return the views that `views: margins` stands for: the totals of every axis at every level, named as their columns."""
    return {column_name(axis, level, flat): {axis: level} for axis, names in levels.items() for level in names}


def one_way_views(levels: Mapping[str, Sequence[str]], flat: frozenset[str]) -> dict[str, dict[str, str]]:
    """Return the views that `views: one_way` stands for: the totals of every axis at its finest level, named as their columns."""
    return margin_views({axis: names[-1:] for axis, names in levels.items()}, flat)


def attribute_views(
    levels: Mapping[str, Sequence[str]], flat: frozenset[str], ends: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the views that `views: attributes` stands for: `margin_views`, each attribute by the coarsest level of each end, and pairs of a few attributes."""
    attributes = [axis for axis in levels if axis not in ends]
    pairs = combinations(attributes, 2) if ends and len(attributes) <= _MOST_PAIRED else ()
    views = margin_views(levels, flat)
    for one, other in (*product(ends, attributes), *pairs):
        view = {one: levels[one][0 if one in ends else -1], other: levels[other][-1]}
        views["_by_".join(column_name(axis, level, flat) for axis, level in view.items())] = view
    return views


def faults_of_derived(
    derived: Mapping[str, DerivedKeys], levels: Mapping[str, Sequence[str]], flat: frozenset[str]
) -> Iterator[str]:
    """Yield what is wrong with derived columns, by their names, but for their tables."""
    columns = {column_name(axis, level, flat).casefold() for axis, names in levels.items() for level in names}
    columns |= {column_name(axis, level).casefold() for axis, names in levels.items() for level in names}
    taken = {*map(str.casefold, levels), *columns, *NOT_OF_CODES}
    for name, keys in derived.items():
        if name.casefold() in taken or not _FORM.fullmatch(name):
            yield (
                f"derived.{name} must have a name of its own, of letters, digits, - and _ and at most 64: no axis, no"
                f" column of codes, no other derived column and none of {', '.join(NOT_OF_CODES)} may have it, in upper or"
                " lower case."
            )
        taken.add(name.casefold())
        places = [refinement(one, levels) for one in keys.of]
        for one, place in zip(keys.of, places, strict=True):
            if place is None:
                released = [f"{axis}.{level}" for axis, names in levels.items() for level in names]
                rule = f"derived.{name}.of must name released levels as axis.level"
                yield with_question(f"{rule}, got {one}.", one, released)
        axes = [place[0] for place in places if place]
        if len(set(axes)) < len(axes):
            yield f"derived.{name}.of must name each axis once."


def faults_of_views(
    views: Mapping[str, Mapping[str, str]], levels: Mapping[str, Sequence[str]], derived: Sequence[str]
) -> Iterator[str]:
    """Yield what is wrong with the views that a spec names, given the names of its derived columns."""
    if len({name.casefold() for name in views}) < len(views):
        yield "release.views must have names that differ by more than upper and lower case."
    for name, of in views.items():
        key = f"release.views.{name}"
        if not _FORM.fullmatch(name) or name in _RESERVED or re.fullmatch(r"level_\d+", name):
            yield (
                f"{key} must have a name of at most 64 letters, digits, - and _, other than"
                f" {', '.join(sorted(_RESERVED))} and level_<number>."
            )
        wrong = list(_faults_of_view(key, of, levels, derived))
        yield from wrong
        if not wrong and {axis: names[-1] for axis, names in levels.items()} == {
            axis: level for axis, level in of.items() if axis in levels
        }:
            yield f"{key} must be coarser than the leaves, which are measured anyway: leave an axis out, or name a level above."


def _faults_of_view(
    key: str, of: Mapping[str, str], levels: Mapping[str, Sequence[str]], derived: Sequence[str]
) -> Iterator[str]:
    for axis, level in of.items():
        if axis in derived:
            if level != axis:
                yield f"{key}.{axis} must be {axis}: a derived column has one level."
        elif axis not in levels:
            known = [*levels, *derived]
            rule = f"{key} must name axes or derived columns ({', '.join(known)})"
            yield with_question(f"{rule}, got {axis}.", axis, known)
        elif level not in levels[axis]:
            rule = f"{key}.{axis} must be one of the released levels {', '.join(levels[axis])}"
            yield with_question(f"{rule}, got {level}.", level, levels[axis])


def faults_of_weights(weights: Mapping[str, float], known: Sequence[str], key: str) -> Iterator[str]:
    """Yield which weights are of nothing that is measured."""
    for name in weights:
        if name not in known:
            rule = f"{key} must name what is measured ({', '.join(known)})"
            yield with_question(f"{rule}, got {name}.", name, known)
