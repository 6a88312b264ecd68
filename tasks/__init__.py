"""One room per stage, in the order in which data passes through them."""
