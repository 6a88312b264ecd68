"""Answers as people see them in a terminal."""
