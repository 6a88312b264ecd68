"""What runs when: the Prefect flows, the Python interface, the mechanisms, and the packages that they are built from."""
