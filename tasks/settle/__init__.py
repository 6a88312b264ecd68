"""Settling: everything that was measured, on the tree and across it, becomes one table of whole counts."""
