"""Measures true counts: noise is added, once per cell."""
