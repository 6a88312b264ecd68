"""Consistency checks, error bounds and sizes."""
