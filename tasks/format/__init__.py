"""The files of a published folder: the manifest and the tables, how to write each one and how to read it."""
