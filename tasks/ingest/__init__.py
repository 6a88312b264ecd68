"""Reads and checks the confidential table and the public codebooks. Errors never show a confidential value."""
