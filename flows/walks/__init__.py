"""The order in which a mechanism measures, repairs and combines the levels of a tree."""
