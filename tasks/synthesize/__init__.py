"""Synthetic tables, labelled as such, for demonstrations, tests and benchmarks. Equal states of a generator draw equal tables."""
