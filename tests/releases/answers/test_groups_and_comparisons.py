"""Sums of one's own areas, groups of areas by a public table, and differences and shares of two answers."""

import json
import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest

from flows.answers.query import query_answer
from flows.api import open_release
from flows.cli.main import main
from storage.errors import TrellisError, UsageError
from tasks.laws.law import quantile_of_sum
from tasks.released.boxes import as_one
from tasks.released.query.comparisons import Asked, compared
from tasks.released.query.sets import find_areas
from tests.support.ages import EXACT, draw_people, people_released
from tests.support.folders import without_noisy_counts

ZONES = ["65+", "n", "n+s", "n..s", "s"]
QUESTION = {"age": "2..5+8", "zone": "n"}


def asked_of(release, **where):
    """Return a question to a release."""
    published = release.published
    return Asked.of(published, [find_areas(published, axis, where.get(axis)) for axis in published.axes], {})


def ends_of(asked, confidence):
    """Return the interval of the answer to a question."""
    found = asked.answer(confidence)
    return int(found.low[0]), int(found.high[0])


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """Return a release without noise whose codes look like sums and ranges."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    zones = np.random.default_rng(5).choice(ZONES, 600)
    people = draw_people().with_columns(zone=pl.Series(zones))
    return people_released(tmp_path, people, hierarchy={"zone": {"values": ZONES}, "age": {"ordered": 10}}, **EXACT)


def test_codes_that_look_like_sums_come_first(odd):
    """A code with a + or .. in it is that code; around it, areas are added up, and a range is in the order of the codebook."""
    people = pl.read_csv(odd.folder.parents[1] / "people.csv").filter(pl.col("age").is_in([2, 3, 4, 5, 8]))
    for asked, zones in {
        "n+s": ["n+s"],
        "n..s": ["n..s"],
        "n + s": ["n", "s"],
        "n+65+": ["n", "65+"],
        "65++n+s": ["65+", "n+s"],
        "65+..n": ["65+", "n"],
        "n+s+s": ["n+s", "s"],
        "65+..n..s+s": ["65+", "n", "n+s", "n..s", "s"],
    }.items():
        [row] = odd.query(zone=asked, age="2..5+8").to_dicts()
        assert row["count"] == people.filter(pl.col("zone").is_in(zones)).height, asked
        assert row["low"] <= row["count"] <= row["high"]
    odd.published.manifest.spec["hierarchy"]["zone"]["values"].reverse()  # an order that the tables have not
    with pytest.raises(UsageError, match="the codes of zone have no order"):
        odd.query(zone="65+..n")


@pytest.mark.parametrize("name", ["walked", "walked with Laplace noise"])
def test_parts_of_several_levels_share_the_probability(library, name):
    """Where the noise is not added up, the sum has the ends of the answers about its k parts, each of which misses with 1/k of α, and says so."""
    several = 0
    for first, last in combinations(range(10), 2):
        asked = asked_of(library[name].found, age=f"{first}..{last}", zone="n")
        found = asked.answer(0.9)
        if "their noise is not added up" in found.how(0):
            several += 1
            ends = [asked.estimate.answers(box, confidence=1 - 0.1 / len(asked.parts)) for box in asked.parts]
            assert (found.low[0], found.high[0]) == (sum(of.low[0] for of in ends), sum(of.high[0] for of in ends))
        else:
            whole = asked.estimate.answers(as_one(asked.estimate.folder.tree, asked.parts), confidence=0.9)
            assert (found.low[0], found.high[0]) == (whole.low[0], whole.high[0])
    assert several


def written(folder, rows, *columns):
    """Write a table of groups, and return its path."""
    path = folder / f"groups-{len(list(folder.iterdir()))}.csv"
    path.write_text("\n".join([",".join(columns), *(",".join(row) for row in rows)]) + "\n")
    return str(path)


@pytest.mark.parametrize("name", ["walked", "settled together", "unbiased tree"])
def test_groups_are_counted_one_by_one(library, name, tmp_path, capsys, monkeypatch):
    """A row for each group of a table, by command and in Python, which is that of the sum of its codes; the name is shown."""
    monkeypatch.setattr("os.umask", lambda _: 0)  # the command sets that of its process
    people, ages = library[name].found, [(0, "young"), (1, "young"), (4, "old"), (9, "old"), (7, "old")]
    table = written(tmp_path, [(str(age), group) for age, group in ages], "code", "group")
    told = query_answer(people.folder, None, None, ["zone=n"], simultaneous=False, areas=[table])
    for answer, (group, codes) in zip(told.answers, (("young", "0+1"), ("old", "4+7+9")), strict=True):
        alone = query_answer(people.folder, None, None, ["zone=n", f"age={codes}"], simultaneous=False)
        assert (answer.count, answer.low, answer.high, answer.how) == (alone.count, alone.low, alone.high, alone.how)
        assert answer.where["age"].name == group
    assert main(["query", str(people.folder), "--zone", "n", "--areas", table]) == 0
    assert "young" in capsys.readouterr().out
    frame = pl.DataFrame(ages, schema=["code", "group"], orient="row")
    for areas in (table, frame, {"age": frame.to_arrow()}):
        rows = people.query(zone="n", areas=areas)
        assert rows["age"].to_list() == ["young", "old"]
        assert rows["count"].to_list() == [answer.count for answer in told.answers]


def test_groups_of_both_ends_and_of_levels(library, tmp_path):
    """Groups of one end, of both by two files or a column, of codes of a level; where an end is not named, the hint says how; no area is in a sum twice."""
    trips = library["trips"].found
    codes = trips.published.tree.axes[0].codes[1]
    table = written(tmp_path, [(code, f"{number % 2}") for number, code in enumerate(codes)], "code", "group")
    with pytest.raises(UsageError, match="is a code of origin and destination") as refused:
        trips.query(areas=table)
    assert "--areas origin=FILE or --areas destination=FILE" in refused.value.hint
    flows = trips.query(areas={"origin": table, "destination": table})
    assert (flows.height, flows["count"].sum()) == (4, trips.query()["count"].item())
    rows = [("01", "ours", end, "region") for end in ("origin", "destination")]
    with pytest.raises(UsageError, match=" twice"):  # an area, and one that holds it
        trips.query(origin=f"region=01+{codes[0]}")
    within = trips.query(areas=written(tmp_path, rows, "code", "group", "axis", "level"))
    assert within["count"].item() == trips.query(origin="region=01", destination="region=01")["count"].item()


@pytest.mark.parametrize(("columns", "rows", "said"), [
    ("code,group", "0,a 1,a 0,a", "age: 0 is in a twice"),
    ("code,group", "0,a 12,a", "no level has an area 12"),
    ("code,group", "0,a ,a", "column code must not be empty; see row 2"),
    ("code,name", "0,a", "column group"),
    ("code,group,axis", "0,a,hour", "the release has no axis hour"),
    ("code,group,level", "0,a,year", "0 of level year is no code of zone, age"),
    ("code,group", "", "no rows"),
    ("code;group", "0;a 0;a", "age: 0 is in a twice"),
])  # fmt: skip
def test_tables_of_groups_that_cannot_be_read_are_named(library, tmp_path, columns, rows, said):
    """An area twice, unknown, blank; a column that is missing; another axis or level; an axis that is asked for too."""
    people = library["walked"].found
    with pytest.raises(TrellisError, match=said):
        people.query(areas=written(tmp_path, [row.split(",") for row in rows.split(" ") if row], *columns.split(",")))
    with pytest.raises(UsageError, match="age is asked for twice"):
        people.query(age="1", areas=pl.DataFrame({"code": ["0"], "group": ["a"]}))
    with pytest.raises(UsageError, match="must be a table with the columns code and group"):
        people.query(areas=5)


@pytest.mark.parametrize(("one", "other", "how"), [
    ("leaves", "settled together", "added up"),
    ("unbiased tree", "ages of three", "standard deviation"),
    ("walked", "walked with Laplace noise", "both intervals hold"),
    ("two passes", "leaves", "both intervals hold"),
    ("unbiased tree", "leaves", "standard deviation"),
])  # fmt: skip
def test_a_difference_has_an_interval_of_its_own(library, one, other, how):
    """All draws at once, or the deviations of both, or both intervals with half of α each; it is narrower than the intervals added up."""
    releases = [library[name].found for name in (one, other)]
    [row] = releases[0].query(**QUESTION, minus=releases[1].folder).to_dicts()
    counts = [of.query(**QUESTION).to_dicts()[0] for of in releases]
    value, low, high = (row[name] for name in ("difference", "difference_low", "difference_high"))
    assert value == counts[0]["count"] - counts[1]["count"]
    where = [f"{axis}={area}" for axis, area in QUESTION.items()]
    told = query_answer(releases[0].folder, None, None, where, simultaneous=False, minus=releases[1].folder).difference
    assert how in told.how == row["difference_how"]
    assert (told.other, told.value, told.low, told.high) == (releases[1].folder.name, value, low, high)
    asked = [asked_of(of, **QUESTION) for of in releases]
    if how == "added up":
        drawn = [of.answer(0.9).drawn for of in asked]
        z = quantile_of_sum([draw for of in drawn for draw in of.draws.values()], math.log(0.05))
        ends = drawn[0].noisy - drawn[1].noisy - z, drawn[0].noisy - drawn[1].noisy + z
        assert z < sum(quantile_of_sum(of.draws.values(), math.log(0.05)) for of in drawn)
    elif how == "standard deviation":
        drawn = [of.answer(0.9).drawn for of in asked]  # of a sum of noise, whose deviation is that of all its draws
        of_draws = [sum(noise.variance * many for noise, many in of.draws.values()) if of else 0 for of in drawn]
        variances = [of or count["sd"] ** 2 for of, count in zip(of_draws, counts, strict=True)]
        noisy = [of.noisy if of else count["count"] for of, count in zip(drawn, counts, strict=True)]
        z = math.ceil(1.6448537 * math.sqrt(sum(variances)) + sum(0.5 if of else 1 for of in drawn))
        z += high - low > 2 * z  # by a discrete law, an end is further off by a hair
        ends = noisy[0] - noisy[1] - z, noisy[0] - noisy[1] + z
    else:
        (least, most), (fewest, largest) = (ends_of(of, 0.95) for of in asked)
        ends = least - largest, most - fewest
    assert (low, high) == (min(ends[0], value), max(ends[1], value))
    for of in asked:  # days that were measured together, whose noise is not independent
        of.estimate.folder.manifest = of.estimate.folder.manifest.model_copy(update={"days": how})
    assert how == "added up" or "both intervals" in compared(*asked, "", 0.9, is_share=False).how


SHARES = ["leaves", "settled together", "unbiased tree", "grid", "walked", "two passes", "ages of three"]


@pytest.mark.parametrize("name", SHARES)
def test_a_share_has_an_interval_of_its_own(library, name):
    """It holds the released share, is within 0 and 1, and hardly wider than what the ends of both intervals say; of all it is everything."""
    people = library[name].found
    [row] = people.query(**QUESTION, share_of={"age": "all"}).to_dicts()
    part, whole = people.query(zone="n", age=[QUESTION["age"], None])["count"]
    assert row["share"] == pytest.approx(part / whole)
    assert 0 <= row["share_low"] <= row["share"] <= row["share_high"] <= 1
    (low, high), (least, most) = (ends_of(asked_of(people, zone="n", age=age), 0.95) for age in (QUESTION["age"], None))
    assert row["share_low"] >= min(low / most, row["share"]) - 0.01
    assert row["share_high"] <= max(high / max(least, 1), row["share"]) + 0.01
    for part, whole in (("all", "all"), ("2..5+8", "8+2..4+5"), ("1..+0", "all"), ("all", "0..")):
        [all_] = people.query(zone="n", age=part, share_of={"age": whole}).to_dicts()
        assert (all_["share"], all_["share_low"], all_["share_high"]) == (1.0, 1.0, 1.0)
        assert all_["share_how"].startswith("by the codebooks, part and whole are the same")
    with pytest.raises(UsageError, match="does not hold all that is asked for"):
        people.query(age="2..5", share_of={"age": "3..9"})
    with pytest.raises(UsageError, match="no intervals that hold all at once"):
        people.query(age="2..5", share_of={"age": "all"}, simultaneous=True)


@pytest.mark.parametrize("name", ["unbiased tree", "grid"])
def test_the_covariance_of_a_part_and_a_whole_is_that_of_least_squares(library, name):
    """By variances of sets alone: a part covaries with the whole by V(A) + Cov(A, R), and with itself by its variance."""
    people = library[name].found
    asked = [asked_of(people, age=age, zone="n") for age in ("1..3+7", "4..5", "1..5+7")]
    estimate, (one, rest, both) = asked[0].estimate, (of.parts for of in asked)
    variances = [estimate.covariance(of, of) for of in (one, rest, both)]
    for part, variance in ((one, variances[0]), (rest, variances[1])):
        together = (variances[2] - variances[0] - variances[1]) / 2
        assert estimate.covariance(part, both) == pytest.approx(variance + together, rel=1e-9)


def test_what_needs_no_interval_is_told(library):
    """Exact less exact; codebooks that differ; households of all tenures of all; and a range in a table of groups."""
    exact, other, grid, homes = (library[name].found for name in ("two passes", "trips", "grid", "sizes by tenure"))
    assert exact.query(minus=other)["difference_how"].item() == "both are exact"
    differ = grid.query(zone=["n", "all"], age="3", minus=exact)["difference_how"]
    assert ["differ on zone" in how for how in differ] == [True, False]
    assert homes.query(size="2+4..", share_of={"tenure": "all"})["share_low"].item() == 1.0
    with pytest.raises(UsageError) as refused:
        homes.query(areas=pl.DataFrame({"code": ["2..3"], "group": ["a"]}))
    assert refused.value.hint.endswith("A table names codes one by one: a row for each code of 2..3.")
    assert "from group to group" not in refused.value.hint


def test_what_rows_alone_say_is_not_compared(library, tmp_path):
    """Without noisy counts, the intervals of rows have a probability of their own: sums, differences and shares are stated without any."""
    people = library["walked"].found
    bare = open_release(without_noisy_counts(people.folder, tmp_path / "bare"))
    with pytest.raises(UsageError, match="must name another release"):
        bare.query(age="3", minus=people)
    [row] = bare.query(age="3+5", zone="n", share_of={"age": "all"}, minus=library["leaves"].found).to_dicts()
    assert row["share"] is not None
    assert (row["share_low"], row["difference_low"]) == (None, None)
    assert row["count"] == people.query(age="3+5", zone="n")["count"].item()


def test_the_command_line_compares(library, capsys, monkeypatch):
    """--minus and --share-of add an object to the answer, and a line for people; several answers have columns of them."""
    monkeypatch.setattr("os.umask", lambda _: 0)  # the command sets that of its process
    one, other = (library[name].folder for name in ("leaves", "settled together"))
    options = ["query", str(one), "--age", "2..5+8", "--minus", str(other), "--share-of", "age=all"]
    assert main([*options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["difference"]) == {"other", "count", "value", "low", "high", "confidence", "how"}
    assert [told[name]["other"] for name in ("difference", "share")] == [other.name, "age=all"]
    assert told["share"]["low"] <= told["share"]["value"] <= told["share"]["high"]
    assert main(options) == 0
    shown = capsys.readouterr().out
    assert f"difference to {other.name} (" in shown
    assert "share of age=all (" in shown
    assert main([*options, "--zone", "n", "--zone", "s"]) == 0
    assert f"difference to {other.name}: the noise of both" in capsys.readouterr().out
    assert main(["query", str(one), "--age", "1", "--share-of", "mode=all"]) == 2
