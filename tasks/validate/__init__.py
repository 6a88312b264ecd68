"""Consistency checks, and on data that may be seen the errors and the coverage of releases; sizes."""
