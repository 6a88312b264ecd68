"""Pages for people: the report, the README, comparisons, and the explorer."""
