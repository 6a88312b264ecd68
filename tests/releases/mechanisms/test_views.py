"""Releases with views: one table whose sums are all levels and views, charged, sealed, published and verified by name."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from storage.database.connections import store
from tasks.pages.explorer.payload import embedded
from tasks.released.sources.folder import open_folder
from tasks.uncertainty.intervals import rounding_step
from tests.support.folders import change_estimate, changed, first, manifest_of, rewrite, stated, with_sums
from tests.support.passes import counts_of, try_spec
from tests.support.town import VIEWS, Town, view

WITH_PAGES = True


@pytest.fixture(autouse=True)
def _home(monkeypatch):
    """Put TRELLIS_HOME back after each test."""
    monkeypatch.setenv("TRELLIS_HOME", "")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return a published folder with views, whose total is public."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", "")
        yield Town(tmp_path_factory.mktemp("published")).release(privacy__neighbours="substitution")


def noise_by_place(scale_of):
    """Return a sampler whose noise depends on the place of a cell alone; it notes with which scales it has drawn how many cells."""

    def sample(true_counts, scale):
        scale_of.setdefault(len(true_counts), set()).add(scale)
        return true_counts + (np.arange(len(true_counts)) * 7 + len(true_counts)) % 11 - 5

    return sample


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_each_view_is_drawn_at_the_scale_that_it_is_charged(tmp_path, law):
    """With weights of its own each view is drawn once, all of its cells, at the scale of its share; the same noise gives the same counts."""
    views = {name: VIEWS[name] for name in ("living", "by_mode")} | {"starts": {"from": "district"}}
    split = {"living": 2, "by_mode": 4, "starts": 5, "leaves": 6}
    spec = Town(tmp_path).spec(release__views=views, noise={"law": law}, privacy__split=split)
    drawn = {}
    plan, _, trial = try_spec(spec, noise_by_place(drawn))
    parts = {part.level: part for part in (*plan.levels, *plan.views) if part.rho or part.epsilon}
    assert sorted(parts) == [1, 4, 5, 6]
    assert drawn == {part.possible_cells: {part.scale or part.sigma} for part in parts.values()}
    spent = [float(parts[number].epsilon if law == "laplace" else parts[number].rho) for number in (5, 6, 1, 4)]
    assert np.allclose(np.array(spent) / sum(spent), np.array([2, 4, 5, 6]) / 17, rtol=1e-6)
    again = try_spec(spec, noise_by_place({}))[2]
    assert [counts_of(nodes) for nodes in again.released] == [counts_of(nodes) for nodes in trial.released]


def test_intervals_are_rounded_where_noisy_counts_are_destroyed(tmp_path):
    """With keep_noisy_counts: false the ends are multiples of σ rounded up, no bias is stated, and no noisy count is left."""
    town = Town(tmp_path)
    folder = town.release(
        keep_noisy_counts=False,
        release__noisy_counts=None,
        release__views={name: VIEWS[name] for name in ("living", "mode_from", "pairs")},
    )
    assert verify_answer(folder).failures == []
    manifest = manifest_of(folder)
    assert manifest["intervals"]["rounded"]
    assert not [entry for entry in manifest["levels"] if entry.get("bias") is not None]
    for entry in manifest["views"]:
        of_view, step = view(folder, entry["name"]), rounding_step(entry["sigma"])
        assert ((of_view["low"] % step == 0) & (of_view["high"] % step == 0)).all()
    assert not (folder / "noisy_counts").exists()
    assert not list(town.home.rglob("*.noisy.parquet"))
    with store():
        assert audit_answer([folder]).findings == []


def of_view(name, **values):
    """Return what changes the entry of a view in a manifest."""
    return stated(lambda manifest: next(of for of in manifest["views"] if of["name"] == name).update(values))


def gone(name):
    """Return what deletes a file and its checksum."""

    def of_folder(folder):
        (folder / name).unlink()
        with_sums(folder)

    return of_folder


def swapped(table):
    """Return derived columns of which two rows have each other's code."""
    modes = table["mode"].to_list()
    other = next(at for at, mode in enumerate(modes) if mode != modes[0])
    modes[0], modes[other] = modes[other], modes[0]
    return table.with_columns(mode=pl.Series(modes))


