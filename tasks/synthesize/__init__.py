"""Synthetic tables, labelled as such, for demonstrations, tests and benchmarks."""
