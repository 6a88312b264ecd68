"""What runs when: the Prefect flows, the Python interface, and the packages that they are built from."""
