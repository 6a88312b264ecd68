"""Queries of a published folder: from areas to a count, its interval and an explanation."""
