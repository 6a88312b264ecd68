"""Noise without chance: in a test's own process the table sampler takes its bits from a generator that the test's name seeds; samplers and audits keep the system's."""

from threading import Lock
from zlib import crc32

import numpy as np

from tasks.laws import samplers

_SYSTEM = samplers.system_words
_OF_SAMPLERS = {"test_sampler.py", "test_table_sampler.py"}


class SeededBits:
    """What stands in for the system's random words."""

    def __init__(self, seed):
        """Begin anew."""
        self._generator, self._lock = np.random.default_rng(seed), Lock()

    def __call__(self, number):
        """Return so many words of 64 bits."""
        with self._lock:
            return self._generator.integers(0, 2**64, number, dtype=np.uint64)


def seed_bits_of(item):
    """Seed the bits of a test, whatever was drawn before it."""
    is_real = item.path.name in _OF_SAMPLERS or item.get_closest_marker("audit")
    samplers.system_words = _SYSTEM if is_real else SeededBits(crc32(item.nodeid.encode()))
