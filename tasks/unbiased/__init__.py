"""Unbiased trees: every node measured, least squares, whole numbers by prefix sums."""
