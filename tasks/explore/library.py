"""Vega, the library that draws the maps and charts of the explorer, as a script: taken out of its Python package once and kept in the user's cache."""

import os
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

_PACKAGE = "vl-convert-python"  # carries Vega-Embed, which carries Vega


@cache
def library() -> str:
    """Return a script that defines `vegaEmbed`. It is the same for one version of the package, whether it was kept or not."""
    found = _kept()
    if found is None:
        found = _made()
        with suppress(OSError):  # the next process makes it again
            _keep(found)
    return found


def _kept() -> str | None:
    """Return the script that is kept; None where there is none, or where it is not the one that its name says."""
    for file in _folder().glob(f"vega-{version(_PACKAGE)}-*.js"):
        with suppress(OSError, UnicodeDecodeError):
            text = file.read_text(encoding="utf-8")
            if file.name == _name(text):
                return text
    return None


def _keep(script: str) -> None:
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, suffix=".partial", delete=False) as file:  # others may make it too; mode 600
        partial = Path(file.name)
        try:
            file.write(script.encode())
            file.flush()
            os.fsync(file.fileno())
            partial.replace(folder / _name(script))
        finally:
            partial.unlink(missing_ok=True)


def _name(script: str) -> str:
    return f"vega-{version(_PACKAGE)}-{sha256(script.encode()).hexdigest()}.js"


def _made() -> str:
    from vl_convert import javascript_bundle  # takes a second to make it

    bundle: str = javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trellis"
