"""Post-processing of noisy counts down a tree: one module per optimiser, all behind one signature, and the second pass."""
