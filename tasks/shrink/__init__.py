"""Shrinks estimates down a tree: a prior is fitted to the estimates of each level, and totals are shared out by the posterior."""
