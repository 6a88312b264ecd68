"""Axes, the order in which they are refined, frontiers, branches, and the tree of true counts."""
