"""What the accountant has computed before on this machine, so that planning the same release again takes no time."""

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version

from storage.machine.files import beside
from storage.machine.home import place_of_home

DELTAS = "deltas.json"  # in TRELLIS_HOME; it may be deleted

_MOST = 4096  # of the last ones


def kept_deltas() -> dict[str, float]:
    """Return every δ that `keep_deltas` kept, by what it is of; nothing where the file is missing, altered or of another version."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads((place_of_home() / DELTAS).read_bytes())
        if kept["version"] == _version():
            return {str(of): float(delta) for of, delta in kept["deltas"].items()}
    return {}


def keep_deltas(deltas: Mapping[str, float]) -> None:
    """Keep values for later processes, if there is a TRELLIS_HOME that can be written."""
    last = dict(list(deltas.items())[-_MOST:])
    text = json.dumps({"version": _version(), "deltas": last}, indent=0)
    with suppress(OSError):
        if place_of_home().is_dir():
            with beside(place_of_home() / DELTAS) as file:
                file.write(text.encode())


def _version() -> str:
    return version("dp-accounting")
