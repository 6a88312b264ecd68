"""The site that `make site` builds from docs/: whole by itself, and without a dead link."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("mkdocs builds the whole site")]

REPOSITORY = Path(__file__).parents[2]
FETCHED = {"src", "srcset", "data", "poster"}  # attributes whose address a browser asks for by itself


class _Page(HTMLParser):
    """What a page refers to.

    Attributes:
        links: where its links go.
        assets: what a browser fetches to show it.
        anchors: what a link may point at.
        classes: of all its elements.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        self.classes |= set(given.get("class", "").split())
        self.assets += [given[name] for name in FETCHED & given.keys()]
        if "href" in given:
            is_fetched = tag == "link" and given.get("rel") not in {"next", "prev", "canonical"}
            (self.assets if is_fetched else self.links).append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make site` does, in a folder of its own, with no way to the network."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    """Return the pages of the site; what is said of one that is not there is for servers, and links from their root."""
    return {path: _Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    """docs/ has no page that the site lacks, and those of the benchmarks are carried along."""
    docs = REPOSITORY / "docs"
    expected = {path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")}
    expected |= {Path("benchmarks/index.html"), Path("benchmarks/paper.html")}
    assert expected - {path.relative_to(site) for path in site.rglob("*.html")} == set()


def test_no_link_within_the_site_is_dead(pages: dict[Path, _Page]) -> None:
    """Where a link goes there is a file, and in it the anchor."""
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.assets]:
            address = urlsplit(link)
            if address.scheme or address.netloc or (link.startswith("#__") or link in {"", "#"}):
                continue  # elsewhere, or a switch of the page's own
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(address.fragment) not in known | {""}:
                dead.append((path.name, link))
    assert dead == []


def test_a_browser_fetches_nothing_from_elsewhere(site: Path, pages: dict[Path, _Page]) -> None:
    """Scripts, styles, pictures and fonts are the site's own; diagrams, whose script would be fetched, are not used."""
    elsewhere = [asset for page in pages.values() for asset in page.assets if not _is_own(asset)]
    for style in site.rglob("*.css"):
        found = re.findall(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)", style.read_text("utf-8"))
        elsewhere += [address for pair in found for address in pair if address and not _is_own(address)]
    assert elsewhere == []
    assert {"mermaid"} & {name for page in pages.values() for name in page.classes} == set()


def _is_own(address: str) -> bool:
    return address.startswith("data:") or not (urlsplit(address).scheme or urlsplit(address).netloc)
