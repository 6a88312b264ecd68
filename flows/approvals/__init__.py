"""Approvals: what a plan states for somebody to approve, and whether a release still is what was approved."""
