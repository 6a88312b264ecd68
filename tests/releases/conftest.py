"""Pages are written in tests of pages: elsewhere the report and the explorer of a release are a word each, which saves a third of it."""

import pytest

import flows.answers.verify
import tasks.folder.publish.task


@pytest.fixture(autouse=True, scope="module")
def _short_pages(request):
    """Write short pages, but in modules that say `WITH_PAGES = True`."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "WITH_PAGES", False):
            patch.setattr(tasks.folder.publish.task, "report", lambda *_: "report")
            patch.setattr(tasks.folder.publish.task, "explorer", lambda _: "explorer")
            patch.setattr(flows.answers.verify, "explorer_failures", lambda _: [])
        yield
