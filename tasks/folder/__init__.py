"""The published folder: written, checked, and exported to other kinds of files."""
