"""Consistency checks and error bounds."""
