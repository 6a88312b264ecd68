"""What can be said about releases that are already made, from the store or from a published folder."""
