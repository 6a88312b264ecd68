"""Elsewhere: the orders of a release carried out in other processes, or on other machines, whose work is brought to home's own disk."""
