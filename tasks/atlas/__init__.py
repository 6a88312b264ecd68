"""What the areas of a release are called, and where they lie."""
