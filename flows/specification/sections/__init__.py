"""Sections of a spec, a module for each: what their keys may hold, and the rules between them."""
