"""Trees by their fan-outs alone, without codes, and what dense linear algebra says of their least squares."""

import numpy as np

from tasks.tree.axis import Axis
from tasks.tree.order import Tree
from tasks.unbiased.variance import portions_of


def axis_by(fan_outs, name="axis"):
    """Return an axis whose areas have so many children: level by level, a number per area."""
    first_child = tuple(np.concatenate(([0], np.cumsum(of))).astype(np.int64) for of in fan_outs)
    parent = tuple(np.repeat(np.arange(len(of)), of) for of in fan_outs)
    return Axis(name, tuple(f"{name}_{level}" for level in range(1, len(fan_outs) + 1)), first_child, parent, ())


def tree_by(*fan_outs, steps=None):
    """Return a tree over axes given as in `axis_by`, refined one after the other unless an order is given."""
    axes = tuple(axis_by(of, f"axis_{number}") for number, of in enumerate(fan_outs))
    in_turn = [number for number, axis in enumerate(axes) for _ in range(axis.depth)]
    return Tree(axes, tuple(in_turn if steps is None else steps))


def complete(branching, depth):
    """Return the fan-outs of a complete tree."""
    return [[branching] * branching**level for level in range(depth)]


def halved(n, branching=2):
    """Return the fan-outs of n leaves that are cut into parts of about the same size until each is alone."""
    sizes, fan_outs = [n], list[list[int]]()
    while len(sizes) < n:
        parts = [min(size, branching) for size in sizes]
        sizes = [size // of + (part < size % of) for size, of in zip(sizes, parts, strict=True) for part in range(of)]
        fan_outs.append(parts)
    return fan_outs


def drawn(generator, most=3, depth=4):
    """Return random fan-outs, from 1 to `most`, of one to `depth` levels."""
    fan_outs, areas = list[list[int]](), 1
    for _ in range(int(generator.integers(1, depth + 1))):
        fan_outs.append(generator.integers(1, most + 1, areas).tolist())
        areas = sum(fan_outs[-1])
    return fan_outs


def incidences(tree):
    """Return for levels 0 to T which leaves lie in each node, shape (nodes, leaves), both first axis first."""
    finest = tree.sizes(tree.depth)
    leaves = np.indices(finest).reshape(len(finest), -1)
    found = []
    for level in range(tree.depth + 1):
        reached = zip(tree.axes, leaves, tree.axis_levels(level), strict=True)
        above = [axis.ancestors(of, axis.depth, own) for axis, of, own in reached]
        cell = np.ravel_multi_index(above, tree.sizes(level))
        found.append(np.equal.outer(np.arange(tree.possible_cells(level)), cell).astype(np.float64))
    return found


def either(generator, tree):
    """Return a tree whose axes cascade, or not."""
    return tree.cascading([axis.name for axis in tree.axes] if generator.random() < 0.4 else ())


def portions(tree):
    """Return for levels 0 to T how precisely each node is measured, as a part of what its level says, shape (nodes,), in the order of `incidences`."""
    return [np.broadcast_to(of, tree.sizes(level)).ravel() for level, of in enumerate(portions_of(tree))]


def covariance(tree, precisions):
    """Return the covariance of the least-squares values of all leaves by dense algebra; a level of precision inf is met."""
    levels = list(zip(incidences(tree), precisions, strict=True))
    own = [1.0 if np.isinf(p) else p * of for of, p in zip(portions(tree), precisions, strict=True)]
    measured = sum(of.T * weights @ of for (of, _), weights in zip(levels, own, strict=True))
    found = np.linalg.pinv(measured, hermitian=True)
    for of, precision in levels:
        if np.isinf(precision):  # what is left once the counts are known
            together = found @ of.T
            found -= together @ np.linalg.pinv(of @ together, hermitian=True) @ together.T
    return found
