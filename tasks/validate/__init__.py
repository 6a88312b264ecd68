"""Consistency checks, error bounds, intervals and sizes."""
