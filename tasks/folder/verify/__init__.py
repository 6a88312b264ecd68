"""Verification of a published folder from its own files."""