def halved(manifest):
    """State of a view half of its squared sensitivity and half of its cost, in agreement with each other."""
    of, before = manifest["views"][1], manifest["views"][1]["rho"]
    of.update(l2_sensitivity=1.0, rho=before / 2)
    manifest["privacy"]["rho"] -= before / 2


def repeated(table):
    """Return a view with its first row a second time."""
    codes = (pl.Series(of, [table[of][0]] * 2 + table[of][2:].to_list()) for of in ("to_district", "to_zone"))
    return table.with_columns(codes)


NO_ROUNDING, NO_INTERVALS = "rounding must state a deviation", "does not have the intervals"
UNKNOWN_NOISE = "does not have the noise_rows that the manifest states"
REFINES_NOT = "a source that does not refine it"
REFINES = "view by_mode has a source that does not refine it"

OF_TABLES = {
    "nothing but the CSV": ("views/living", first("count", 0), ""),
    "a count and its end": ("views/living", lambda of: first("high", 1000)(first("count", 1)(of)), "does not add up"),
    "the count of one cell": ("views/total", lambda of: of.with_columns(pl.all() + 1), "total.parquet does not add up"),
    "a low": ("views/by_mode", first("low", -1), "by_mode.parquet"),
    "a high": ("views/mode_from", first("high", 1), NO_INTERVALS),
    "a high of a level's view": ("views/pairs", first("high", 1), NO_INTERVALS),
    "a noisy count": ("noisy_counts/view_working", first("noisy_count", -60), f"working.parquet {NO_INTERVALS}"),
    "a variance": ("noisy_counts/view_working", first("variance", 1), "has a variance that"),
    "a row": ("views/working", lambda of: of[1:], "must have 4 rows"),
    "a repeated row": ("views/working", repeated, "must have each cell once"),
    "a derived code": ("derived/mode", swapped, "does not add up"),
    "a derived row": ("derived/mode", lambda of: pl.concat([of, of[:1]]), "must list each combination"),
}
OF_VIEWS = {
    "rho": ("living", {"rho": 0.5}, "rho"),
    "sigma": ("living", {"sigma": 1.0}, "sigma"),
    "a source that is measured": ("by_mode", {"source": 4}, "view by_mode must have a source that says as much"),
    REFINES_NOT: ("by_mode", {"source": 5}, REFINES),
    "a source that is not": ("by_mode", {"source": 1}, "must have a source that was measured"),
    "a half-width": ("by_mode", {"half_width": 1}, "half_width"),
    "a promise": ("by_mode", {"intervals": {"confidence": 0.9, "promise": "rows"}}, "does not promise"),
}
OF_MANIFESTS = {
    "a sensitivity": (halved, "can move some level further"),
    "a level's source": (lambda of: of["levels"][1].update(source=4), "level 1 must have a source that says as much about it as manifest.json: level 2"),
    "a source that says less": (lambda of: of["levels"][1].update(source=5, sigma=of["levels"][4]["sigma"] * 3**0.5), "level 1 must have source 2, which says most about it"),
    "a sum's sigma": (lambda of: of["levels"][1].update(sigma=of["levels"][1]["sigma"] / 2), "level 1 has a sigma"),
    "rounding left out": (lambda of: of.pop("rounding"), NO_ROUNDING),
    "rounding of a view left out": (lambda of: of["rounding"]["deviation"].pop("by_mode"), NO_ROUNDING),
    "rounding that is": (lambda of: of["rounding"].update(exact=False), "rounding must be exact where"),
    "rounding of leaves": (lambda of: of["rounding"].update(exact=False, deviation=of["rounding"]["deviation"] | {"level_4": 1.5}), "rounding moves leaves by less than one record"),
    "a level's half-width": (lambda of: of["levels"][4].update(half_width=1), "half_width"),
    "a level's bias": (lambda of: of["levels"][4].update(bias=9.0), "bias"),
    "an estimate": (lambda of: change_estimate(of["levels"][4]["noise_rows"]), f"level_4.parquet {UNKNOWN_NOISE}"),
    "a seal that is missing": (lambda of: of["seals"].pop(), "must have seals"),
}  # fmt: skip
GONE = ["views/by_mode.parquet", "noisy_counts/view_by_mode.parquet", "derived/mode.parquet"]
LIES = {
    **{lie: (changed(f"{name}.parquet", change), told) for lie, (name, change, told) in OF_TABLES.items()},
    **{lie: (of_view(name, **values), told) for lie, (name, values, told) in OF_VIEWS.items()},
    **{lie: (stated(change), told) for lie, (change, told) in OF_MANIFESTS.items()},
    **{f"without {name}": (gone(name), "missing") for name in GONE},
}


