"""The universe of a spec: the tree over its codebooks, and the limits on its size."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from flows.mechanisms import Mechanism
from flows.spec.keys import Spec
from storage.errors import SpecError
from tasks.capacity import cores, default_memory
from tasks.tree.axis import axis_from_codebook
from tasks.tree.branches import memory_for, most_cells
from tasks.tree.order import Tree, alternate, in_sequence
from tasks.words.numbers import format_cells, rounded_down, rounded_up


def tree_over(codebooks: dict[str, Any], spec: Spec, unlisted: Collection[str] = ()) -> Tree:
    """Return the tree of a spec.

    Args:
        codebooks: the codebook of each axis.
        spec: the spec, which gives the order in which the axes are refined.
        unlisted: the axes without a codebook, whose table above has levels and no rows.
    """
    axes = tuple(
        replace(axis_from_codebook(name, codebook), is_listed=name not in unlisted)
        for name, codebook in codebooks.items()
    )
    depths = [axis.depth for axis in axes]
    if spec.release.order:
        return Tree(axes, in_sequence(depths, [spec.axes.index(feature) for feature in spec.release.order]))
    return Tree(axes, alternate(depths, spec.axes.index(spec.release.tree or spec.axes[0])))


def check_fan_out(tree: Tree, max_memory: int | None) -> None:
    """Refuse a node with more children than fit in memory. All children of a node are measured and optimised together."""
    memory = max_memory or default_memory()
    for level, axis in enumerate(tree.steps):
        own_level = tree.axis_levels(level)[axis]
        children = tree.axes[axis].most_children(own_level)
        if children > most_cells(memory, cores(), len(tree.axes)):
            names = tree.axes[axis].level_names
            one = f"one {names[own_level - 1]}" if own_level else "everything"
            raise SpecError(
                f"run.max_memory must be at least {rounded_up(memory_for(children, cores(), len(tree.axes)) / 1e9, 3)}GB: {one} holds"
                f" {children:,} areas of level {names[own_level]}, got {rounded_down(memory / 1e9, 3)}GB.",
                field="run.max_memory",
                hint="Raise run.max_memory, or add a level between the two to the codebook.",
            )


def check_leaves(spec: Spec, tree: Tree, mechanism: Mechanism) -> None:
    """Refuse a universe with more leaves than a mechanism can measure."""
    leaves, most = tree.possible_cells(tree.depth), mechanism.most_leaves
    if most is None or leaves <= most:
        return
    is_deep = any(axis.depth > 1 for axis in tree.axes)
    fewer = ["Choose a coarser level"] if is_deep else []
    if spec.input.features and len(tree.axes) > 1:
        fewer.append("leave a feature out" if fewer else "Leave a feature out")
    other = "mechanism inftda, which measures only below cells with a count"
    field = "input.features" if spec.input.features and not is_deep else "release.finest"
    raise SpecError(
        f"{field} must leave at most {most:,} leaves with mechanism {mechanism.name}, which draws and writes noise for"
        f" every leaf, got {format_cells(leaves)}.",
        field=field,
        hint=f"{', '.join(fewer)}, or choose {other}." if fewer else f"Choose {other}.",
    )
