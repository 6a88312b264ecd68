"""The files of a published folder, the manifest and the tables: writing, reading and checking each one."""
