"""Sections of the page of a plan, a module for each, and what all of them are made from."""
