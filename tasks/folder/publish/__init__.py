"""The publish stage and the levels that it writes."""
