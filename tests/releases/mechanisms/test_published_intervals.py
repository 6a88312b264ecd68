"""Published intervals, against what a reader can compute from the published noisy counts, cell by cell."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from tasks.format.noisy_counts import CODEBOOK_SCHEMA
from tasks.laws.gaussian import gaussian_quantile
from tasks.laws.samplers import discrete_gaussian
from tasks.uncertainty.intervals import NO_CAP, Margins, margins_of, simultaneous_margins
from tasks.uncertainty.selection import tails_of
from tasks.verify.folder import verify
from tests.support.cases import CASES, Case, case_csv
from tests.support.folders import change_estimate
from tests.support.laws import gaussians
from tests.support.making import CUT, Made, make

Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """A published folder, read as its README says.

    Attributes:
        folder: the folder.
        manifest: its manifest.
    """

    folder: Path
    manifest: dict[str, Any]

    def paths(self) -> dict[tuple[str, int], list[Path_]]:
        """Return, per axis and axis level, the path of codes of each area, by its number."""
        codebook = pl.read_parquet(self.folder / "noisy_counts" / "codebook.parquet")
        paths: dict[tuple[str, int], list[Path_]] = {}
        for (axis,), of_axis in codebook.group_by("axis", maintain_order=True):
            above: list[Path_] = [()]
            for own, (_, areas) in enumerate(of_axis.group_by("level", maintain_order=True), 1):
                assert areas["area"].to_list() == list(range(areas.height))
                above = [(*above[parent], code) for parent, code in zip(areas["parent"], areas["code"], strict=True)]
                paths[str(axis), own] = above
        return paths

    def noisy(self, level: int) -> dict[tuple[Path_, ...], int]:
        """Return the noisy counts of a level by the paths of codes of their cells."""
        paths, reached = self.paths(), self.reached(level)
        table = pl.read_parquet(self.folder / "noisy_counts" / f"level_{level}.parquet")
        assert table.columns == [*(axis for axis, own in reached.items() if own), "noisy_count", "variance"]
        assert table["variance"].n_unique() == 1
        assert table["variance"][0] == pytest.approx(self.manifest["levels"][level]["sigma"] ** 2, rel=1e-4)
        return {
            tuple(paths[axis, own][row[axis]] if own else () for axis, own in reached.items()): row["noisy_count"]
            for row in table.iter_rows(named=True)
        }

    def reached(self, level: int) -> dict[str, int]:
        """Return how many of its levels each axis has reached at a level."""
        axes = [entry["axes"] for entry in self.manifest["levels"][: level + 1]]
        return {axis: len({of[axis] for of in axes} - {None}) for axis in axes[0]}

    def rows(self, level: int) -> list[tuple[tuple[Path_, ...], dict[str, int]]]:
        """Return the cells and the numbers of a published level."""
        table = pl.read_parquet(self.folder / "counts" / f"level_{level}.parquet")
        columns = {
            axis: [name for name in table.columns if name.startswith(f"{axis}_")] for axis in self.reached(level)
        }
        return [
            (tuple(tuple(row[name] for name in names) for names in columns.values()), row)
            for row in table.iter_rows(named=True)
        ]


def with_keys(case: Callable[[Path], Case], **changes: Any) -> Callable[[Path], Case]:
    """Return a case whose spec has other keys, those of sections added to what is there."""

    def made(folder: Path) -> Case:
        of_case = case(folder)
        of_case.keys["privacy"]["accountant"] = "zcdp"
        for key, value in changes.items():
            of_case.keys[key] = of_case.keys[key] | value if isinstance(value, dict) else value
        return of_case

    return made


ADD_REMOVE = {"privacy": {"neighbours": "add_remove"}}
EXACT = {"privacy": {"invariants": ["region"], "i_accept_unprotected": True}}
AT_ONCE = {"release": {"intervals": {"confidence": 0.8, "simultaneous": True}}}


WALKED = [
    ("inftda", "a column per level", ADD_REMOVE, {}),
    ("inftda_reconciled", "DuckDB, two codebooks", AT_ONCE, CUT),
    ("inftda_lenient", "CSV, destination tree", EXACT, CUT),
]
ALSO = [
    ("inftda", "CSV, destination tree", {}, CUT),
    ("inftda_shrunk", "CSV, destination tree", {}, CUT),
    ("tda_l2", "Parquet without counts, origin tree", {}, {}),
]


@pytest.fixture(
    scope="module",
    params=[*WALKED, *(pytest.param(param, marks=pytest.mark.thorough) for param in ALSO)],
    ids=lambda param: f"{param[0]}, {param[1]}",
)
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Make a release by a mechanism that goes down the tree, whole or cut into branches."""
    mechanism, case, keys, sizes = request.param
    folder = tmp_path_factory.mktemp("intervals") / "made"
    made = make(folder, with_keys(CASES[case], **keys), discrete_gaussian, mechanism=mechanism, sizes=sizes)
    return Published(made.folder, json.loads((made.folder / "manifest.json").read_text()))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a plain release."""
    return make(tmp_path_factory.mktemp("plain") / "made", with_keys(case_csv), discrete_gaussian).folder


@pytest.fixture(scope="module")
def leaves(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a release of leaves, and their sums."""
    return make(
        tmp_path_factory.mktemp("leaves") / "made", with_keys(case_csv), discrete_gaussian, mechanism="gaussian"
    )


