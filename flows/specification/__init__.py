"""The release spec: its keys, their rules, and the starter file for a new spec."""
