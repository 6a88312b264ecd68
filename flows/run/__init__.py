"""A release from its reservation to its closed books, without Prefect: the driver, the one loop that takes its steps, and which steps come next."""
