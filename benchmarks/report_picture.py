"""Draw the pictures of the documents: Rhode Island's report as the README shows it, and the explorers of the gallery.

They differ from run to run because the noise does. Rhode Island needs TRELLIS_DATA, the folder that contains lodes_ri_2019/, and is left out without
it. All need Chromium.
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
PICTURES = REPOSITORY / "docs"
# of made-up sets
GALLERY = {"country": "spec.yaml", "city": "spec.yaml", "shuttle": "o5.yaml", "households": "people.yaml"}
WIDTH, HIGH = 1200, 640  # pixels
OF_REPORT = "[0, document.querySelector('details.details').getBoundingClientRect().top + 10]"  # to what is folded
SHOWN = "[...document.querySelectorAll('h2')].map(of => of.getBoundingClientRect().top).find(top => top > 0)"
OF_EXPLORER = f"(top => [top - 10, top + {HIGH}])({SHOWN})"  # from its first picture on
MOST_BYTES = 250_000
COLOURS = 256  # that are kept


def make_folder(spec: Path) -> Path:
    """Make the release of a spec in a store of its own, beside the spec, and return its folder."""
    os.environ["TRELLIS_HOME"] = str(spec.parent / "home")
    from flows.planning.plan import make_plan
    from flows.run.driver import make_release
    from flows.run.reservation import new_release
    from flows.run.runner import report_nothing, submit_to
    from flows.specification.file import load_spec

    plan = make_plan(load_spec(spec))
    release = new_release(plan)
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        make_release(plan, release, submit_to(executor), report_nothing)
    return Path(release.folder)


def screenshot(file: Path, ends: str) -> bytes:
    """Return what a browser shows of a page, from where to where a script says, in pixels from the top."""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HIGH})
        page.goto(file.as_uri())
        page.wait_for_timeout(2000)  # until its charts are drawn
        top, bottom = page.evaluate(ends)
        taken = page.screenshot(full_page=True, clip={"x": 0, "y": top, "width": WIDTH, "height": bottom - top})
        browser.close()
    return taken


def draw(taken: bytes, name: str) -> None:
    """Write a picture in few colours."""
    from PIL import Image  # of the extra `benchmarks`

    picture = PICTURES / name
    picture.parent.mkdir(exist_ok=True)
    full = Image.open(io.BytesIO(taken)).convert("RGB")
    few = full.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)
    size = picture.stat().st_size
    print(f"{picture.relative_to(REPOSITORY)}: {few.width} x {few.height} pixels, {size:,} bytes")
    assert size < MOST_BYTES


def main() -> None:
    """Write all pictures."""
    from flows.synthetic import synthesise_answer
    from storage.releases.register import REPORT

    if "TRELLIS_DATA" in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            spec = Path(folder, "spec.yaml")
            spec.write_text(yaml.safe_dump(yaml.safe_load(SPEC.read_text())))
            draw(screenshot(make_folder(spec) / REPORT, OF_REPORT), "report.png")
    for kind, name in GALLERY.items():
        with tempfile.TemporaryDirectory() as folder:
            synthesise_answer(kind, Path(folder, kind), 1)
            draw(
                screenshot(make_folder(Path(folder, kind, name)) / "explorer.html", OF_EXPLORER), f"gallery/{kind}.png"
            )


if __name__ == "__main__":
    main()
