"""Hooks that MkDocs calls when it builds the site.

They add the pages of the reference and of the benchmarks, which programs write, to the navigation. They include benchmarks/,
which is beside docs/. Links in the repository go from file to file; the hooks turn them into links of the site, whose root is
docs/.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)")  # of Markdown, to a file
_SCHEMA = "spec.schema.json"
# the files of the site that replace files of the repository
_HOME = {"README.md": "index.md", f"flows/specification/{_SCHEMA}": f"reference/{_SCHEMA}"}


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Add the pages of the reference and of the benchmarks, which programs write, after the pages in the configuration."""
    docs = Path(config.docs_dir)
    for title, folder in (("Reference", docs / "reference"), ("Benchmarks", docs.parent / "benchmarks")):
        pages = sorted(path.name for path in folder.glob("*.md"))  # README.md first
        if pages and config.nav is not None:
            config.nav.append({title: [f"{folder.name}/{page}" for page in pages]})
    return config


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages, tables and pictures of benchmarks/ to the site, and the JSON Schema of specs."""
    beside = Path(config.docs_dir).parent / "benchmarks"
    for path in sorted(of for of in beside.iterdir() if of.suffix in {".md", ".svg", ".csv"}):
        files.append(File.generated(config, f"benchmarks/{path.name}", abs_src_path=str(path)))
    schema = Path(config.docs_dir).parent / "flows" / "specification" / _SCHEMA
    files.append(File.generated(config, f"reference/{_SCHEMA}", abs_src_path=str(schema)))
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Turn the links of a page from links of the repository into links of the site."""
    return in_site(markdown, page.file.src_uri)


def in_site(markdown: str, page: str) -> str:
    """Return a page with links of the site.

    Args:
        markdown: the page in the repository.
        page: its path in the site, such as `how-to/publish.md`; every page is in docs/, except those of benchmarks/.
    """
    folder = dirname(page) if page.startswith("benchmarks/") else join("docs", dirname(page))

    def turned(match: re.Match[str]) -> str:
        target = normpath(join(folder, match[1]))
        target = _HOME.get(target, target.removeprefix("docs/"))
        return relpath(target, dirname(page) or ".")

    return _LINK.sub(turned, markdown)
