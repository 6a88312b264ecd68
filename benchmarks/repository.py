"""Lets a benchmark that is run as a file import `tests.support`, what it shares with the tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
