"""Numbers and levels as people read them."""
