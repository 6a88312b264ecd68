"""What is decided before a release draws anything: its guarantee, its plan, what it is approved as, and the budget that it reserves or gives back."""
