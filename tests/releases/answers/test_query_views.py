"""Questions about releases whose measurements were settled together: the measurement that says most about each is asked."""

import json
import math
from pathlib import Path

import polars as pl
import pytest

import trellis
from flows.answers.query import QueryAnswers, query_answer
from storage.errors import UsageError
from tasks.format.manifest import Manifest
from tasks.laws.named import noise_of
from tests.support.town import Town, level, view


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    """Return a town."""
    return Town(tmp_path_factory.mktemp("town"))


@pytest.fixture(scope="module")
def folder(town: Town) -> Path:
    """Release its views and leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", "")
        return town.release()


def asked(folder: Path, *where: str, simultaneous: bool = False):
    """Return the answer to one question."""
    return query_answer(folder, None, None, where, simultaneous=simultaneous)


def test_the_total_of_one_axis_is_asked_of_its_view(folder: Path) -> None:
    """The count is that of the view and of the leaves; the interval is that of the one noisy count of the cell."""
    row = view(folder, "living").row(by_predicate=pl.col("from_zone") == "A1", named=True)
    answer = asked(folder, "from=A1")
    leaves = level(folder, 4).filter(pl.col("from_zone") == "A1")
    assert (answer.count, answer.low, answer.high) == (row["count"], row["low"], row["high"])
    assert answer.count == leaves["count"].sum()
    assert answer.how.startswith("the cell of view living")
    assert answer.cells == {"added": 1}
    assert answer.promise == "question"


def test_a_derived_column_is_asked_like_an_axis(folder: Path) -> None:
    """A mode alone, and within a district, are cells of two views; the codes are in the answer."""
    by_mode = view(folder, "by_mode").row(by_predicate=pl.col("mode") == "rail", named=True)
    alone, within = asked(folder, "mode=rail"), asked(folder, "mode=rail", "from=A")
    assert (alone.count, alone.low, alone.high) == (by_mode["count"], by_mode["low"], by_mode["high"])
    row = view(folder, "mode_from").row(
        by_predicate=(pl.col("mode") == "rail") & (pl.col("from_district") == "A"), named=True
    )
    assert (within.count, within.low, within.high) == (row["count"], row["low"], row["high"])
    assert within.where["mode"].path == ["rail"]
    several = asked(folder, "mode=rail", "mode=bus")
    assert isinstance(several, QueryAnswers)
    assert [answer.where["mode"].path for answer in several.answers] == [["rail"], ["bus"]]


def leaves_by(folder: Path, mode: str, **codes: str) -> pl.DataFrame:
    """Return the released leaves with a mode and other codes."""
    table = level(folder, 4).join(pl.read_parquet(folder / "derived" / "mode.parquet"), on=["from_zone", "to_zone"])
    return table.filter(pl.col("mode") == mode, **codes)


def test_a_mode_that_no_view_counts_is_added_up_from_the_leaves(folder: Path) -> None:
    """Modes of a single zone are no view: the leaves that have the mode are added up, and the noise of as many draws."""
    answer = asked(folder, "mode=bus", "from=A1")
    assert answer.count == leaves_by(folder, "bus", from_zone="A1")["count"].sum()
    assert answer.cells == {"added": 2}
    assert answer.how.startswith("sum of 2 cells of level 4")
    manifest = json.loads((folder / "manifest.json").read_text())
    z = noise_of(Manifest.model_validate(manifest).levels[4]).quantile(math.log(0.05), 2)
    noisy = pl.read_parquet(folder / "noisy_counts" / "level_4.parquet")
    own = noisy.filter(pl.col("from") == 0, pl.col("to").is_in([1, 2]))["noisy_count"].sum()
    assert (answer.low, answer.high) == (min(max(own - z, 0), answer.count), max(own + z, answer.count, 0))


def test_several_derived_columns_are_added_up_together(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves that have all codes are added up; codes that no leaf has together count 0, which is no estimate."""
    monkeypatch.setenv("TRELLIS_HOME", "")
    (town.folder / "ends.csv").write_text("from,kind\nA1,old\nA2,new\nA3,new\nB1,old\n")
    derived = town.keys()["derived"] | {"kind": {"table": "ends.csv", "of": ["from.zone"]}}
    folder = town.release(derived=derived, name="several")
    answer = asked(folder, "mode=walk", "kind=old")
    walked = leaves_by(folder, "walk").filter(pl.col("from_zone").is_in(["A1", "B1"]))
    assert answer.count == walked["count"].sum()
    assert answer.cells == {"added": 2}
    assert answer.low is not None
    assert answer.high is not None
    assert answer.low <= answer.count <= answer.high
    kinds = [asked(folder, f"kind={kind}") for kind in ("old", "new")]
    assert [of.how.partition(":")[0] for of in kinds] == ["sum of 2 cells of view living"] * 2
    assert sum(of.count for of in kinds) == asked(folder).count
    nobody = asked(folder, "mode=bus", "kind=old", "from=B")
    assert (nobody.count, nobody.low, nobody.high) == (0, 0, 0)
    assert "do not occur together" in nobody.how


