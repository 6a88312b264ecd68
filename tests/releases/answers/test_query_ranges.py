"""Questions about ranges of ordered axes: counts, deviations and intervals of every kind of folder, and what is refused."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.api import PublishedRelease
from flows.cli.main import main
from storage.errors import UsageError
from tasks.query.ranges import AreaRange, fewest_areas
from tasks.tree.axis import axis_from_codebook
from tasks.tree.ordered import ordered_axis
from tests.support.ages import EXACT, PRIVACY, draw_people, people_released
from tests.support.library import FAMILY, ROWS, TABLE, Library

MONTHS = {"first": "2024-01-01", "last": "2024-06-30"}


PRUNED_ALONE = "pruned without noisy counts"
OF_ITS_OWN: dict[str, dict[str, Any]] = {  # without noise, or with what no release of the library has
    "total": {"mechanism": "unbiased_tree", "privacy": PRIVACY | {"neighbours": "substitution"}},
    "without noisy counts": {"mechanism": "hierarchical", "release": {"order": ["zone", "age"], "noisy_counts": False}},
    "pruned": {**EXACT, "mechanism": "inftda_reconciled"},
    PRUNED_ALONE: {**EXACT, "mechanism": "inftda", "release": {"order": ["zone", "age"], "noisy_counts": False}},
    "views": {**EXACT, "mechanism": "inftda", "release": {"order": ["zone", "age"], "views": "margins"}},
    "settled without the total": {
        **EXACT,
        "mechanism": "cbdp",
        "release": {"order": ["zone", "age"], "views": {"ages": {"age": "age"}}},
    },
    "made": {**EXACT, "release": {"order": ["zone", "age"], "finest": {"age": "age_2"}}},
}
BRANCHED = {"hierarchy": {"zone": {"values": ["n", "s"]}, "age": {"ordered": 10, "branching": 3}}}
OF_AGES = [name for name, row in ROWS.items() if row[TABLE] == "people"]
TREE = "unbiased tree"


class Releases:
    """Releases of people by age: those of the library, and others, each made when it is first asked for."""

    def __init__(self, library: Library, folder: Path) -> None:
        self.library, self.folder = library, folder
        self.made: dict[str, PublishedRelease] = {}

    def __getitem__(self, name: str) -> PublishedRelease:
        """Return a release."""
        if name in ROWS:
            return self.library[name].found
        if name not in self.made:
            number = list(OF_ITS_OWN).index(name)
            (of := self.folder / str(number)).mkdir()
            keys = {} if name in {"total", "without noisy counts", "made"} else BRANCHED
            people = draw_people(600 + number)  # another table, of another dataset
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TRELLIS_HOME", str(self.folder / "home"))
                own = keys | OF_ITS_OWN[name] | {"dataset": f"people-{number}"}
                self.made[name] = people_released(of, people, **own)
        return self.made[name]


@pytest.fixture(scope="module")
def releases(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Releases:
    """Return releases by mechanisms of every kind."""
    return Releases(library, tmp_path_factory.mktemp("ranges"))


def truth(found: PublishedRelease, first: int, last: int, zone: str | None = None) -> int:
    """Return how many people of a release have an age in a range."""
    people = pl.read_csv(found.folder.parents[1] / "people.csv")
    return people.filter(pl.col("age").is_between(first, last), zone is None or pl.col("zone") == zone).height


def asked(found: PublishedRelease, **where: str) -> dict[str, Any]:
    """Return the answer to a question."""
    (row,) = found.query(**where).to_dicts()
    return row


@pytest.mark.parametrize("name", ["pruned", "views", "settled without the total"])
def test_a_range_without_noise_is_the_truth(releases: Releases, name: str) -> None:
    """Every range of ages, in a zone and in all, counts its people, inside its interval."""
    found = releases[name]
    for first, last in product(range(10), repeat=2):
        if first > last:
            continue
        row = asked(found, age=f"{first}..{last}")
        assert row["count"] == truth(found, first, last)
        assert row["low"] <= row["count"] <= row["high"]
        assert "sd" not in row
    row = asked(found, age="2..6", zone="n")
    assert row["count"] == truth(found, 2, 6, "n")


@pytest.mark.parametrize("name", [*OF_AGES, "without noisy counts"])
def test_a_range_is_the_sum_of_its_rows(releases: Releases, name: str) -> None:
    """Whatever mechanism and noise, what is counted is what the table of leaves adds up to, and an interval holds it."""
    found = releases[name]
    leaves = found.table(len(found.levels) - 1).with_columns(pl.col("age").cast(int))
    for first, last, zone in [(0, 0, None), (0, 4, "n"), (0, 9, None), (3, 9, "n"), (3, 4, None), (7, 9, "n")]:
        row = asked(found, age=f"{first}..{last}", **({"zone": zone} if zone else {}))
        inside = leaves.filter(pl.col("age").is_between(first, last), zone is None or pl.col("zone") == zone)
        assert row["count"] == inside["count"].sum()
        if row["low"] is not None:
            assert 0 <= row["low"] <= max(row["count"], 0) <= row["high"]
        else:
            assert ROWS[name][FAMILY] == "stability_histogram"


def dense_deviation(found: PublishedRelease, inside: np.ndarray) -> float:
    """Return the standard deviation of a sum of leaves from the manifest alone, by the inverse of the information of all nodes."""
    zones, ages = 2, 10
    age = axis_from_codebook("age", ordered_axis("age", {"ordered": ages}).codebook())
    information, exact = np.zeros((zones * ages, zones * ages)), False
    for entry in found.manifest.levels:
        own = age.level_names.index(entry.axes["age"]) + 1 if entry.axes["age"] else 0
        groups = age.ancestors(np.arange(ages), age.depth, own)
        cells = np.array(
            [(zone if entry.axes["zone"] else 0) * ages + groups[of] for zone in range(zones) for of in range(ages)]
        )
        same = (cells[:, None] == cells[None, :]).astype(float)
        if entry.sigma and not entry.summed:
            information += same / entry.sigma**2
        exact |= not (entry.sigma or entry.summed)
    covariance = np.linalg.inv(information)
    if exact:
        ones = np.ones(zones * ages)
        along = covariance @ ones
        covariance -= np.outer(along, along) / (ones @ along)
    order = found.manifest.spec["release"]["order"]  # of the leaves
    leaves = inside.reshape(zones, ages) if order[0] == "zone" else inside.reshape(zones, ages).T
    runs = np.count_nonzero(np.diff(leaves.ravel(), prepend=0) > 0)
    return float(np.sqrt(inside @ covariance @ inside + runs / 6))


@pytest.mark.parametrize("name", [TREE, "ages of three", "total", "without noisy counts"])
def test_the_deviation_follows_from_the_folder_alone(releases: Releases, name: str) -> None:
    """It is that of the dense solution with the sigmas of the manifest, rounding included; the interval is as wide as it says."""
    found = releases[name]
    for first, last, zone in [(0, 9, "n"), (3, 7, None), (4, 4, "s"), (1, 8, None), (0, 4, "s")]:
        row = asked(found, age=f"{first}..{last}", **({"zone": zone} if zone else {}))
        inside = np.array([float(first <= age <= last and zone in {None, of}) for of in "ns" for age in range(10)])
        assert row["sd"] == pytest.approx(dense_deviation(found, inside))
        margin = int(np.ceil(1.6448536269514722 * row["sd"])) + 1
        total = found.table(0)["count"].item() if name == "total" else 2**62
        assert (
            row["high"] == min(row["count"] + margin, max(total, row["count"])) or row["high"] == row["count"] + margin
        )
        assert row["low"] == max(row["count"] - margin, 0)
    everything = asked(found)
    assert (everything["sd"] == 0) == (name == "total")


def test_what_was_not_measured_apart_has_no_interval(releases: Releases) -> None:
    """Of several areas of a pruned release without noisy counts, only the count is stated."""
    row = asked(releases[PRUNED_ALONE], age="1..7")
    assert row["count"] == truth(releases[PRUNED_ALONE], 1, 7)
    assert row["low"] is None
    assert "noisy counts are not published" in row["how"]


def test_a_range_of_made_areas_goes_by_their_ends(releases: Releases) -> None:
    """Where a release stops at a made level, a range begins and ends where its areas do."""
    found = releases["made"]
    assert asked(found, age="2..6")["count"] == truth(found, 2, 6)
    with pytest.raises(UsageError, match=r"3 in 3\.\.6 is no code"):
        found.query(age="3..6")


def test_simultaneous_intervals_are_wider(releases: Releases) -> None:
    """Those that hold with all others hold those that hold alone."""
    one = releases[TREE].query(age="1..7").to_dicts()[0]
    every = releases[TREE].query(age="1..7", simultaneous=True).to_dicts()[0]
    assert every["low"] < one["low"]
    assert one["high"] < every["high"]
    pruned = releases["pruned"].query(age="1..7", simultaneous=True).to_dicts()[0]
    assert pruned["low"] <= pruned["count"] <= pruned["high"]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"age": "7..2"}, "the range 7..2 is reversed: 2 comes before 7"),
        ({"age": "2..ten"}, "ten in 2..ten is no code of age"),
        ({"zone": "n..s"}, "zone have no order"),
        ({"age": "age=2..5"}, "there is no area"),
    ],
)
def test_ranges_that_are_none_are_refused(releases: Releases, where: dict[str, str], said: str) -> None:
    """Reversed ends, unknown codes, axes without order."""
    with pytest.raises(UsageError, match=said):
        releases[TREE].query(**where)


def test_ends_of_different_levels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A month and a day are no ends of one range; two months are."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    days = ordered_axis("age", {"ordered": MONTHS}).codes
    people = draw_people().with_columns(age=pl.Series(np.random.default_rng(1).choice(days, 600)))
    hierarchy = {"zone": {"values": ["n", "s"]}, "age": {"ordered": MONTHS, "calendar": ["month"]}}
    found = people_released(tmp_path, people, hierarchy=hierarchy, **EXACT)
    with pytest.raises(
        UsageError, match="must be of one level, got 2024-02 of level month and 2024-03-05 of level age"
    ):
        found.query(age="2024-02..2024-03-05")
    inside = people.filter(pl.col("age").str.slice(0, 7).is_between(pl.lit("2024-02"), pl.lit("2024-04"))).height
    assert asked(found, age="2024-02..2024-04")["count"] == inside


def test_names_stand_for_codes_at_the_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range goes from a name to a code or a name; a name of several areas is refused with their codes, and one of none as such."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "called.csv").write_text("code,name\n0,Newborn\n2,Small child\n7,Big\n8,Big\n")
    hierarchy = {"zone": {"values": ["n", "s"]}, "age": {"ordered": 10, "labels": "called.csv"}}
    found = people_released(tmp_path, hierarchy=hierarchy)
    for named, coded in (("small child..6", "2..6"), ("Newborn..Small child", "0..2"), ("..Small  child", "..2")):
        assert asked(found, age=named) == asked(found, age=coded) | {"age": named}
    with pytest.raises(UsageError, match="2 areas are called Big") as refused:
        found.query(age="2..Big")
    assert refused.value.hint == "Write 7 or 8."
    with pytest.raises(UsageError, match=r"Tiny in Tiny\.\.6 is no code and no name of age"):
        found.query(age="Tiny..6")


def test_the_command_line_takes_axes_as_options(
    releases: Releases, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--age 2..6 --zone n is --where age=2..6 --where zone=n; the answer has count, sd, low, high and how."""
    folder, answers = str(releases[TREE].folder), []
    monkeypatch.setattr("os.umask", lambda _: 0)  # the command sets that of its process
    for options in (["--age", "2..6", "--zone=n"], ["--where", "age=2..6", "--where", "zone=n"]):
        assert main(["query", folder, *options, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    row = asked(releases[TREE], age="2..6", zone="n")
    assert {key: answers[0][key] for key in ("count", "sd", "low", "high", "how")} == {
        key: row[key] for key in ("count", "sd", "low", "high", "how")
    }
    assert answers[0]["where"] == {"zone": {"level": "zone", "path": ["n"]}, "age": {"level": "age", "path": ["2..6"]}}
    for wrong in (["--age"], ["--ages", "2..6"], ["stray"]):
        assert main(["query", folder, *wrong]) == 2
    assert main(["query", "--age", "2..6", folder]) == 2


@pytest.mark.parametrize("branching", [2, 3, 5])
def test_the_fewest_areas_make_up_a_range(branching: int) -> None:
    """They cover it once, in order; no two could be replaced by the area that holds them."""
    axis = axis_from_codebook("age", ordered_axis("age", {"ordered": 23, "branching": branching}).codebook())
    for first, stop in product(range(23), range(1, 24)):
        if first >= stop:
            continue
        areas = list(fewest_areas(axis, AreaRange(axis.depth, first, stop)))
        begins = [axis.first_descendants(area.level, axis.depth) for area in areas]
        covered = [
            leaf for area, of in zip(areas, begins, strict=True) for leaf in range(of[area.number], of[area.number + 1])
        ]
        assert covered == list(range(first, stop))
        for area in areas:
            if area.level:
                above = axis.ancestors(np.array([area.number]), area.level, area.level - 1)[0]
                of = axis.first_descendants(area.level - 1, axis.depth)
                assert (
                    not (first <= of[above] and of[above + 1] <= stop)
                    or axis.children_of(area.level - 1, np.array([above]))[0] == 0
                )
