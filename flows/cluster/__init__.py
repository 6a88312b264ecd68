"""A cluster: home sends orders to workers on other machines, and brings what they made to its own disk."""
