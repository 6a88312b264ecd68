"""The explorer as one HTML page: the data, the drawing library and the scripts in one file, which asks nothing of a network."""

import re
from importlib.resources import files

from tasks.explore.library import library
from tasks.explore.payload import embedded
from tasks.released.sources.folder import PublishedFolder
from tasks.words.readers import title_of

EXPLORER = "explorer.html"

_SCRIPTS = (  # each imports from those before it
    "base",
    "combobox",
    "charts",
    "views",
    "areas",
    "state",
    "lists",
    "maps",
    "trips",
    "attributes",
    "begin",
)
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function|const) (\w+))", re.MULTILINE)


def explorer(folder: PublishedFolder) -> str:
    """Return the page of a folder. The same folder always gives the same page.

    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    return explorer_page(title_of(folder.manifest.spec, folder.manifest.id), embedded(folder))


def explorer_page(title: str, data: str) -> str:
    """Return the page with some data.

    Args:
        title: of the page, text.
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
    return "\n".join(_as_function(name, _asset(f"{name}.js")) for name in _SCRIPTS)


def _as_function(name: str, module: str) -> str:
    exported = ", ".join(_EXPORT.findall(module))
    text = _EXPORT.sub("", _IMPORT.sub(r"const \1 = $\2;\n", module))
    return f"const ${name} = (() => {{\n{text}return {{ {exported} }};\n}})();"


def _asset(name: str) -> str:
    return (files("tasks.explore") / "assets" / name).read_text(encoding="utf-8")
