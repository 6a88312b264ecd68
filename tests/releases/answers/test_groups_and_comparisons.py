"""Sums of one's own areas, groups of areas by a public table, and differences and shares of two answers."""

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.answers.query import QueryAnswer, QueryAnswers, query_answer
from flows.api import PublishedRelease, open_release
from flows.cli.main import main
from flows.console.release_view import show_query
from storage.errors import TrellisError, UsageError
from tasks.laws.law import quantile_of_sum
from tasks.released.boxes import taken_apart
from tasks.released.query.answers import answer as answer_about
from tasks.released.query.comparisons import Asked
from tasks.released.query.sets import find_areas
from tasks.released.unbiased import UnbiasedEstimate
from tests.support.ages import EXACT, draw_people, people_released
from tests.support.folders import without_noisy_counts
from tests.support.library import Library

ZONES = ["n", "n+s", "n..s", "s", "65+"]


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedRelease:
    """Return a release without noise whose codes look like sums and ranges."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    zones = np.random.default_rng(5).choice(ZONES, 600)
    people = draw_people().with_columns(zone=pl.Series(zones))
    return people_released(tmp_path, people, hierarchy={"zone": {"values": ZONES}, "age": {"ordered": 10}}, **EXACT)


@pytest.mark.parametrize(
    ("asked", "zones"),
    [
        ("n+s", ["n+s"]),
        ("n..s", ["n..s"]),
        ("n + s", ["n", "s"]),
        ("n+65+", ["n", "65+"]),
        ("65++n+s", ["65+", "n+s"]),
        ("65+..n", ["65+", "n"]),
        ("n+s+s", ["n+s", "s"]),
        ("65+..n..s+s", ["65+", "n", "n+s", "n..s", "s"]),
    ],
)
def test_codes_that_look_like_sums_come_first(odd: PublishedRelease, asked: str, zones: list[str]) -> None:
    """A code with a + or .. in it is that code; around it, areas are added up, and a range is in the order of the codebook."""
    people = pl.read_csv(odd.folder.parents[1] / "people.csv")
    [row] = odd.query(zone=asked, age="2..5+8").to_dicts()
    inside = people.filter(pl.col("zone").is_in(zones), pl.col("age").is_in([2, 3, 4, 5, 8]))
    assert row["count"] == inside.height
    assert row["low"] <= row["count"] <= row["high"]


def test_a_sum_of_ends_is_the_sum_of_its_pairs(library: Library) -> None:
    """Provinces by municipalities of trips: the count is that of the pairs, each area may be in a sum once, and levels may be mixed."""
    trips = library["trips"].found
    axis = trips.published.tree.axes[0]
    provinces, towns = (axis.codes[level].to_list() for level in (1, 2))
    origin, destination = f"{provinces[0]}+{provinces[3]}", f"{towns[1]}..{towns[4]}+{towns[7]}"
    answer = query_answer(trips.folder, origin, destination, [], simultaneous=False)
    assert isinstance(answer, QueryAnswer)
    pairs = trips.table(len(trips.levels) - 1).filter(
        pl.col("origin_province").is_in([provinces[0], provinces[3]]),
        pl.col("destination_municipality").is_in([*towns[1:5], towns[7]]),
    )
    assert answer.count == pairs["count"].sum()
    assert answer.where["origin"].path == [origin]
    assert answer.where["destination"].path == [destination]
    assert answer.low <= answer.count <= answer.high
    mixed = f"{axis.codes[0][0]}+{provinces[3]}"
    total = sum(trips.query(origin=of)["count"].item() for of in mixed.split("+"))
    assert trips.query(origin=mixed)["count"].to_list() == [total]
    everything = "+".join(axis.codes[0])
    assert trips.query(origin=everything)["low"].to_list() == trips.query()["low"].to_list()
    with pytest.raises(UsageError, match=f"{provinces[0]} is in .* twice|is in .* twice"):
        trips.query(origin=f"{axis.codes[0][0]}+{provinces[0]}")


@pytest.mark.parametrize("name", ["walked", "two passes", "walked with Laplace noise"])
def test_parts_of_several_levels_share_the_probability(library: Library, name: str) -> None:
    """Where the noise is not added up, the sum has the ends of the answers about its parts, each of which misses with 1/k of α, and says so.

    Trellis asks of so many parts only if all areas at one level would have more noise.
    """
    published, several = library[name].found.published, 0
    for first, last in combinations(range(10), 2):
        areas = [find_areas(published, axis, {"age": f"{first}..{last}", "zone": "n"}[axis]) for axis in published.axes]
        asked, found = Asked.of(published, areas, {}), answer_about(published, areas)
        if "their noise is not added up" not in found.how:
            continue
        apart = [
            of
            for of in taken_apart(asked.estimate.folder.tree, asked.parts)
            if found.how.startswith(f"sum of {len(of)} parts")
        ]
        several += 1
        ends = [[asked.estimate.answers(box, confidence=1 - 0.1 / len(of)) for box in of] for of in apart]
        assert (found.low, found.high) in [
            (sum(int(one.low[0]) for one in of), sum(int(one.high[0]) for one in of)) for of in ends
        ]
    assert several


def written(folder: Path, rows: list[tuple[str, ...]], *columns: str) -> str:
    """Write a table of groups, and return its path."""
    path = folder / f"groups-{len(list(folder.iterdir()))}.csv"
    pl.DataFrame(rows, schema=list(columns), orient="row").write_csv(path)
    return str(path)


@pytest.mark.parametrize("name", ["walked", "settled together", "unbiased tree", "leaves", "grid"])
def test_groups_are_counted_one_by_one(library: Library, name: str, tmp_path: Path, capsys: Any) -> None:
    """A row for each group of a table, by command and in Python, which is that of the sum of its codes; the name is shown."""
    people = library[name].found
    ages = [("0", "young"), ("1", "young"), ("4", "old"), ("9", "old"), ("7", "old")]
    table = written(tmp_path, ages, "code", "group")
    told = query_answer(people.folder, None, None, ["zone=n"], simultaneous=False, areas=[table])
    assert isinstance(told, QueryAnswers)
    for answer, (group, codes) in zip(told.answers, (("young", "0+1"), ("old", "4+7+9")), strict=True):
        alone = query_answer(people.folder, None, None, ["zone=n", f"age={codes}"], simultaneous=False)
        assert (answer.count, answer.low, answer.high, answer.how) == (alone.count, alone.low, alone.high, alone.how)
        assert answer.where["age"].name == group
    show_query(told)
    assert "young" in capsys.readouterr().out
    frame = pl.read_csv(table, infer_schema=False)
    for areas in (table, frame, {"age": frame.to_pandas() if hasattr(frame, "to_pandas_never") else frame}):
        rows = people.query(zone="n", areas=areas)
        assert rows["age"].to_list() == ["young", "old"]
        assert rows["count"].to_list() == [answer.count for answer in told.answers]


def test_groups_of_both_ends_and_of_levels(library: Library, tmp_path: Path) -> None:
    """Groups of one end, of both by two files or a column, of codes of a level; where an end is not named, the hint says how."""
    trips = library["trips"].found
    axis = trips.published.tree.axes[0]
    codes = [(code, code[:1] + "x" if number % 2 else "other") for number, code in enumerate(axis.codes[1])]
    table = written(tmp_path, codes, "code", "group")
    with pytest.raises(UsageError, match="is a code of origin and destination") as refused:
        trips.query(areas=table)
    assert "--areas origin=FILE or --areas destination=FILE" in refused.value.hint
    flows = trips.query(areas={"origin": table, "destination": table})
    assert flows.height == 4
    assert flows["count"].sum() == trips.query()["count"].item()
    both = written(
        tmp_path,
        [("01", "within", of, "region") for of in ("origin", "destination")],
        *["code", "group", "axis", "level"],
    )
    [row] = trips.query(areas=both).to_dicts()
    assert row["count"] == trips.query(origin="region=01", destination="region=01")["count"].item()


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        ([("0", "a"), ("1", "a"), ("0", "a")], ("code", "group"), "age: 0 is in a twice"),
        ([("0", "a"), ("12", "a")], ("code", "group"), "no level has an area 12"),
        ([("0", "a"), ("", "a")], ("code", "group"), "column code must not be empty; see row 2"),
        ([("0", "a")], ("code", "name"), "column group"),
        ([("0", "a", "hour")], ("code", "group", "axis"), "the release has no axis hour"),
        ([("0", "a", "year")], ("code", "group", "level"), "0 of level year is no code of zone, age"),
        ([], ("code", "group"), "no rows"),
    ],
)
def test_tables_of_groups_that_cannot_be_read_are_named(
    library: Library, tmp_path: Path, rows: list[tuple[str, ...]], columns: tuple[str, ...], said: str
) -> None:
    """An area twice, unknown, blank; a column that is missing; another axis or level."""
    people = library["walked"].found
    path = tmp_path / "groups.csv"
    path.write_text("\n".join([",".join(columns), *(",".join(row) for row in rows)]) + "\n")
    with pytest.raises(TrellisError, match=said):
        people.query(areas=str(path))
    with pytest.raises(UsageError, match="age is asked for twice"):
        people.query(age="1", areas=written(tmp_path, [("0", "a")], "code", "group"))


QUESTION = {"age": "2..5+8", "zone": "n"}


def both_drawn(one: PublishedRelease, other: PublishedRelease) -> list[Asked]:
    """Return the question to two releases."""
    return [
        Asked.of(of.published, [find_areas(of.published, axis, QUESTION[axis]) for axis in of.published.axes], {})
        for of in (one, other)
    ]


@pytest.mark.parametrize(
    ("one", "other", "how"),
    [
        ("leaves", "settled together", "added up"),
        ("unbiased tree", "ages of three", "standard deviation"),
        ("walked", "walked with Laplace noise", "both intervals hold"),
        ("two passes", "leaves", "both intervals hold"),
        ("unbiased tree", "leaves", "both intervals hold"),
    ],
)
def test_a_difference_has_an_interval_of_its_own(library: Library, one: str, other: str, how: str) -> None:
    """All draws at once, or the deviations of both, or both intervals with half of α each; it is narrower than the intervals added up."""
    releases = [library[name].found for name in (one, other)]
    [row] = releases[0].query(**QUESTION, minus=releases[1]).to_dicts()
    counts = [of.query(**QUESTION).to_dicts()[0] for of in releases]
    assert row["difference"] == counts[0]["count"] - counts[1]["count"]
    assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    answer = query_answer(
        releases[0].folder,
        None,
        None,
        [f"{a}={b}" for a, b in QUESTION.items()],
        simultaneous=False,
        minus=releases[1].folder,
    )
    assert answer.difference is not None
    assert how in answer.difference.how
    assert (answer.difference.low, answer.difference.high) == (row["difference_low"], row["difference_high"])
    asked = both_drawn(*releases)
    if how == "added up":
        drawn = [of.answer(0.9).drawn for of in asked]
        z = quantile_of_sum([draw for of in drawn for draw in of.draws.values()], math.log(0.05))
        middle = drawn[0].noisy - drawn[1].noisy
        assert row["difference_low"] == min(middle - z, row["difference"])
        assert row["difference_high"] == max(middle + z, row["difference"])
        assert z < sum(quantile_of_sum(of.draws.values(), math.log(0.05)) for of in drawn)
    elif how == "standard deviation":
        reach = 1.6449 * math.hypot(*(of["sd"] for of in counts)) + 2
        assert row["difference_high"] - row["difference"] == pytest.approx(reach, abs=1)
    else:
        (low, high), (least, most) = (
            (int(of.low[0]), int(of.high[0])) for of in (asked.answer(0.95) for asked in asked)
        )
        assert (row["difference_low"], row["difference_high"]) == (
            min(low - most, row["difference"]),
            max(high - least, row["difference"]),
        )


SHARES = ["leaves", "settled together", "unbiased tree", "grid", "walked", "two passes", "ages of three"]


@pytest.mark.parametrize("name", SHARES)
def test_a_share_has_an_interval_of_its_own(library: Library, name: str, tmp_path: Path) -> None:
    """It holds the released share, is within 0 and 1, and hardly wider than what the ends of both intervals say; of all it is everything."""
    people = library[name].found
    [row] = people.query(**QUESTION, share_of={"age": "all"}).to_dicts()
    part, whole = (people.query(zone="n", age=age).to_dicts()[0] for age in (QUESTION["age"], None))
    assert row["share"] == pytest.approx(part["count"] / whole["count"])
    assert 0 <= row["share_low"] <= row["share"] <= row["share_high"] <= 1
    asked = [
        Asked.of(
            people.published,
            [find_areas(people.published, axis, {**QUESTION, **of}.get(axis)) for axis in people.published.axes],
            {},
        )
        for of in ({}, {"age": None})
    ]
    (low, high), (least, most) = ((int(of.low[0]), int(of.high[0])) for of in (one.answer(0.95) for one in asked))
    assert row["share_low"] >= min(low / most, row["share"]) - 0.01
    assert row["share_high"] <= max(high / max(least, 1), row["share"]) + 0.01
    [all_] = people.query(zone="n", share_of={"zone": "n"}).to_dicts()
    assert (all_["share"], all_["share_high"]) == (1.0, 1.0)
    with pytest.raises(UsageError, match="does not hold all that is asked for"):
        people.query(age="2..5", share_of={"age": "3..9"})
    with pytest.raises(UsageError, match="no intervals that hold all at once"):
        people.query(age="2..5", share_of={"age": "all"}, simultaneous=True)


@pytest.mark.parametrize("name", ["unbiased tree", "grid"])
def test_the_covariance_of_a_part_and_a_whole_is_that_of_least_squares(library: Library, name: str) -> None:
    """By variances of sets alone: V(A) + V(B) + 2 Cov is the variance of a sum of disjoint ones, and Cov of a part with itself its variance."""
    people = library[name].found
    asked = [
        Asked.of(
            people.published,
            [find_areas(people.published, axis, {"age": age, "zone": "n"}.get(axis)) for axis in people.published.axes],
            {},
        )
        for age in ("1..3+7", "4..5", "1..5+7", "1+7..8")
    ]
    estimate = asked[0].estimate
    assert isinstance(estimate, UnbiasedEstimate)
    one, other, both, crossing = (of.parts for of in asked)
    variances = [estimate.covariance(of, of) for of in (one, other, both)]
    assert variances[0] + variances[1] + 2 * estimate.covariance(one, other) == pytest.approx(variances[2], rel=1e-9)
    assert estimate.covariance(one, both) == pytest.approx(variances[0] + estimate.covariance(one, other), rel=1e-9)
    assert estimate.covariance(crossing, one) == pytest.approx(estimate.covariance(one, crossing), rel=1e-9)
    assert abs(estimate.covariance(crossing, one)) < max(variances)


def test_what_rows_alone_say_is_not_compared(library: Library, tmp_path: Path) -> None:
    """Without noisy counts, the intervals of rows have a probability of their own: the difference and the share are stated without any."""
    people = library["walked"].found
    bare = open_release(without_noisy_counts(people.folder, tmp_path / "bare"))
    with pytest.raises(UsageError, match="must name another release"):
        bare.query(age="3", minus=people)
    [row] = bare.query(age="3", zone="n", share_of={"age": "all"}).to_dicts()
    assert row["share"] is not None
    assert row["share_low"] is None
    [row] = bare.query(age="3", zone="n", minus=library["leaves"].found).to_dicts()
    assert row["difference_low"] is None


def test_the_command_line_compares(
    library: Library, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--minus and --share-of add an object to the answer, and a line for people; several answers have columns of them."""
    monkeypatch.setattr("os.umask", lambda _: 0)  # the command sets that of its process
    one, other = (str(library[name].folder) for name in ("leaves", "settled together"))
    options = ["--age", "2..5+8", "--minus", other, "--share-of", "age=all"]
    assert main(["query", one, *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["difference"]["minus"] == Path(other).name
    assert set(told["difference"]) == {"minus", "count", "low", "high", "confidence", "how"}
    assert told["share"]["of"]["age"] is None
    assert told["share"]["low"] <= told["share"]["share"] <= told["share"]["high"]
    assert main(["query", one, *options]) == 0
    shown = capsys.readouterr().out
    assert f"difference to {Path(other).name}: " in shown
    assert "share of everything (" in shown
    assert main(["query", one, *options, "--zone", "n", "--zone", "s"]) == 0
    assert "difference" in capsys.readouterr().out
    assert main(["query", one, "--age", "1", "--share-of", "mode=all"]) == 2
