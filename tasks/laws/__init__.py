"""Noise laws, each one value: its samplers, its cost, its variance, and how far it goes.

`true_counts` are int64, shape (cells,), records, and confidential; samplers return noisy counts of the same kind. `scale` is s of a Laplace
law and σ of a Gaussian one, finite and > 0, records; a ValueError refuses others. `terms` is n, how many draws are added up, >= 1; `draws` are
the scales and terms of independent draws, one pair for each scale. `log_tail` is
the natural logarithm of a probability, < 0. An OSError says that the operating system provides no entropy.
"""
