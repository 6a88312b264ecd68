"""Answers as people see them in a terminal; the texts in them are escaped before."""