def copied(folder: Path, to: Path) -> Path:
    """Return a copy of a folder, to spoil."""
    return Path(shutil.copytree(folder, to / folder.name))


def test_each_interval_is_that_of_the_noisy_counts(published):
    """low and high of every row follow from its own noisy count, exact counts above, and the manifest's margins."""
    levels, terms = published.manifest["levels"], published.manifest["intervals"]
    sigmas = [level["sigma"] for level in levels]
    fixed = margins_of(gaussians(sigmas), terms["confidence"])
    assert [level["cap_margin"] for level in levels] == [of.cap for of in fixed]
    widths = [_half_width(level, of.own, terms["confidence"]) for level, of in zip(levels, fixed, strict=True)]
    assert [level["half_width"] for level in levels] == widths
    caps_of_rows = [0 if sigma == 0 else NO_CAP for sigma in sigmas]
    kinds = [("low", "high", [Margins(*of) for of in zip(widths, caps_of_rows, strict=True)])]
    if terms["simultaneous"]:
        paths = published.paths()
        possible = []
        for level in range(len(levels)):
            possible.append(1)
            for axis, own in published.reached(level).items():
                possible[-1] *= len(paths[axis, own]) if own else 1
        at_once = simultaneous_margins(gaussians(sigmas), possible, terms["confidence"])
        assert [level["simultaneous_half_width"] for level in levels] == [of.own for of in at_once]
        kinds.append(("simultaneous_low", "simultaneous_high", at_once))
    noisy = [published.noisy(level) for level in range(len(levels))]
    reached = [list(published.reached(level).values()) for level in range(len(levels))]
    seen = 0
    for level, cells in enumerate(noisy):
        assert len(cells) == levels[level]["cells"]
        for cell, row in published.rows(level):
            above = [
                tuple(path[:length] for path, length in zip(cell, depths, strict=True)) for depths in reached[:level]
            ]
            for low, high, margins in kinds:
                x, z = cells[cell], margins[level].own
                caps = [noisy[j][held] + margins[j].cap for j, held in enumerate(above)]
                assert row[low] == min(max(0, x - z), row["count"]), (level, cell)
                assert row[high] == max(min(max(0, most) for most in (x + z, *caps)), row["count"]), (level, cell)
            seen += 1
    assert seen > 10


