"""The demonstration: plans and releases a synthetic country as a user would. `make demo`, or `python -m flows.demo`.

The folder `.demo/` in the checkout holds everything, with a store of its own. Each run deletes it first; otherwise a few
runs would use up the budget of the synthetic dataset.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from flows.synthetic import write_ready
from tasks.synthesize.country import draw_country

FOLDER = Path(__file__).parent.parent / ".demo"
SEED = 2025  # of the synthetic table, which is the same each time; the noise of the release has no seed


def main() -> int:
    """Draw the country, plan and release it. Return the exit code of the first command that fails, or 0."""
    folder = FOLDER.absolute()
    if folder.exists():
        shutil.rmtree(folder)
        _say(f"deleted {folder} of an earlier demonstration, with its release and its ledger.")
    country = draw_country(generator=np.random.default_rng(SEED))
    spec = write_ready(country, folder, "synthetic-commuting", "synthetic-country", epsilon=4.0)
    _say(f"drew a country that does not exist, and its commuters, into {folder / 'data'}")

    store = str(folder / "store")
    trellis = str(Path(sys.executable).parent / "trellis")
    for command in ("plan", "release"):
        _say(f"$ TRELLIS_HOME={shlex.quote(store)} {shlex.join(['trellis', command, str(spec)])}")
        code = subprocess.call(  # noqa: S603 (our own command)
            [trellis, command, str(spec)], env=os.environ | {"TRELLIS_HOME": store}
        )
        if code != 0:
            return code
    return 0


def _say(text: str) -> None:
    print(f"SYNTHETIC: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
