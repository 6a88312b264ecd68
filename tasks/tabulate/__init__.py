"""Answers about many boxes of one kind at once, from a published folder alone: what a query says of each of them."""
