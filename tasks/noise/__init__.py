"""Sensitivity, accounting, allocation and samplers: how much noise, and drawing it once."""
