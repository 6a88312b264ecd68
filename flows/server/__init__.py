"""Prefect's server as a process, the runs it records, and the artifacts it shows."""
