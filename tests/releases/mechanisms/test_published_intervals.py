"""Published intervals, against what a reader can compute from the published noisy counts, cell by cell."""

import shutil
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from flows.answers.verify import verify_answer
from storage.errors import StoreError, TrellisError
from tasks.folder.verify.folder import verify
from tasks.format.noisy_counts import CODEBOOK_SCHEMA
from tasks.laws.gaussian import GAUSSIAN, gaussian_quantile
from tasks.laws.laplace import LAPLACE, laplace_variance
from tasks.laws.law import LevelNoise
from tasks.laws.samplers import discrete_gaussian
from tasks.mechanisms import MECHANISMS
from tasks.uncertainty.intervals import NO_CAP, Margins, margins_of, row_margins, simultaneous_margins
from tasks.uncertainty.signals import tails_of
from tests.support.cases import CASES, case_csv
from tests.support.folders import change_estimate, changed, manifest_of, rewrite, with_sums
from tests.support.laws import gaussians
from tests.support.making import CUT, make, noise_of_the_cell, quick
from tests.support.passes import check_rows, counts_of, try_spec
from tests.support.runs import finish
from tests.support.spec import spec_in


@dataclass(frozen=True)
class Published:
    """A published folder, read as its README says."""

    folder: Path
    manifest: dict[str, Any]

    def paths(self):
        """Return, per axis and axis level, the path of codes of each area, by its number."""
        codebook = pl.read_parquet(self.folder / "noisy_counts" / "codebook.parquet")
        paths = {}
        for (axis,), of_axis in codebook.group_by("axis", maintain_order=True):
            above = [()]
            for own, (_, areas) in enumerate(of_axis.group_by("level", maintain_order=True), 1):
                assert areas["area"].to_list() == list(range(areas.height))
                above = [(*above[parent], code) for parent, code in zip(areas["parent"], areas["code"], strict=True)]
                paths[str(axis), own] = above
        return paths

    def noisy(self, level):
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

    def reached(self, level):
        """Return how many of its levels each axis has reached at a level."""
        axes = [entry["axes"] for entry in self.manifest["levels"][: level + 1]]
        return {axis: len({of[axis] for of in axes} - {None}) for axis in axes[0]}

    def rows(self, level):
        """Return the cells and the numbers of a published level."""
        table = pl.read_parquet(self.folder / "counts" / f"level_{level}.parquet")
        columns = {
            axis: [name for name in table.columns if name.startswith(f"{axis}_")] for axis in self.reached(level)
        }
        rows = list(table.iter_rows(named=True))
        return [(tuple(tuple(row[name] for name in of) for of in columns.values()), row) for row in rows]


def with_keys(case, **changes):
    """Return a case whose spec has other keys, those of sections added to what is there."""

    def made(folder):
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
def published(request, tmp_path_factory):
    """Make a release by a mechanism that goes down the tree, whole or cut into branches."""
    mechanism, case, keys, sizes = request.param
    folder = tmp_path_factory.mktemp("intervals") / "made"
    made = make(folder, with_keys(CASES[case], **keys), discrete_gaussian, mechanism=mechanism, sizes=sizes)
    return Published(made.folder, manifest_of(made.folder))


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
            of_levels = [zip(cell, depths, strict=True) for depths in reached[:level]]
            above = [tuple(path[:length] for path, length in of) for of in of_levels]
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


def other_codes(folder):
    """Give the areas of each level the codes of others, with the right checksum."""
    path = folder / "noisy_counts" / "codebook.parquet"
    areas = pl.read_parquet(path).with_columns(code=pl.col("code").reverse().over("axis", "level"))
    pq.write_table(areas.to_arrow().cast(CODEBOOK_SCHEMA), path)
    with_sums(folder)


