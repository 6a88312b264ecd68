"""Comparisons of mechanisms on tables that may be seen."""
