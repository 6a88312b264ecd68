"""Everything that can be decided before a release spends anything: its guarantee, its plan, and whether the budget allows it."""
