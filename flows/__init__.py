"""What runs when: the command line, the spec, the plan, the driver, and the Prefect flow around it."""
