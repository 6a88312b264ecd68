"""Post-processing of noisy counts: one module per optimiser, all behind one signature."""
