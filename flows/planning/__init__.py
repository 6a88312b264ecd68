"""What is decided before a release draws anything: its guarantee, its plan, and the budget that it reserves or gives back."""
