"""The demonstration: a made-up country, planned and released as a user would. `make demo`, or `python -m flows.demo`.

Everything lies in `.demo/` inside the checkout, a store of its own included, and is deleted when the demonstration
begins again: otherwise a few runs would use up the made-up people's budget, as they would real people's.
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
SEED = 2025  # of the made-up table, the same each time; the noise of the release has no seed and is fresh


def main() -> int:
    """Draw the country, plan its release, release it, and return the exit code of the first command that fails."""
    folder = FOLDER.absolute()
    if folder.exists():
        shutil.rmtree(folder)
        _say(f"deleted {folder} of an earlier demonstration, its release and its ledger included.")
    country = draw_country(generator=np.random.default_rng(SEED))
    spec = write_ready(country, folder, "synthetic-commuting", "synthetic-country", epsilon=4.0)
    _say(f"drew a country that does not exist, and its commuters: {folder / 'data'}")

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
