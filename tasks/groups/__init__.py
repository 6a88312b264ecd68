"""Group sizes as they are released: settled from what was measured, with what can be said of each number of groups."""
