"""The explorer as one HTML page: the data, the drawing library (Vega) and the scripts in one file, which asks nothing of a network."""

import os
import re
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile

from tasks.pages.explorer.payload import embedded
from tasks.released.sources.folder import PublishedFolder
from tasks.words.levels import title_of

_PACKAGE = "vl-convert-python"  # carries Vega-Embed, which carries Vega


@cache
def library() -> str:
    """Return a script that defines `vegaEmbed`. It is the same for one version of the package, whether it was kept or not."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trellis"
    for file in folder.glob(f"vega-{version(_PACKAGE)}-*.js"):
        with suppress(OSError, UnicodeDecodeError):
            script = file.read_text(encoding="utf-8")
            if file.name == _name(script):
                return script
    script = _made()
    with suppress(OSError):  # the next process makes it again
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # under a name of its own, since other processes may make it too; mode 600
        with NamedTemporaryFile(dir=folder, suffix=".partial", delete=False) as kept:
            partial = Path(kept.name)
            try:
                kept.write(script.encode())
                kept.flush()
                os.fsync(kept.fileno())
                partial.replace(folder / _name(script))
            finally:
                partial.unlink(missing_ok=True)
    return script


def _name(script: str) -> str:
    return f"vega-{version(_PACKAGE)}-{sha256(script.encode()).hexdigest()}.js"


def _made() -> str:
    from vl_convert import javascript_bundle  # takes a second to make it

    bundle: str = javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


EXPLORER = "explorer.html"

_SCRIPTS = (  # each imports from those before it
    "base",
    "combobox",
    "charts",
    "views",
    "areas",
    "noise",
    "variances",
    "tables",
    "state",
    "lists",
    "shares",
    "cards",
    "maps",
    "trips",
    "attributes",
    "begin",
)
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function|const) (\w+))", re.MULTILINE)


def explorer(folder: PublishedFolder) -> str:
    """Return the page of a folder. The same folder always gives the same page."""
    return explorer_page(title_of(folder.manifest.spec, folder.manifest.id), embedded(folder))


def explorer_page(title: str, data: str) -> str:
    """Return the page with some data.

    Args:
        data: the payload as JSON, in which every `<` is escaped.
    """
    from markupsafe import Markup  # only who writes the page needs templates

    from tasks.pages.templates import page

    style, script = Markup(_asset("explorer.css")), Markup(_script())  # noqa: S704 (files of this package)
    return page(
        "explorer.html",
        title=title,
        style=style,
        data=Markup(data),  # noqa: S704 (no angle bracket is in it)
        library=Markup(library()),  # noqa: S704 (a file of a package)
        script=script,
    )


def _script() -> str:
    """Return the scripts of this package as one: each is a function in it, which returns what its module exports."""
    functions = []
    for name in _SCRIPTS:
        module = _asset(f"{name}.js")
        text = _EXPORT.sub("", _IMPORT.sub(r"const \1 = $\2;\n", module))
        exported = ", ".join(_EXPORT.findall(module))
        functions.append(f"const ${name} = (() => {{\n{text}return {{ {exported} }};\n}})();")
    return "\n".join(functions)


def _asset(name: str) -> str:
    return (files("tasks.pages.explorer") / "assets" / name).read_text(encoding="utf-8")
