"""The key of a spec that puts two ordered axes side by side, and the pairs of levels that this measures."""

from collections.abc import Iterator, Mapping, Sequence

from storage.counts.columns import column_name
from tasks.tree.order import alternate

_AXES = 2


def faults_of_grid(grid: Sequence[str], features: Sequence[str], ordered: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the axes of a grid.

    Args:
        grid: the axes that it names.
        features: the axes of the spec.
        ordered: those that are ordered.
    """
    if sorted(grid) != sorted(features) or len(grid) != _AXES:
        yield f"release.grid must name two features, and input.features these two alone, got {', '.join(grid)} of {', '.join(features)}."
        return
    for axis in grid:
        if axis not in ordered:
            yield (
                f"release.grid must name ordered axes, got {axis}. Give its codes in their order, as hierarchy.{axis}:"
                " {ordered: …}, or name the features in release.order."
            )


def pairs_beside_levels(
    grid: Sequence[str], levels: Mapping[str, Sequence[str]], flat: frozenset[str]
) -> dict[str, dict[str, str]]:
    """Return the pairs of levels of a grid that are no levels of its tree, as views: by name, the level of each axis that is not left out.

    Args:
        grid: the two axes.
        levels: the released levels of each axis, coarse to fine, in the order of the axes.
        flat: as in `column_name`.
    """
    axes = list(levels)
    reached = [0] * len(axes)
    of_tree = {tuple(reached)}
    for axis in alternate([len(levels[name]) for name in axes], axes.index(grid[0])):
        reached[axis] += 1
        of_tree.add(tuple(reached))
    one, two = axes
    pairs = ((above, below) for above in range(len(levels[one]) + 1) for below in range(len(levels[two]) + 1))
    found = {}
    for pair in pairs:
        if pair not in of_tree:
            view = {axis: levels[axis][level - 1] for axis, level in zip(axes, pair, strict=True) if level}
            found["_by_".join(column_name(axis, level, flat) for axis, level in view.items())] = view
    return found