def _half_width(level, own, confidence):
    """Return z of the rows of a level by its definition, from the cells and the rows that the manifest states."""
    if not level["sigma"]:
        return 0
    tails = tails_of(level["cells"], 1 - confidence)
    odds = next(tail for size, tail in zip(tails.sizes, tails.log_tails, strict=True) if size <= level["nonzero"])
    return max(own, gaussian_quantile(level["sigma"], odds - log(2)))


def test_the_bias_is_that_of_the_tables(published):
    """The manifest's bias of a level is the mean of released less noisy over all measured cells."""
    for entry in published.manifest["levels"]:
        cells, rows = published.noisy(entry["level"]), published.rows(entry["level"])
        bias = (sum(row["count"] for _, row in rows) - sum(cells.values())) / len(cells)
        assert entry["bias"] == pytest.approx(bias)


def test_such_folders_verify(published):
    """A folder with noisy counts verifies; one in which a noisy count is changed, or an interval is not around its count, does not."""
    assert verify(published.folder) == []
    path = published.folder / "noisy_counts" / "level_2.parquet"
    before = path.read_bytes()
    try:
        pl.read_parquet(path).with_columns(pl.col("noisy_count") + 1).write_parquet(path)
        assert "noisy_counts/level_2.parquet does not have the bias that the manifest states." in verify(
            published.folder
        )
    finally:
        path.write_bytes(before)
    path = published.folder / "counts" / "level_2.parquet"
    before = path.read_bytes()
    try:
        pl.read_parquet(path).with_columns(high=pl.col("count") - 1).write_parquet(path)
        assert "level_2: counts must lie between low and high." in verify(published.folder)
        path.write_bytes(before)
        pl.read_parquet(path).with_columns(pl.col("high") + 10_000).write_parquet(path)
        told = "noisy_counts/level_2.parquet does not agree with the intervals of the released counts."
        assert told in verify(published.folder) or published.manifest["levels"][2]["sigma"] == 0
    finally:
        path.write_bytes(before)
    codebook = published.folder / "noisy_counts" / "codebook.parquet"
    before = codebook.read_bytes()
    try:
        areas = pl.read_parquet(codebook)
        areas = areas.with_columns(code=pl.col("code").reverse().over("axis", "level"))
        pq.write_table(areas.to_arrow().cast(CODEBOOK_SCHEMA), codebook)
        assert any("noisy_counts/level" in told for told in verify(published.folder))
    finally:
        codebook.write_bytes(before)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda manifest: manifest["intervals"].update(confidence=0.999),
            "has a half_width or cap_margin that does not follow from the noise, the rows and the confidence",
        ),
        (
            lambda manifest: manifest["levels"][3].update(cap_margin=0),
            "level 3 has a half_width or cap_margin that does not follow from the noise, the rows and the confidence",
        ),
        (
            lambda manifest: manifest["levels"][3]["noise_rows"].update(
                at_most=(manifest["levels"][3]["noise_rows"]["at_most"] + 0.5) % 1
            ),
            "level_3.parquet does not agree with noise_rows or above_noise of the manifest",
        ),
        (
            lambda manifest: change_estimate(manifest["levels"][3]["noise_rows"]),
            "level_3.parquet does not agree with noise_rows or above_noise of the manifest",
        ),
        (
            lambda manifest: manifest["levels"][3]["above_noise"].update(
                rows=(manifest["levels"][3]["above_noise"]["rows"] + 0.5) % 1
            ),
            "level_3.parquet does not agree with noise_rows or above_noise of the manifest",
        ),
        (
            lambda manifest: manifest["levels"][3].update(bound_after=manifest["levels"][3]["bound_after"] - 1),
            "bound_after does not follow from the released and the noisy counts",
        ),
        (lambda manifest: manifest.update(noisy_counts=False), "the manifest says that noisy counts are not published"),
        (lambda manifest: manifest.update(unprotected=[]), "is exact, but unprotected does not list it"),
    ],
)
def test_a_manifest_that_contradicts_the_folder_is_found(plain, tmp_path, change, told):
    """Margins, files and what is unprotected are held to the noise, the folder and the exact levels."""
    folder = copied(plain, tmp_path)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    assert any(told in failure for failure in verify(folder))