@pytest.mark.parametrize("lie", LIES)
def test_verification_finds_what_was_changed(published, tmp_path, lie):
    """Each number, row or file of a view that is changed with the right checksum is a failure that names it."""
    change, told = LIES[lie]
    folder = Path(shutil.copytree(published, tmp_path / "folder"))
    change(folder)
    failures = verify_answer(folder).failures
    ours = [failure for failure in failures if "csv" not in failure and "metadata" not in failure]
    assert [failure for failure in ours if told in failure] if told else ours == [], failures


def test_verification_knows_sources_without_noisy_counts(published, tmp_path):
    """The terms alone tell of a source that does not refine its view, that is not measured, or than which another says more."""
    folder = Path(shutil.copytree(published, tmp_path / "folder"))
    shutil.rmtree(folder / "noisy_counts")
    rewrite(folder, lambda manifest: manifest.update(noisy_counts=False))
    data = embedded(open_folder(folder))  # its intervals follow from them
    (folder / "explorer.html").write_text(f'<script type="application/json" id="data">{data}</script>')
    with_sums(folder)
    assert verify_answer(folder).failures == []
    for lie in ("a source that is measured", REFINES_NOT, "a source that is not", "a level's source"):
        change, told = LIES[lie]
        change(twin := Path(shutil.copytree(folder, tmp_path / lie)))
        assert [failure for failure in verify_answer(twin).failures if told in failure], lie


def test_totals_that_nothing_measures_are_named_everywhere(tmp_path):
    """The manifest lists them with their mean noise; README, report and metadata of the records say the same."""
    views = {name: VIEWS[name] for name in ("living", "pairs")}
    folder = Town(tmp_path).release(release__views=views, release__records=True)
    assert verify_answer(folder).failures == []
    manifest = manifest_of(folder)
    sigma, mean = manifest["levels"][4]["sigma"], math.sqrt(2 / math.pi)
    of_pairs = next(of["sigma"] for of in manifest["views"] if of["name"] == "pairs")
    errors = {of["margin"]: of["expected_error"] for of in manifest["poor_margins"]}
    of_two = dict.fromkeys(("from_district", "to_district"), mean * of_pairs * math.sqrt(2))  # pairs of districts
    assert errors == pytest.approx(of_two | {"to_zone": mean * sigma * 2})  # four pairs of zones
    readme, metadata = (folder / "README.md").read_text(), json.loads((folder / "metadata.json").read_text())
    (records,) = [table for table in metadata["tables"] if table["url"] == "records.csv"]
    report = re.sub("</?code>", "", (folder / "report.html").read_text())
    for text in (" ".join(readme.split()), report, records["dc:description"]):
        assert all(f"{name} (± {error:,.3g})" in text for name, error in errors.items()), text
