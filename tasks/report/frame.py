"""The frame of every page: one self-contained HTML file, for a wide screen, a phone and paper."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{closed}<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
h1, h2 { line-height: 1.2 }
figure { margin: 1.5rem 0 }
figcaption { color: #444 }
.scroll { overflow-x: auto; background: linear-gradient(90deg, #fff 30%, #fff0) 0 0 / 3rem 100% no-repeat local,
    linear-gradient(270deg, #fff 30%, #fff0) 100% 0 / 3rem 100% no-repeat local,
    linear-gradient(90deg, #0005, #0000) 0 0 / .9rem 100% no-repeat scroll,
    linear-gradient(270deg, #0005, #0000) 100% 0 / .9rem 100% no-repeat scroll }  /* a shadow where there is more */
svg { height: auto }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
th[scope=row] { font-weight: inherit; vertical-align: inherit }
caption { text-align: left; font-weight: 600; padding: 1rem 0 .3rem; white-space: nowrap }
summary { cursor: pointer; font-weight: 600; padding: .4rem 0 }
@media (max-width: 40rem) { th, td { padding: .2rem .35rem } }
@media print { body { margin: 0; max-width: none } figure, table { break-inside: avoid } .scroll { background: none } }
"""


def page(title: str, body: str, style: str = "", *, closed: bool = False) -> str:
    """Return a page.

    Args:
        title: plain text, not HTML.
        body: HTML.
        style: CSS in addition to that of all pages.
        closed: whether the page forbids browsers to load or run anything but its own style; nothing in its body may have a style then.
    """
    whole = f"\n{_STYLE}{style}"
    return _FRAME.format(title=escape(title), closed=_closed(whole) if closed else "", style=whole, body=body)


def _closed(style: str) -> str:
    """Return the element that lets a page have this style and nothing else."""
    known = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{known}'; base-uri 'none'; form-action 'none'"
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", kind: str = "") -> str:
    """Return a table that scrolls on its own if it is wider than the page.

    Args:
        heads: HTML, one per column.
        rows: HTML, one cell per column, of which the first says what the row is about; or one cell that spans all columns.
        caption: HTML; empty for no caption.
        kind: the CSS class; empty for none.
    """
    of_kind = f' class="{kind}"' if kind else ""
    above = f"<caption>{caption}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    lines = "".join(f"{_line(row, len(heads))}\n" for row in rows)
    region = f' role="region" tabindex="0" aria-label="{_plain(caption)}"' if caption else ""
    return f'<div class="scroll"{region}><table{of_kind}>{above}<tr>{head}</tr>\n{lines}</table></div>'


def _plain(html: str) -> str:
    """Return HTML without its tags, as the value of an attribute."""
    return re.sub(r"<[^>]*>", "", html).replace('"', "&quot;")


def _line(cells: Sequence[str], columns: int) -> str:
    if len(cells) == 1 < columns:
        return f'<tr><td colspan="{columns}" class="line">{cells[0]}</td></tr>'
    first, *others = cells
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{text}</td>" for text in others)}</tr>'