def test_a_question_about_a_code_or_an_axis_that_is_not_there_is_refused(folder: Path) -> None:
    """An unknown code and an unknown axis are named; pairs of zones are leaves."""
    with pytest.raises(UsageError, match="mode has no code tram"):
        asked(folder, "mode=tram")
    with pytest.raises(UsageError, match="no axis tram"):
        asked(folder, "tram=mode")
    assert asked(folder, "from=A3", "to=A1").how.startswith("the cell of level 4")


def test_a_derived_column_of_a_tree_without_views_is_refused(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is settled together, no sum of leaves has an interval; the hint names axis and level."""
    monkeypatch.setenv("TRELLIS_HOME", "")
    folder = town.release(mechanism="inftda", release__views=None, name="tree")
    with pytest.raises(UsageError, match="tells no codes of mode apart") as refused:
        asked(folder, "mode=rail")
    assert "from zone, to zone" in refused.value.hint


def test_the_question_decides_and_not_the_noise(folder: Path, tmp_path: Path) -> None:
    """With noisy counts that say anything else, the same measurement is asked."""
    twin = tmp_path / "twin"
    twin.mkdir()
    for path in folder.rglob("*"):
        copy = twin / path.relative_to(folder)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    for path in (twin / "noisy_counts").glob("*.parquet"):
        table = pl.read_parquet(path)
        if "noisy_count" in table.columns:
            table.with_columns(pl.col("noisy_count") * 0 + 500).write_parquet(path)
    for where in (["from=A"], ["to=A1"], ["mode=walk"], ["from=A", "to=B"], []):
        assert asked(twin, *where).how == asked(folder, *where).how


def test_sums_of_several_cells_have_the_noise_of_all_of_them(folder: Path) -> None:
    """All trips from a district are its three zones in the view of zones, or two cells of pairs of districts, whichever has less noise."""
    manifest = json.loads((folder / "manifest.json").read_text())
    answer = asked(folder, "from=A")
    sigma = {of["name"]: of["sigma"] for of in manifest["views"]}
    least = min(math.sqrt(3) * sigma["living"], math.sqrt(2) * sigma["pairs"])
    assert answer.count == view(folder, "living").filter(pl.col("from_district") == "A")["count"].sum()
    stretched = answer.count in {answer.low, answer.high}  # as far as the released count, where that lies outside
    assert stretched or answer.high - answer.low < 2 * 1.8 * least + 2


def test_without_noisy_counts_rows_answer(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of a view has its row; the intervals of several are widened and added up; nothing holds simultaneously."""
    monkeypatch.setenv("TRELLIS_HOME", "")
    folder = town.release(release__noisy_counts=False, name="without")
    row = view(folder, "by_mode").row(by_predicate=pl.col("mode") == "bus", named=True)
    answer = asked(folder, "mode=bus")
    assert (answer.count, answer.low, answer.high) == (row["count"], row["low"], row["high"])
    several, rows = asked(folder, "from=A"), view(folder, "pairs").filter(pl.col("from_district") == "A")
    assert several.how.startswith("sum of 2 cells of view pairs")
    assert 0 <= several.low <= rows["low"].sum() <= several.count <= rows["high"].sum() < several.high
    assert several.high - rows["high"].sum() < rows["high"].sum() - rows["low"].sum()
    assert asked(folder, "mode=bus", simultaneous=True).low is None
    of_leaves = asked(folder, "mode=bus", "from=A1")
    assert of_leaves.count == leaves_by(folder, "bus", from_zone="A1")["count"].sum()
    assert (of_leaves.low, of_leaves.high) == (0, asked(folder).high)


def test_python_asks_the_same(folder: Path) -> None:
    """`open_release` lists and returns views, and answers about derived columns."""
    release = trellis.open_release(folder)
    assert release.views == ["total", "living", "working", "by_mode", "mode_from", "pairs"]
    assert release.view("by_mode").equals(view(folder, "by_mode"))
    with pytest.raises(UsageError, match="no view nothing"):
        release.view("nothing")
    found = release.query(mode=["bus", "rail"])
    assert found["mode"].to_list() == ["bus", "rail"]
    by_mode = view(folder, "by_mode").filter(pl.col("mode").is_in(["bus", "rail"])).sort("mode")
    assert found["count"].to_list() == by_mode["count"].to_list()


def test_python_asks_of_every_combination_of_areas_and_codes(folder: Path) -> None:
    """A row per district and mode, as they were asked for, with the counts that the command line gives; an unknown code is named."""
    release = trellis.open_release(folder)
    rows = release.query({"mode": ["walk", "rail"], "from": [None, "district=A"]})
    assert rows.columns == ["from", "to", "mode", "count", "low", "high", "level", "how"]
    told = [
        (of, "all", mode, asked(folder, f"from={of}", f"mode={mode}"))
        for of in ("all", "A")
        for mode in ("walk", "rail")
    ]
    assert rows.select("from", "to", "mode", "count", "low", "high").rows() == [
        ("district=A" if of == "A" else of, to, mode, answer.count, answer.low, answer.high)
        for of, to, mode, answer in told
    ]
    with pytest.raises(UsageError, match="mode has no code tram"):
        release.query({"mode": ["walk", "tram"]})