FAULTS = [
    (changed("noisy_counts/level_2.parquet", lambda of: of.with_columns(pl.col("noisy_count") + 1)), "counts/level_2.parquet does not have"),
    (changed("counts/level_2.parquet", lambda of: of.with_columns(high=pl.col("count") - 1)), "level_2: counts must lie between low and high."),
    (changed("counts/level_2.parquet", lambda of: of.with_columns(pl.col("high") + 10_000)), "counts/level_2.parquet does not have the intervals that follow"),
    (other_codes, "counts/level_"),
]  # fmt: skip


def test_such_folders_verify(published, tmp_path):
    """A folder with noisy counts verifies; one in which a noisy count is changed, or an interval is not around its count, does not."""
    assert verify(published.folder) == []
    for number, (change, told) in enumerate(FAULTS):
        folder = Path(shutil.copytree(published.folder, tmp_path / str(number) / published.folder.name))
        change(folder)
        assert any(failure.startswith(told) for failure in verify(folder)), verify(folder)


MARGINS = "has a half_width or cap_margin that does not follow from the noise, the rows and the confidence"
LACKS = "level_3.parquet does not have the {} that the manifest"
SHARES, ABOVE = LACKS.format("noise_rows"), LACKS.format("above_noise")


def other(of, key):
    """Change a share."""
    of[key] = (of[key] + 0.5) % 1


BOUND_AFTER = "level_3.parquet does not have the bound_after that the manifest states"
LAPLACIAN = "trips of three"
LIES = [
    ("trips", lambda of: of["intervals"].update(confidence=0.999), MARGINS),
    ("trips", lambda of: of["levels"][3].update(cap_margin=0), f"level 3 {MARGINS}"),
    ("trips", lambda of: other(of["levels"][3]["noise_rows"], "at_most"), SHARES),
    ("trips", lambda of: change_estimate(of["levels"][3]["noise_rows"]), SHARES),
    ("trips", lambda of: other(of["levels"][3]["above_noise"], "rows"), ABOVE),
    ("trips", lambda of: of["levels"][3].update(bound_after=of["levels"][3]["bound_after"] - 1), BOUND_AFTER),
    ("trips", lambda of: of.update(noisy_counts=False), "the manifest says that noisy counts are not published"),
    ("trips", lambda of: of.update(unprotected=[]), "is exact, but unprotected does not list it"),
    ("trips", lambda of: of["levels"][2].update(epsilon=0.5), "costs rho, and no epsilon of a level"),
    (LAPLACIAN, lambda of: of["levels"][2].update(scale=9.0), "level_2.parquet has a variance"),
    (LAPLACIAN, lambda of: of["levels"][2].update(epsilon=3.9), "levels cost more than its epsilon and delta"),
    (LAPLACIAN, lambda of: of["levels"][2].update(sigma=4.0), "level 2: its sigma is not that of its scale"),
    (LAPLACIAN, lambda of: of["levels"][2].update(mechanism="cauchy"), "no noise law cauchy"),
    (LAPLACIAN, lambda of: of["levels"][2].update(mechanism="thresholded_discrete_laplace"), "noise law thresholded_discrete_laplace has a threshold"),
    (LAPLACIAN, lambda of: of["privacy"].update(epsilon=19.0), "levels cost more than its epsilon and delta"),
    (LAPLACIAN, lambda of: of["privacy"].update(accountant="zcdp"), "has no rho, and costs what its privacy map returns"),
    (LAPLACIAN, lambda of: of["privacy"].update(max_records_per_unit=4), "cost more than its epsilon"),
    (LAPLACIAN, lambda of: of["privacy"].update(sampler="dice"), "further from its law than its tau"),
    (LAPLACIAN, lambda of: of["levels"][2].update(half_width=30), "half_width"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "lie", "told"), LIES, ids=[f"{number}: {lie[2]}" for number, lie in enumerate(LIES)])
def test_a_manifest_that_contradicts_the_folder_or_the_law_is_found(library, tmp_path, name, lie, told):
    """Margins, files and what is unprotected are held to the noise, the folder and the exact levels; the guarantee to the law of the noise."""
    folder = library[name].copied(tmp_path)
    rewrite(folder, lie)
    failures = verify_answer(folder).failures
    assert any(told in failure for failure in failures), failures


