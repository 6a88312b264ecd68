"""Pages and texts from the templates of this room: all their sentences are there, whole, for a writer who reads no Python.

Everything that a template shows is escaped, but for what Python marks as HTML: charts and the approval of a plan. Three media share the
sentences about a release: pages, Markdown and plain lines. What differs between them, such as emphasis and lists, is defined here.
"""

import hashlib
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket, FileSystemBytecodeCache
from markupsafe import Markup

from tasks.words import levels, numbers, protection

_WIDTH = 120  # of Markdown
_HEADING = "\x1e"  # before a heading in plain lines: no text of a spec has it
_SPACE = "\0"  # where no line may end: in code, and around the sign of an equation

Medium = Literal["page", "markdown", "lines"]

# what is emphasised, and paragraphs and items of lists, in every medium
_MARKS: Mapping[Medium, Mapping[str, str]] = MappingProxyType(
    {
        "page": {
            "bold": "<b>{}</b>",
            "em": "<em>{}</em>",
            "code": "<code>{}</code>",
            "paragraph": "<p>{}</p>\n",
            "item": "<li>{}</li>\n",
            "items": "<ul>\n{}</ul>\n",
        },
        "markdown": {
            "bold": "**{}**",
            "em": "*{}*",
            "code": "`{}`",
            "paragraph": "{}\n\n",
            "item": "- {}\n",
            "items": "{}\n",
        },
        "lines": {
            "bold": "{}",
            "em": "{}",
            "code": "{}",
            "paragraph": "{}\n",
            "item": "• {}\n",
            "items": "{}",
            "heading": f"{_HEADING}{{}}\n",
        },
    }
)


def _mark(name: str, medium: Medium) -> Callable[..., str]:
    """Return what puts a text, or what a block of a template holds, into the form of a medium."""
    form, text_of = _MARKS[medium][name], Markup if medium == "page" else str
    is_laid_out = medium == "markdown" and name in {"paragraph", "item"}

    def marked(text: object = None, *, caller: Callable[[], str] = str) -> str:
        if text is not None:
            made = text_of(form).format(text)
            return made.replace(" ", _SPACE) if medium == "markdown" and name == "code" else made
        inside = caller()
        inside = re.sub(r"\n{2,}", "\n", inside) if name == "items" else " ".join(inside.split())
        if is_laid_out:
            inside = inside.replace(" = ", f"{_SPACE}={_SPACE}")
            inside = fill(inside, _WIDTH - len("- "), break_long_words=False, break_on_hyphens=False)
            inside = inside.replace("\n", "\n  " if name == "item" else "\n")
        return text_of(form).format(text_of(inside))

    return marked


# what templates may call on a value: the numbers of a text are rounded as everywhere
_FILTERS: Mapping[str, Callable[..., str]] = {
    "number": lambda value: f"{value:,}",
    "general": lambda value: f"{value:g}",
    "percent": numbers.format_percent,
    "share": numbers.format_share,
    "cells": numbers.format_cells,
    "rounded": numbers.format_rounded,
    "spent": numbers.format_spent,
    "cost": numbers.rounded_up,
    "left": numbers.rounded_down,
    "probability": numbers.format_probability,
    "in_short": levels.in_short,
    "capitalised": lambda text: f"{text[:1].upper()}{text[1:]}",
}
_GLOBALS: Mapping[str, Callable[..., Any]] = {
    "right_guess": protection.format_right_guess,
    "limits_guesses": protection.limits_guesses,
    "epsilon_in_words": protection.epsilon_in_words,
    "s": lambda many: "" if many == 1 else "s",
}


class _Compiled(FileSystemBytecodeCache):
    """Templates as Python code, kept beside them as Python keeps its modules; where nothing can be written, they are compiled in each process."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template, but where Python would keep no module."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


@cache
def _environment(medium: Medium) -> Environment:
    environment = Environment(
        loader=PackageLoader("tasks.pages"),
        bytecode_cache=_Compiled(str(Path(__file__).parent / "templates" / "__pycache__"), f"{medium}_%s.cache"),
        optimized=False,  # so that what is kept depends on the template alone, and not on what its filters return
        autoescape=medium == "page",  # noqa: S701 (the other media are no HTML)
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= _FILTERS
    environment.globals |= {**_GLOBALS, **{name: _mark(name, medium) for name in _MARKS[medium]}}
    return environment


def page(template: str, *, closed: bool = False, **values: Any) -> str:
    """Return a page: one HTML file that holds all that it shows, for a wide screen, a phone and paper, in light and dark.

    Args:
        template: the name of its file.
        closed: whether the page forbids browsers to load or run anything but its own style; nothing in its body may have a style then.
    """
    environment = _environment("page")
    style = environment.get_template("style.css").render()
    known = b64encode(hashlib.sha256(f"\n{style}".encode()).digest()).decode() if closed else ""
    return environment.get_template(template).render(style_hash=known, **values)


def markdown(template: str, **values: Any) -> str:
    """Return a file of Markdown."""
    text = _environment("markdown").get_template(template).render(values).replace(_SPACE, " ")
    return re.sub(r"\n{3,}", "\n\n", text)


def headed_lines(template: str, **values: Any) -> list[tuple[str, list[str]]]:
    """Return the headings of a text, each with its paragraphs and the items of its lists, a plain line each."""
    text = _environment("lines").get_template(template).render(values)
    parts = [[line for line in part.split("\n") if line] for part in text.split(_HEADING)[1:]]
    return [(heading, paragraphs) for heading, *paragraphs in parts]
