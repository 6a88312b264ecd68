"""What the site does that MkDocs does not.

It lists the pages of the reference and of the benchmarks, which programs write, and carries benchmarks/ along, which lies
beside docs/. In the repository links go from file to file; here they are turned into those of the site, where docs/ is
the root.
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
_HOME = {"README.md": "index.md"}  # what stands in the site for a page that it does not have


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """List the pages of the reference and of the benchmarks, which programs write, behind those that the configuration lists."""
    docs = Path(config.docs_dir)
    for title, folder in (("Reference", docs / "reference"), ("Benchmarks", docs.parent / "benchmarks")):
        pages = sorted(path.name for path in folder.glob("*.md"))  # README.md first
        if pages and config.nav is not None:
            config.nav.append({title: [f"{folder.name}/{page}" for page in pages]})
    return config


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Carry the pages and pictures of benchmarks/ along."""
    beside = Path(config.docs_dir).parent / "benchmarks"
    for path in sorted([*beside.glob("*.md"), *beside.glob("*.svg")]):
        files.append(File.generated(config, f"benchmarks/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Turn the links of a page, which are those of the repository, into those of the site."""
    return in_site(markdown, page.file.src_uri)


def in_site(markdown: str, page: str) -> str:
    """Return a page whose links are those of the site.

    Args:
        markdown: the page as the repository has it.
        page: where it is in the site, such as `how-to/publish.md`; all but benchmarks/ lies in docs/.
    """
    folder = dirname(page) if page.startswith("benchmarks/") else join("docs", dirname(page))

    def turned(match: re.Match[str]) -> str:
        target = normpath(join(folder, match[1]))
        target = _HOME.get(target, target.removeprefix("docs/"))
        return relpath(target, dirname(page) or ".")

    return _LINK.sub(turned, markdown)
