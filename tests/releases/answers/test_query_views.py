"""Questions about views, and about ranges of ordered axes: counts, deviations, intervals, how they come about, and what is refused."""

import functools
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations_with_replacement, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import trellis
from flows.answers.query import query_answer
from flows.api import PublishedRelease
from flows.cli.main import main
from storage.errors import UsageError
from tasks.format.manifest import Manifest
from tasks.laws.named import noise_of
from tasks.released.boxes import Boxes, fewest_areas
from tasks.released.families import estimate_of
from tasks.released.sources.folder import open_folder
from tasks.released.sources.published import FolderSource
from tasks.tree.axis import axis_from_codebook
from tasks.tree.ordered import ordered_axis
from tests.support.ages import EXACT, PRIVACY, draw_people, people_released
from tests.support.library import ROWS
from tests.support.town import Town, level, view


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """Return a town, whose releases are in its own store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", "")
        yield Town(tmp_path_factory.mktemp("town"))


KINDS = {
    "together": {},
    "without noisy counts": {"release__noisy_counts": False},
    "unbiased": {"mechanism": "unbiased_tree", "release__intervals": {"simultaneous": True}},
}
of_any_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def folder_of(town):
    """Return what releases its views and leaves, once for each kind."""
    return functools.cache(lambda kind: town.release(**KINDS[kind]))


@pytest.fixture(scope="module")
def folder(folder_of):
    """Return those that are settled together."""
    return folder_of("together")


EVERYWHERE = Boxes((0, 0), (np.zeros(1, dtype=np.int64),) * 2)


def asked(folder, *where, simultaneous=False):
    """Return the answer to one question."""
    return query_answer(folder, None, None, where, simultaneous=simultaneous)


@of_any_kind
def test_a_cell_of_a_view_is_asked_of_it(folder_of, kind):
    """The count and the interval are those of its row, of a derived column as of an axis."""
    for name, columns in (("living", ["from_zone"]), ("by_mode", ["mode"]), ("mode_from", ["from_district", "mode"])):
        rows = view(folder_of(kind), name).head(3)  # B1 is the only zone of B, and answered as that
        for row in rows.filter(pl.col("count") != 0).to_dicts():  # of others no level may have a row
            assert kind != "unbiased" or row["simultaneous_low"] <= row["low"] < row["high"] < row["simultaneous_high"]
            answer = asked(folder_of(kind), *(f"{column.partition('_')[0]}={row[column]}" for column in columns))
            assert (answer.count, answer.low, answer.high) == (row["count"], row["low"], row["high"])
            assert answer.sd > 0 if kind == "unbiased" else answer.how.startswith(f"the cell of view {name}")
            assert kind == "unbiased" or (answer.cells, answer.promise) == ({"added": 1}, "question")


def leaves_by(folder, mode, **codes):
    """Return the released leaves with a mode and other codes."""
    table = level(folder, 4).join(pl.read_parquet(folder / "derived" / "mode.parquet"), on=["from_zone", "to_zone"])
    return table.filter(pl.col("mode") == mode, **codes)


def test_a_mode_that_no_view_counts_is_added_up_from_the_leaves(folder):
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


def test_several_derived_columns_are_added_up_together(town):
    """Leaves that have all codes are added up; codes that no leaf has together count 0, which is no estimate."""
    (town.folder / "ends.csv").write_text("from,kind\nA1,old\nA2,new\nA3,new\nB1,old\n")
    derived = town.keys()["derived"] | {"kind": {"table": "ends.csv", "of": ["from.zone"]}}
    folder = town.release(derived=derived, name="several")
    answer = asked(folder, "mode=walk", "kind=old")
    walked = leaves_by(folder, "walk").filter(pl.col("from_zone").is_in(["A1", "B1"]))
    assert answer.count == walked["count"].sum()
    assert answer.cells == {"added": 2}
    assert answer.low <= answer.count <= answer.high
    kinds = [asked(folder, f"kind={kind}") for kind in ("old", "new")]
    assert [of.how.partition(":")[0] for of in kinds] == ["sum of 2 cells of view living"] * 2
    assert sum(of.count for of in kinds) == asked(folder).count
    nobody = asked(folder, "mode=bus", "kind=old", "from=B")
    assert (nobody.count, nobody.low, nobody.high) == (0, 0, 0)
    assert "do not occur together" in nobody.how


def test_a_derived_column_of_a_tree_without_views_is_refused(town):
    """Where nothing is settled together, no sum of leaves has an interval; the hint names axis and level."""
    folder = town.release(mechanism="inftda", release__views=None, name="tree")
    with pytest.raises(UsageError, match="tells no codes of mode apart") as refused:
        asked(folder, "mode=rail")
    assert "from zone, to zone" in refused.value.hint


def test_the_question_decides_and_not_the_noise(folder, tmp_path):
    """With noisy counts that say anything else, the same measurement is asked."""
    twin = Path(shutil.copytree(folder, tmp_path / "twin"))
    for path in (twin / "noisy_counts").glob("*.parquet"):
        table = pl.read_parquet(path)
        if "noisy_count" in table.columns:
            table.with_columns(pl.col("noisy_count") * 0 + 500).write_parquet(path)
    for where in (["from=A"], ["to=A1"], ["mode=walk"], ["from=A", "to=B"], []):
        assert asked(twin, *where).how == asked(folder, *where).how


def test_without_noisy_counts_rows_answer(folder_of):
    """The intervals of several rows are widened and added up; nothing holds simultaneously."""
    folder = folder_of("without noisy counts")
    several, rows = asked(folder, "from=A"), view(folder, "pairs").filter(pl.col("from_district") == "A")
    assert several.how.startswith("sum of 2 cells of view pairs")
    assert 0 <= several.low <= rows["low"].sum() <= several.count <= rows["high"].sum() < several.high
    assert several.high - rows["high"].sum() < rows["high"].sum() - rows["low"].sum()
    of_leaves = asked(folder, "mode=bus", "from=A1")
    assert of_leaves.count == leaves_by(folder, "bus", from_zone="A1")["count"].sum()
    assert (of_leaves.low, of_leaves.high) == (0, asked(folder).high)
    for kind in ("without noisy counts", "unbiased"):
        assert asked(folder_of(kind), "mode=bus+walk", simultaneous=True).low is None


RAIL, TWO = {"mode": ["rail"]}, {"mode": ["rail", "walk"]}


@pytest.mark.parametrize(("part", "whole"), [(RAIL, {}), (RAIL, RAIL), ({}, {}), (RAIL, TWO), (TWO, {})])
def test_a_share_of_codes_bears_the_noise_of_both_sums(folder_of, part, whole):
    """The part less a share of the whole has the variance of the weights of its leaves."""
    estimate = estimate_of(FolderSource(open_folder(folder_of("unbiased"))))
    one, other = ([Boxes((0, 0), EVERYWHERE.areas, codes=codes)] for codes in (part, whole))
    variances = estimate._counts.variances
    of_part, of_whole = (estimate._inside(estimate._chosen(of), of[0].codes) for of in (one, other))
    for share in (0.3, 0.9):
        of_both = variances.of_weights(of_part) + share**2 * variances.of_weights(of_whole)
        of_both -= 2 * share * estimate.covariance(one, other)
        assert of_both == pytest.approx(variances.of_weights(of_part - share * of_whole), abs=1e-6)


@of_any_kind
def test_codes_are_added_up_as_areas_are(folder_of, kind):
    """By command, in Python and as groups they count what their cells do, with the noise of all of them; all codes are everything."""
    folder = folder_of(kind)
    release, rows = trellis.open_release(folder), view(folder, "by_mode")
    assert release.view("by_mode").equals(rows)
    with pytest.raises(UsageError, match="no view nothing"):
        release.view("nothing")
    table = pl.DataFrame({"code": ["bus", "walk", "rail"], "group": ["near", "near", "far"]})
    near, far = release.query(areas=table, share_of={"mode": "all"}).to_dicts()
    for codes, group in ((["bus", "walk"], near), (["rail"], far), (["rail", "bus"], None)):
        inside, answer = rows.filter(pl.col("mode").is_in(codes)), asked(folder, f"mode={'+'.join(codes)}")
        ends = answer.count, answer.low, answer.high
        assert (ends[0], answer.where["mode"].path) == (inside["count"].sum(), ["+".join(codes)])
        if group:
            assert (group["count"], group["low"], group["high"]) == ends
            assert group["share"] == pytest.approx(ends[0] / asked(folder).count)
            assert (group["share_low"] is None) == (group["share_high"] is None) == (kind == "without noisy counts")
        if kind == "unbiased":
            estimate = estimate_of(FolderSource(open_folder(folder)))
            leaves = estimate._inside(estimate._chosen([EVERYWHERE]), {"mode": codes})
            assert answer.sd**2 == pytest.approx(estimate._counts.variances.of_weights(leaves), abs=2)
        elif kind == "together":
            noisy = pl.read_parquet(folder / "noisy_counts/view_by_mode.parquet")["noisy_count"]
            z = noise_of(release.manifest.views[3]).quantile(math.log(0.05), len(codes))
            own = noisy.filter(rows["mode"].is_in(codes)).sum()
            assert ends[1:] == (min(max(own - z, 0), ends[0]), max(own + z, ends[0]))
        else:
            assert answer.low <= inside["low"].sum() <= inside["high"].sum() <= answer.high
        one_by_one = release.query({"mode": codes, "from": ["district=A", None]})
        assert one_by_one.select("from", "mode").rows() == [*product(["district=A", "all"], codes)]
        of_both = [asked(folder, f"mode={'+'.join(codes)}", *district).count for district in (["from=A"], [])]
        assert one_by_one.group_by("from", maintain_order=True).agg(pl.sum("count"))["count"].to_list() == of_both
    everything = asked(folder)
    for answer in (asked(folder, f"mode={every}") for every in ("all", "walk+bus+rail")):
        assert replace(answer, where=everything.where) == everything
    [of_two] = release.query(mode="bus", share_of={"mode": "bus+walk"})["share"]
    assert of_two == pytest.approx(asked(folder, "mode=bus").count / asked(folder, "mode=bus+walk").count)


@pytest.mark.parametrize(("codes", "said"), [
    ("bus+tram", "mode has no code tram. Its codes are bus, rail, walk."),
    ("bus+rial", "mode has no code rial. Did you mean rail?"),
    ("bus..walk", "mode has no order, and so no ranges: name each code, with a + between them."),
    ("bus+walk+bus", "mode: bus is in bus+walk+bus twice. Name each area once"),
    ("bus+", "mode: bus+ must have an area on both sides of each +"),
])  # fmt: skip
def test_codes_that_are_none_are_refused(folder, codes, said):
    """Unknown, twice, a range, half a sum; and a whole that does not hold its part."""
    with pytest.raises(UsageError) as refused:
        asked(folder, f"mode={codes}")
    assert said in f"{refused.value} {refused.value.hint}"
    with pytest.raises(UsageError, match="mode=bus\\+walk does not hold all that is asked for"):
        trellis.open_release(folder).query(mode="rail", share_of={"mode": "bus+walk"})


# ranges --------------------------------------------------------------------------------------------------------------

OF_ITS_OWN: dict[str, dict[str, Any]] = {  # without noise, or with what no release of the library has
    "total": {"mechanism": "unbiased_tree", "privacy": PRIVACY | {"neighbours": "substitution"}},
    "without noisy counts": {"mechanism": "hierarchical", "release": {"order": ["zone", "age"], "noisy_counts": False}},
    "made": {**EXACT, "release": {"order": ["zone", "age"], "finest": {"age": "age_2"}}},
}  # fmt: skip
BRANCHED = {"hierarchy": {"zone": {"values": ["n", "s"]}, "age": {"ordered": 10, "branching": 3}}}
TREE = "unbiased tree"

Releases = Callable[[str], PublishedRelease]


@pytest.fixture(scope="module")
def releases(library, tmp_path_factory):
    """Return what finds releases of people by age, by mechanisms of every kind: those of the library, and others, each made once."""
    folder = tmp_path_factory.mktemp("ranges")

    @functools.cache
    def of(name):
        if name in ROWS:
            return library[name].found
        number = list(OF_ITS_OWN).index(name)
        (place := folder / str(number)).mkdir()
        keys = {} if name in {"total", "without noisy counts", "made"} else BRANCHED
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRELLIS_HOME", str(folder / "home"))
            own = keys | OF_ITS_OWN[name] | {"dataset": f"people-{number}"}
            return people_released(place, draw_people(600 + number), **own)  # another table, of another dataset

    return of


def truth(found, first, last, zone=None):
    """Return how many people of a release have an age in a range."""
    people = pl.read_csv(found.folder.parents[1] / "people.csv")
    return people.filter(pl.col("age").is_between(first, last), zone is None or pl.col("zone") == zone).height


def one_of(found, **where):
    """Return the answer to a question."""
    (row,) = found.query(**where).to_dicts()
    return row


def dense_deviation(found, inside):
    """Return the standard deviation of a sum of leaves from the manifest alone, by the inverse of the information of all nodes."""
    zones, ages = 2, 10
    age = axis_from_codebook("age", ordered_axis("age", {"ordered": ages}).codebook())
    information, exact = np.zeros((zones * ages, zones * ages)), False
    for entry in found.manifest.levels:
        own = age.level_names.index(entry.axes["age"]) + 1 if entry.axes["age"] else 0
        groups = age.ancestors(np.arange(ages), age.depth, own)
        of_zone = np.arange(zones) if entry.axes["zone"] else np.zeros(zones, int)
        cells = (of_zone[:, None] * ages + groups).ravel()
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
def test_the_deviation_follows_from_the_folder_alone(releases, name):
    """It is that of the dense solution with the sigmas of the manifest, rounding included; the interval is as wide as it says."""
    found = releases(name)
    for ages, zone in [("0..9", "n"), ("3..7", ""), ("4..4", "s"), ("1..8", ""), ("0..4", "s"), ("8..9+0..2", "")]:
        row = one_of(found, age=ages, **({"zone": zone} if zone else {}))
        chosen = [age for of in ages.split("+") for age in range(int(of[0]), int(of[-1]) + 1)]
        inside = np.array([float(age in chosen and zone in {"", of}) for of in "ns" for age in range(10)])
        assert row["sd"] == pytest.approx(dense_deviation(found, inside))
        margin = int(np.ceil(1.6448536269514722 * row["sd"])) + 1
        total = found.table(0)["count"].item() if name == "total" else 2**62
        assert row["high"] in {row["count"] + margin, min(row["count"] + margin, max(total, row["count"]))}
        assert row["low"] == max(row["count"] - margin, 0)
    everything = one_of(found)
    assert (everything["sd"] == 0) == (name == "total")


@pytest.mark.parametrize(("name", "where", "said"), [
    (TREE, {"age": "7..2"}, "in 7..2, 2 comes before 7 in the order of age, and its spec does not say"),
    (TREE, {"age": "7..2"}, "by round: true beside ordered"),
    (TREE, {"age": "2..ten"}, "ten in 2..ten is no code of age"),
    (TREE, {"zone": "s..n"}, "in s..n, n comes before s in the order of the codebook"),
    (TREE, {"zone": "n+w"}, "no level has an area w"),
    (TREE, {"age": "2+"}, "2+ must have an area on both sides of each +"),
    (TREE, {"age": "2-5"}, "A range is written 2..5."),
    (TREE, {"age": "age=2..5"}, "there is no area"),
    ("made", {"age": "3..6"}, "3 in 3..6 is no code"),
    ("trips", {"origin": "01..0101"}, "must be of one level, got 01 of level region and 0101 of level province"),
])  # fmt: skip
def test_ranges_that_are_none_are_refused(releases, name, where, said):
    """Reversed ends, unknown codes, axes without order; where a release stops at a made level, ranges go by the ends of its areas."""
    with pytest.raises(UsageError) as refused:
        releases(name).query(**where)
    assert said in f"{refused.value} {refused.value.hint}"
    assert "2..7" not in refused.value.hint
    assert one_of(releases("made"), age="2..6")["count"] == truth(releases("made"), 2, 6)


def test_the_command_line_takes_axes_as_options(releases, capsys, monkeypatch):
    """--age 2..6 --zone n is --where age=2..6 --where zone=n; the answer has count, sd, low, high and how."""
    folder, answers = str(releases(TREE).folder), []
    monkeypatch.setattr("os.umask", lambda _: 0)  # the command sets that of its process
    for options in (["--age", "2..6", "--zone=n"], ["--where", "age=2..6", "--where", "zone=n"]):
        assert main(["query", folder, *options, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    row = one_of(releases(TREE), age="2..6", zone="n")
    told = ("count", "sd", "low", "high", "how")
    assert [answers[0][key] for key in told] == [row[key] for key in told]
    assert answers[0]["where"] == {"zone": {"level": "zone", "path": ["n"]}, "age": {"level": "age", "path": ["2..6"]}}
    for wrong in (["--age"], ["--ages", "2..6"], ["stray"]):
        assert main(["query", folder, *wrong]) == 2
    assert main(["query", "--age", "2..6", folder]) == 2


@pytest.mark.parametrize("branching", [2, 3, 5])
def test_the_fewest_areas_make_up_a_range(branching):
    """They cover it once; no two could be replaced by the area that holds them."""
    axis = axis_from_codebook("age", ordered_axis("age", {"ordered": 23, "branching": branching}).codebook())
    for first, last in combinations_with_replacement(range(23), 2):
        covered = []
        fewest = fewest_areas(axis, axis.depth, np.arange(first, last + 1))
        for level_of_area, area in [(own, area) for own, areas in fewest for area in areas.tolist()]:
            begins = axis.first_descendants(level_of_area, axis.depth)
            covered += range(begins[area], begins[area + 1])
            if level_of_area:
                above = axis.ancestors(np.array([area]), level_of_area, level_of_area - 1)[0]
                of = axis.first_descendants(level_of_area - 1, axis.depth)
                is_inside = first <= of[above] and of[above + 1] <= last + 1
                assert not is_inside or axis.children_of(level_of_area - 1, np.array([above]))[0] == 0
        assert sorted(covered) == list(range(first, last + 1))


CLOCK = {"ordered": 24}
WEEK = {"ordered": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]}


ROUND: list[dict[str, Any]] = [  # axes that go round, of which one has codes of which no hour or day is known
    {"hour": CLOCK, "weekday": WEEK | {"unlisted": "none"}},
    {"weekday": WEEK, "hour": CLOCK | {"unlisted": "?"}},
]
MECHANISMS = ["unbiased_tree", "inftda_reconciled", "gaussian"]


def on_axes(folder, axes, **keys):
    """Release people with codes of some axes."""
    codes = {name: ordered_axis(name, domain).codes for name, domain in axes.items()}
    drawn = {name: np.random.default_rng(seed).choice(of, 600) for seed, (name, of) in enumerate(codes.items(), 3)}
    more = {"input": {"table": "people.csv", "features": [*axes]}, "release": {"order": [*axes]}}
    return people_released(folder, pl.DataFrame(drawn), hierarchy=axes, **more, **keys)


@pytest.fixture(scope="module", params=[
    *((MECHANISMS[0], number) for number in (0, 1)),
    *(pytest.param((mechanism, number), marks=pytest.mark.thorough) for mechanism in MECHANISMS[1:] for number in (0, 1)),
], ids=str)  # fmt: skip
def going_round(request, tmp_path_factory):
    """Release people without noise by such axes."""
    (mechanism, number), folder = request.param, tmp_path_factory.mktemp("round")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        yield on_axes(folder, ROUND[number], mechanism=mechanism, **EXACT)


def test_a_range_goes_over_the_end_of_a_clock_or_a_calendar(going_round):
    """Without noise it is the truth, in Python and by the command line, which names both ends; with another axis too."""
    people = pl.read_csv(going_round.folder.parents[1] / "people.csv", infer_schema=False)
    axes = going_round.manifest.spec["hierarchy"]
    for name, range_, inside, ends in (
        ("hour", "22..2", ["22", "23", "0", "1", "2"], "22..2"),
        ("hour", "23..0", ["23", "0"], "23..0"),
        ("hour", "5..4", [str(hour) for hour in range(24)], "0..23"),
        ("weekday", "Sat..Mon", ["Sat", "Sun", "Mon"], "Sat..Mon"),
        ("hour", "22..", ["22", "23"], "22..23"),  # and not those of which no hour is known
        ("weekday", "Sat..", ["Sat", "Sun"], "Sat..Sun"),
    ):
        if "unlisted" in axes[name] and not range_.endswith(".."):
            with pytest.raises(UsageError, match="which does not go round") as refused:
                going_round.query({name: range_})
            assert "round: true" not in refused.value.hint  # which its spec cannot say
            continue
        other = next(axis for axis in axes if axis != name)
        code = people[other][0]
        for where, of_code in (({}, people), ({other: code}, people.filter(pl.col(other) == code))):
            row = going_round.query({name: range_} | where).row(0, named=True)
            assert row["count"] == of_code.filter(pl.col(name).is_in(inside)).height
            assert row["low"] <= row["count"] <= row["high"]
        answer = query_answer(going_round.folder, None, None, [f"{name}={range_}"], simultaneous=False)
        assert answer.where[name].path == [ends]


def test_options_that_are_given_twice_mean_both_or_are_refused(library, capsys, tmp_path):
    """Several areas of an end are counted one by one, as by --where; an option with one value is refused, in every command."""
    trips = str(library["trips"].folder)
    for twice in (["--origin", "01", "--origin", "02"], ["--where", "origin=01", "--origin", "02"]):
        assert main(["query", trips, *twice, "--destination", "01", "--destination=02", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["answers"]
        pairs = [(of["where"]["origin"]["path"], of["where"]["destination"]["path"]) for of in told]
        assert sorted(pairs) == [([one], [other]) for one in ("01", "02") for other in ("01", "02")]
    spec = str(tmp_path / "spec.yaml")
    for words in (
        f"release {spec} --output a --output b", f"release {spec} --server --no-server", "rerun x --branch b00 --branch b01",
        f"plan {spec} --for county=50@95% --for zone=9@95%", f"compare {spec} --runs 1 --runs=2",
        "new t.csv --codebook a.csv --codebook b.csv", "budget raise d --epsilon 1 --epsilon 2 --reason x",
        f"verify {trips} --workers 1 --workers 2",
    ):  # fmt: skip
        command = words.split()
        option = next(of for of in command if of.startswith("--"))
        assert main([*command, "--json"]) == 2
        error = json.loads(capsys.readouterr().out)
        assert error["field"] == option
        assert "may be given once" in error["error"]


def test_compare_tries_what_all_of_its_options_name(monkeypatch, tmp_path):
    """Mechanisms and values of ε may be separated by commas, or given one by one."""
    asked: list[Any] = []
    monkeypatch.setattr("flows.cli.runs.compare_and_write", lambda *of: asked.append(of) or {})
    monkeypatch.setattr("flows.cli.spec_commands.show_comparison", lambda *_, **__: None)
    monkeypatch.setattr("flows.specification.file.load_spec", lambda _: SimpleNamespace(spec=None))
    options = ["--mechanisms", "inftda", "--mechanisms", "tda_l2,laplace", "--epsilon", "1", "--epsilon", "2,3"]
    assert main(["compare", str(tmp_path / "spec.yaml"), *options, "--utility", "fleet"]) == 0
    assert main(["compare", str(tmp_path / "spec.yaml")]) == 0
    assert [(of[1], of[2], of[5]) for of in asked] == [
        (["inftda", "tda_l2", "laplace"], [1.0, 2.0, 3.0], ["fleet"]),
        ([], [0.1, 1.0, 10.0], []),  # the usual ones
    ]
