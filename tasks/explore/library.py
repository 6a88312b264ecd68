"""Vega, the library that draws the maps and charts of the explorer, as a script: taken out of its Python package once and kept in the user's cache."""

import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

_PACKAGE = "vl-convert-python"  # carries Vega-Embed, which carries Vega


@cache
def library() -> str:
    """Return a script that defines `vegaEmbed`. It is the same for one version of the package, whether it was kept or not."""
    kept = _kept()
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_text(encoding="utf-8")
    made = _made()
    with suppress(OSError):  # the next process makes it again
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile(
            dir=kept.parent, suffix=".partial"
        ) as file:  # of its own: others may make it too; mode 600
            file.write(made.encode())
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, kept)
    return made


def _made() -> str:
    from vl_convert import javascript_bundle  # takes a second to make it

    bundle: str = javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _kept() -> Path:
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_folder / "trellis" / f"vega-{version(_PACKAGE)}.js"