def test_a_folder_without_its_report_is_not_whole(plain, tmp_path):
    """Report, README and the metadata of CSV belong to every folder with intervals."""
    folder = copied(plain, tmp_path)
    names = ("report.html", "README.md", "metadata.json")
    for name in names:
        (folder / name).unlink()
    assert {f"{name} is missing." for name in names} <= set(verify(folder))


def test_noisy_counts_that_are_not_kept_are_nowhere(tmp_path):
    """Without noisy counts the folder has none, and its intervals end at multiples of the rounded σ, around the others."""
    case = with_keys(case_csv, keep_noisy_counts=False)
    made = make(tmp_path / "made", case, discrete_gaussian)
    manifest = json.loads((made.folder / "manifest.json").read_text())
    assert not (made.folder / "noisy_counts").exists()
    assert "noisy_counts" not in manifest
    assert manifest["intervals"]["rounded"]
    assert verify(made.folder) == []
    for entry in manifest["levels"][1:]:
        table, step = made.level(entry["level"]), ceil(entry["sigma"])
        assert entry["bound_after"] % step == 0
        assert set(table["low"] % step) == set(table["high"] % step) == {0}
        assert ((table["low"] <= table["count"]) & (table["count"] <= table["high"])).all()


def test_leaves_only_state_what_they_can(leaves):
    """`gaussian` has intervals at every level, of its leaves and their sums, and noisy counts of all leaves."""
    made = leaves
    manifest = json.loads((made.folder / "manifest.json").read_text())
    assert [path.name for path in sorted((made.folder / "noisy_counts").iterdir())] == [
        "codebook.parquet",
        f"level_{len(manifest['levels']) - 1}.parquet",
    ]
    widths = [int((made.level(k)["high"] - made.level(k)["low"]).max()) for k in range(len(manifest["levels"]))]
    assert widths[0] == max(widths)
    entry, table = manifest["levels"][-1], made.level(len(widths) - 1)
    tails = tails_of(entry["cells"], 1 - 0.9)
    odds = next(tail for size, tail in zip(tails.sizes, tails.log_tails, strict=True) if size <= table.height)
    z = gaussian_quantile(entry["sigma"], odds - log(2))
    assert (table["high"] == (table["count"] + z).clip(0)).all()
    assert (table["low"] == (table["count"] - z).clip(0)).all()  # a count below 0 lies outside: no true count is
    noisy = pl.read_parquet(made.folder / "noisy_counts" / f"level_{len(manifest['levels']) - 1}.parquet")
    assert noisy.height == manifest["levels"][-1]["cells"] == 144
    assert noisy["noisy_count"].sum() == made.level(0)["count"].item()
    assert verify(made.folder) == []


@pytest.mark.parametrize("column", ["low", "high", "signal"])
def test_sums_of_leaves_are_held_to_their_noise(leaves, tmp_path, column):
    """Of `gaussian`, the intervals and marks of every level follow from its counts, which are its noisy counts."""
    folder = copied(leaves.folder, tmp_path)
    depth = len(leaves.release.levels) - 1
    for level in range(depth + 1):
        path = folder / "counts" / f"level_{level}.parquet"
        table = pq.read_table(path)
        numbers = table[column].to_pylist()
        numbers[0] = not numbers[0] if column == "signal" else numbers[0] + (-5 if column == "low" else 5)
        changed = table.set_column(table.column_names.index(column), table.schema.field(column), [numbers])
        pq.write_table(changed, path)
    found = verify(folder)
    for level in range(depth + 1):
        names = (
            f"level_{level}: ",
            f"counts/level_{level}.parquet does not",
            f"noisy_counts/level_{level}.parquet does",
        )
        assert any(told.startswith(names) for told in found), (level, found)
