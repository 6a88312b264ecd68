"""Forecasts: what a release would protect, cost and be worth, and whether it can be made at all."""
