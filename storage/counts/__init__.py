"""Counts on disk: true counts in vaults, noisy and released counts in sealed shards, published levels in the store."""
