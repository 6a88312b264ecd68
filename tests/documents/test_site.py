"""The site that `make site` builds from docs/: whole by itself, and without a dead link."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.user import REPOSITORY

FETCHED = {"src", "srcset", "data", "poster"}  # attributes whose address a browser asks for by itself


class _Page(HTMLParser):
    """The assets that a browser fetches to show a page, and the classes of all its elements."""

    def __init__(self, text):
        super().__init__()
        self.assets, self.classes = list[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.classes |= set(given.get("class", "").split())
        self.assets += [given[name] for name in FETCHED & given.keys()]
        if tag == "link" and given.get("rel") not in {"next", "prev", "canonical"}:
            self.assets += [given["href"]] if "href" in given else []


@pytest.mark.thorough
@pytest.mark.heavy("mkdocs builds the whole site")
def test_the_site_has_every_page_no_dead_link_and_nothing_from_elsewhere(tmp_path):
    """Built without a network, it has the pages of docs/ and benchmarks/; a link or an anchor that is dead ends the build."""
    # Scripts, styles, pictures and fonts are the site's own; diagrams, whose script would be fetched, are not used.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | nowhere
    built = subprocess.run(build, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (rules,) = re.findall(r"^validation:\n(?:  .*\n)+", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert set(yaml.safe_load(rules)["validation"].values()) == {"warn"}
    docs = REPOSITORY / "docs"
    expected = {path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")}
    expected |= {Path("benchmarks/index.html"), Path("benchmarks/paper.html")}
    assert expected - {path.relative_to(tmp_path) for path in tmp_path.rglob("*.html")} == set()
    pages = [_Page(path.read_text("utf-8")) for path in tmp_path.rglob("*.html") if path.name != "404.html"]
    fetched = [asset for page in pages for asset in page.assets]
    for style in tmp_path.rglob("*.css"):
        found = re.findall(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)", style.read_text("utf-8"))
        fetched += [address for pair in found for address in pair if not address.startswith("data:")]
    assert [address for address in fetched if urlsplit(address).scheme or urlsplit(address).netloc] == []
    assert "mermaid" not in {name for page in pages for name in page.classes}
