"""Keep what a page looks like, for people to judge."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Now and then Chromium refuses a picture, mostly the first one after its start, and takes it when asked again.
REFUSED = "Unable to capture screenshot"
PAUSES = (200, 1_000, 5_000)  # milliseconds


def keep_picture(page: "Page", path: Path) -> None:
    """Write all of a page as a picture; ask again where Chromium refuses, and raise its error at the fourth refusal."""
    from playwright.sync_api import Error

    path.parent.mkdir(parents=True, exist_ok=True)
    for pause in PAUSES:
        try:
            page.screenshot(path=path, full_page=True)
        except Error as error:
            if REFUSED not in error.message:
                raise
            page.wait_for_timeout(pause)
        else:
            return
    page.screenshot(path=path, full_page=True)
