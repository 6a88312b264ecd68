"""Axes, the order in which they are refined, frontiers, branches, and the tree of true counts.

The areas of nodes or cells are an array per axis, int64, shape (nodes,), numbered at the axis level that is meant.
"""
