"""Numbers and levels in words, for pages and messages."""
