"""Draw the picture of a report that the README shows: Rhode Island's report, as a browser shows its first screens.

It writes docs/report.png, which differs from run to run because the noise does. It needs TRELLIS_DATA, the folder that contains
lodes_ri_2019/, and Chromium.
"""

import io
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from playwright.sync_api import sync_playwright

REPOSITORY = Path(__file__).parent.parent
SPEC = REPOSITORY / "deployments/specs/rhode-island.yaml"
PICTURE = REPOSITORY / "docs/report.png"
WIDTH = 1200  # pixels
MOST_BYTES = 250_000
COLOURS = 256  # that are kept


def make_report(folder: Path) -> Path:
    """Make the release of the example spec in a store of its own, and return its report."""
    os.environ["TRELLIS_HOME"] = str(folder / "home")
    from flows.planning.plan import make_plan
    from flows.run.driver import make_release
    from flows.run.reservation import new_release
    from flows.run.runner import report_nothing, submit_to
    from flows.specification.file import load_spec
    from storage.releases.register import REPORT

    (folder / "spec.yaml").write_text(yaml.safe_dump(yaml.safe_load(SPEC.read_text())))
    plan = make_plan(load_spec(folder / "spec.yaml"))
    release = new_release(plan)
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        make_release(plan, release, submit_to(executor), report_nothing)
    return Path(release.folder) / REPORT


def screenshot(report: Path) -> bytes:
    """Return what a browser shows of it, from the top to what is folded under Details."""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(report.as_uri())
        end = page.evaluate("document.querySelector('details.details').getBoundingClientRect().top")
        taken = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": end + 10})
        browser.close()
    return taken


def main() -> None:
    """Write the picture, in few colours."""
    from PIL import Image  # of the extra `benchmarks`

    with tempfile.TemporaryDirectory() as folder:
        taken = screenshot(make_report(Path(folder)))
    few = (
        Image.open(io.BytesIO(taken))
        .convert("RGB")
        .quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    )
    few.save(PICTURE, optimize=True)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(REPOSITORY)}: {few.width} x {few.height} pixels, {size:,} bytes")
    assert size < MOST_BYTES


if __name__ == "__main__":
    main()
