"""Debian's Chromium without a window. Where it or Playwright is not there, the tests skip."""

import shutil

import pytest

OPTIONS = [  # root has no sandbox
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")  # as long as Playwright is started, no other test of the process can run an event loop
def browser():
    """Return the system's Chromium with an empty user data folder."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser: playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no browser: there is no chromium (`apt-get install chromium`)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=OPTIONS, headless=True)
        yield browser
        browser.close()
