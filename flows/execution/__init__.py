"""A release from its reservation to its closed books, without Prefect."""