@pytest.mark.parametrize("column", ["low", "high", "signal"])
def test_sums_of_leaves_are_held_to_their_noise(library, tmp_path, column):
    """Of `gaussian`, the intervals and marks of every level follow from its counts, which are its noisy counts."""
    folder, depth = library["leaves"].copied(tmp_path), len(library["leaves"].found.levels) - 1
    for level in range(depth + 1):
        path = folder / "counts" / f"level_{level}.parquet"
        table = pq.read_table(path)
        numbers = table[column].to_pylist()
        numbers[0] = not numbers[0] if column == "signal" else numbers[0] + (-5 if column == "low" else 5)
        changed = table.set_column(table.column_names.index(column), table.schema.field(column), [numbers])
        pq.write_table(changed, path)
    found = verify(folder)
    for level in range(depth + 1):
        names = (f"level_{level}: ", f"counts/level_{level}.parquet does not")
        assert any(told.startswith(names) for told in found), (level, found)


BOTH = [  # views and group sizes have tests of their own
    name
    for name, recipe in MECHANISMS.items()
    if "laplace" in recipe.laws and "gaussian" in recipe.laws and recipe.cells != "views" and not recipe.counts_groups
]


@pytest.mark.parametrize("mechanism", BOTH)
def test_counts_follow_from_the_noise_whatever_its_law_and_scale(mechanism, tmp_path, own_home):
    """With noise that is tied to the cell, releases by either law have the same counts at every level, within their intervals."""
    # Only `inftda_lenient` prunes by how large the noise is.
    counts, keys = [], case_csv(tmp_path).keys | {"mechanism": mechanism}
    with noise_of_the_cell() as sampler:
        for law in ("gaussian", "laplace"):
            accountant = {"accountant": "zcdp"} if law == "gaussian" else {}
            of_law = {"noise": {"law": law}, "privacy": keys["privacy"] | accountant}
            plan, _, trial = try_spec(spec_in(tmp_path, keys | of_law), sampler)
            assert plan.law == law
            check_rows(trial)
            counts.append([counts_of(nodes) for nodes in trial.released])
    assert (counts[0] == counts[1]) or mechanism == "inftda_lenient"


def test_published_noisy_counts_and_margins_are_those_of_the_law(library):
    """The variance of every noisy count, and the half-width of every level, are the discrete Laplace law's."""
    folder = library[LAPLACIAN].folder
    levels = manifest_of(folder)["levels"]
    noises = [LevelNoise(LAPLACE, level["scale"]) if level["sigma"] else LevelNoise(None, 0.0) for level in levels]
    stated = [(level.get("half_width", 0), level.get("cap_margin", 0)) for level in levels]
    of_rows = row_margins(noises, [level["cells"] for level in levels], [level["nonzero"] for level in levels], 0.9)
    fixed = margins_of(noises, 0.9)
    assert stated == [(of_row.own, of_cell.cap) for of_row, of_cell in zip(of_rows, fixed, strict=True)]
    for level in levels[1:]:
        noisy = pl.read_parquet(folder / "noisy_counts" / f"level_{level['level']}.parquet")
        assert noisy["variance"].unique().to_list() == pytest.approx([laplace_variance(level["scale"])])


@pytest.mark.thorough
def test_no_other_law_draws_at_the_scale_of_a_release(tmp_path, monkeypatch):
    """Where the mechanism no longer has the law that a release is charged for, the release stops before anything is drawn."""

    def stopped(true_counts, scale):
        raise MemoryError(f"{len(true_counts)} cells at {scale}")

    with pytest.raises(TrellisError):
        make(tmp_path / "by_laplace", quick(case_csv), stopped, law="laplace")
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "by_laplace" / "home"))
    monkeypatch.setitem(MECHANISMS, "inftda", replace(MECHANISMS["inftda"], laws={"gaussian": GAUSSIAN}))
    with pytest.raises(StoreError, match="does not draw"):
        finish(f"{tmp_path.name}-by_laplace")
