"""Comparisons of mechanisms on public tables."""
