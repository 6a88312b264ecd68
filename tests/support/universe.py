"""Small universes made from paths of codes, and strategies that draw them."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import polars as pl
from hypothesis import strategies as st

from storage.tables import ENDS
from tasks.tree.axis import axis_from_codebook
from tasks.tree.order import Tree

Path = tuple[str, ...]  # the codes of an area and of the areas that hold it, coarse to fine
Node = tuple[Path, ...]  # a path per axis
ROLES = {end: end for end in ENDS}
CODES = ["a", "b", "c", "10", "9", "é"]  # few, so that the same code often lies under several areas


@dataclass(frozen=True)
class Universe:
    """A tree under test with the sorted paths of each axis' finest areas, so that tests can find its nodes without it."""

    tree: Tree
    paths: tuple[tuple[Path, ...], ...]

    def leaves(self):
        """Return every combination of finest areas."""
        return list(product(*self.paths))

    def node(self, leaf, level):
        """Return the node of a tree level that holds a leaf."""
        steps = self.tree.steps[:level]
        return tuple(path[: steps.count(axis)] for axis, path in enumerate(leaf))

    def nodes(self, level):
        """Return all nodes of a tree level, in the order of the tree."""
        return self.sort({self.node(leaf, level) for leaf in self.leaves()}, level)

    def sort(self, nodes, level):
        """Return nodes of a tree level in the order of the tree: by the path of every step, first step first."""
        steps = self.tree.steps[:level]
        reached = [(axis, steps[: step + 1].count(axis)) for step, axis in enumerate(steps)]
        return sorted(nodes, key=lambda node: [node[axis][:own_level] for axis, own_level in reached])

    def areas(self, node):
        """Return, per axis, the number of a node's area: the rank of its path among the paths of its length."""
        return tuple(ranks[prefix] for ranks, prefix in zip(self._ranks, node, strict=True))

    @cached_property
    def _ranks(self):
        return [
            {
                prefix: rank
                for length in range(len(paths[0]) + 1)
                for rank, prefix in enumerate(sorted({path[:length] for path in paths}))
            }
            for paths in self.paths
        ]


def axis_of(name, paths):
    """Return an axis from paths of codes; one with the name of an end of trips is that end."""
    levels = [f"level_{level}" for level in range(1, len(paths[0]) + 1)]
    table = pl.DataFrame(list(paths), schema=levels, orient="row").sort(levels)
    return axis_from_codebook(name, table, ROLES.get(name))


def universe_of(paths, steps):
    """Return a universe from the paths of each axis and the order of refinement."""
    axes = tuple(axis_of(f"axis_{number}", of_axis) for number, of_axis in enumerate(paths))
    return Universe(Tree(axes, tuple(steps)), tuple(tuple(sorted(of_axis)) for of_axis in paths))


@st.composite
def codebooks(draw, most_depth, most_areas):
    """Draw the sorted paths of one axis."""
    depth = draw(st.integers(1, most_depth))
    paths = st.tuples(*[st.sampled_from(CODES)] * depth)
    return sorted(draw(st.sets(paths, min_size=1, max_size=most_areas)))


@st.composite
def universes(draw):
    """Draw a universe of one to three axes, refined in any order."""
    paths = draw(st.lists(codebooks(3, 6), min_size=1, max_size=3))
    steps = [axis for axis, of_axis in enumerate(paths) for _ in of_axis[0]]
    return universe_of(paths, draw(st.permutations(steps)))
