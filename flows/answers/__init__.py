"""Reports about releases that are already made, from the store or from a published folder."""
