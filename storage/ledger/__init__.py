"""The budget ledger: events in a hash chain, and the books that they add up to."""
