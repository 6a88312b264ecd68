"""Numerics in processes of their own: what the machine does underneath changes no bit."""

import os
import subprocess
import sys
from functools import partial

FIT = """
import hashlib
import numpy as np
from tasks.optimize.prior import Sample, fitted

random = np.random.default_rng(5)
cells = 20_000
true = np.where(random.random(cells) < 0.7, 0, random.pareto(1, cells) * 9)
means, totals = random.gamma(0.4, 20, cells) + 1e-3, np.full(cells, 5000.0)
sample = Sample(true + random.normal(0, 6, cells), np.full(cells, 36.0), means, totals, np.ones(cells), random.random(cells) < 0.1)
print(hashlib.sha256(fitted(sample).tobytes()).hexdigest())
"""


def test_a_fit_does_not_depend_on_threads():
    """In processes whose linear algebra has one thread or several, and other kernels, the weights are the same to the last bit."""
    settings = ({"OPENBLAS_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "4"}, {"OPENBLAS_CORETYPE": "Sandybridge"})
    fit = partial(subprocess.run, [sys.executable, "-c", FIT], check=True, capture_output=True, text=True)
    found = [fit(env=os.environ | of).stdout for of in settings]
    assert len(set(found)) == 1
