"""`trellis compare`: mechanisms against the truth, on a table that may be seen, and on no other."""

import re
import shutil
from itertools import product

import polars as pl
import pytest
import yaml

from flows.trials.baselines import BASELINES
from flows.trials.comparison import MEASURES
from tasks.validate.coverage import GROUPS, TRUE_COUNTS
from tests.support.spec import SPEC
from tests.support.user import User

COLUMNS = ["mechanism", "epsilon", "run", "level", *MEASURES, "seconds"]


class Compared:
    """A user who has compared two mechanisms at two ε, three times each."""

    def __init__(self, user: User) -> None:
        self.user, self.folder = user, user.folder / "compared"
        user.spec("public.yaml", public_data=True, noise={"sampler": "table"})
        names = "inftda,inftda_reconciled"
        self.said = user.run(
            *("compare", "public.yaml", "--mechanisms", names, "--epsilon", "1,30", "--runs", "3", "--json"),
            *("--out", str(self.folder)),
        )


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, settle: object) -> Compared:
    """Compare."""
    return Compared(settle(tmp_path_factory.mktemp("comparer")))  # type: ignore[operator]


@pytest.mark.thorough
def test_every_trial_has_its_row(compared: Compared) -> None:
    """There is a row per mechanism, ε, run and level, and the JSON holds means, least and most of the same rows."""
    answer = compared.said.json()
    rows = pl.read_parquet(compared.folder / "errors.parquet")
    levels = len(answer["levels"])
    assert rows.columns == COLUMNS
    assert rows.height == 2 * 2 * 3 * levels
    assert rows.select("mechanism", "epsilon", "run", "level").is_duplicated().sum() == 0
    for result in answer["results"]:
        of_result = rows.filter(mechanism=result["mechanism"], epsilon=result["epsilon"])
        for level in result["levels"]:
            errors = of_result.filter(level=level["level"])["max_absolute"]
            assert level["max_absolute"] == {"mean": errors.mean(), "min": errors.min(), "max": errors.max()}
    finest = [result["levels"][-1]["max_absolute"]["mean"] for result in answer["results"]]
    assert finest[0] > finest[1] > 0  # ε = 30 is nearer to the truth than ε = 1
    assert finest[2] > finest[3] > 0


def test_every_trial_has_its_coverage(compared: Compared) -> None:
    """There is a row per mechanism, ε, run, level and group of cells, and the JSON holds their means."""
    answer = compared.said.json()
    rows = pl.read_parquet(compared.folder / "coverage.parquet")
    levels = len(answer["levels"])
    assert rows.columns == ["mechanism", "epsilon", "run", "level", "group", "cells", "coverage", "width"]
    assert rows.height == 2 * 2 * 3 * levels * len(GROUPS)
    assert answer["confidence"] == 0.9
    for result, (level, of_level) in product(answer["results"], enumerate(answer["levels"])):
        of_rows = rows.filter(mechanism=result["mechanism"], epsilon=result["epsilon"], level=level)
        intervals = result["levels"][level]["intervals"]
        assert sum(intervals[group]["cells"] for group in TRUE_COUNTS) == of_level["possible_cells"]
        assert intervals["0"]["cells"] == of_level["possible_cells"] - of_level["true_cells"]
        for group in GROUPS:
            told, of_group = intervals[group]["coverage"], of_rows.filter(group=group)["coverage"].drop_nulls()
            assert (told is None) == (not len(of_group))
            assert told is None or (told["mean"], told["min"]) == pytest.approx((of_group.mean(), of_group.min()))


def test_the_page_needs_nothing_else_and_nothing_is_charged(compared: Compared) -> None:
    """The page has a figure per measure and one of seconds, names every mechanism, and loads nothing; there is no release."""
    assert compared.said.code == 0, compared.said.stderr
    page = (compared.folder / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(MEASURES) + 1 + 2  # and one of coverage for each ε
    assert re.findall(r"""(?:src|href)=["'](?!#)[^"']*|@import|url\((?!#)""", page) == []
    assert all(name in page for name in ("inftda_reconciled", "ε = 30"))
    user = compared.user
    assert user.run("ledger", "--json").json() == {"datasets": []}
    assert user.run("releases", "--json").json() == {"releases": []}
    assert not list((user.folder / "home" / "vault").glob("*"))


def test_what_cannot_be_compared_is_refused(compared: Compared) -> None:
    """An unknown mechanism, an ε out of range, no run, no utility, or a table that may not be seen end with 2 and a reason."""
    user = compared.user
    shutil.rmtree(user.folder / "out", ignore_errors=True)
    user.spec("confidential.yaml")
    for options, told in (
        (["public.yaml", "--mechanisms", "inftda,magic"], "--mechanisms must be among inftda, "),
        (["public.yaml", "--epsilon", "1,-2"], "--epsilon must list numbers > 0"),
        (["public.yaml", "--runs", "0"], "--runs"),
        (["public.yaml", "--utility", "fleet"], "utility.fleet must be given"),
        (["confidential.yaml"], "public_data must be true"),
    ):
        said = user.run("compare", *options)
        assert (said.code, told in said.stderr) == (2, True), options
    assert not (user.folder / "out").exists()


def test_every_trial_has_what_a_release_would_say_of_its_rows(compared: Compared) -> None:
    """There is a row per mechanism, ε, run and level; the JSON holds the means, and noise rows are at most what is said."""
    answer = compared.said.json()
    rows = pl.read_parquet(compared.folder / "rows.parquet")
    assert rows.height == 2 * 2 * 3 * len(answer["levels"])
    assert (rows["noise_rows"] <= rows["noise_rows_at_most"]).all()
    for result, (level, _) in product(answer["results"], enumerate(answer["levels"])):
        of_rows = rows.filter(mechanism=result["mechanism"], epsilon=result["epsilon"], level=level)
        for measure in ("rows_covered", "noise_rows", "noise_rows_at_most", "bound_after"):
            values, stated = of_rows[measure].drop_nulls(), result["levels"][level][measure]
            assert (stated is None) == values.is_empty()
            assert stated is None or stated["mean"] == pytest.approx(values.mean())


@pytest.mark.thorough
def test_the_fleet_is_compared(compared: Compared) -> None:
    """With --utility fleet the JSON has the ratios of every mechanism and ε, of the same runs as the rows; the page shows them."""
    user, folder = compared.user, compared.user.folder / "fleet"
    stops = pl.DataFrame({"zone": ["a", "a", "b"], "stop": ["a1", "a2", "b1"]})
    stops.write_csv(user.folder / "stops.csv")
    pairs = pl.DataFrame(list(product(stops["stop"], stops["stop"])), schema=["from", "to"], orient="row")
    pairs.with_columns(minutes=20).write_csv(user.folder / "minutes.csv")
    trips = pairs.join(pl.DataFrame({"period": range(3)}), how="cross").with_columns(trips=pl.col("period") * 5 + 1)
    trips.write_csv(user.folder / "trips.csv")
    keys = {
        "input": {"table": "trips.csv", "features": ["period", "from", "to"], "count": "trips"},
        "hierarchy": {
            "period": {"values": 3},
            **{end: {"table": "stops.csv", "levels": ["zone", "stop"]} for end in ("from", "to")},
        },
        "release": {"order": ["period", "from", "to"]},
        "public_data": True,
        "utility": {"fleet": {"period": "period", "minutes": 30, "capacity": 4, "durations": "minutes.csv"}},
    }
    (user.folder / "fleet.yaml").write_text(yaml.safe_dump(SPEC | keys))
    options = ("--epsilon", "1,30", "--runs", "2", "--json", "--out", str(folder))
    said = user.run("compare", "fleet.yaml", "--utility", "fleet", *options)
    assert said.code == 0, said.stderr
    rows = pl.read_parquet(folder / "utility.parquet")
    assert rows.height == 2 * 2 * 2 * 3
    for result in said.json()["results"]:
        of_result = rows.filter(mechanism=result["mechanism"], epsilon=result["epsilon"])
        for number, spread in result["utility"]["fleet"].items():
            values = of_result.filter(number=number)["value"]
            assert spread == {"mean": pytest.approx(values.mean()), "min": values.min(), "max": values.max()}
    assert "Utility: fleet" in (folder / "index.html").read_text(encoding="utf-8")
    again = user.run("compare", "fleet.yaml", *options)  # in the same folder, without the measure
    assert again.code == 0, again.stderr
    assert not (folder / "utility.parquet").exists()


@pytest.mark.thorough
def test_baselines_are_compared(compared: Compared) -> None:
    """Every baseline that --help names has its rows beside a mechanism, without intervals, and makes no release."""
    user, folder = compared.user, compared.user.folder / "baselines"
    said = " ".join(user.run("compare", "--help").stdout.replace("│", " ").split())
    assert all(name in said for name in BASELINES)
    names = ["inftda", *(name for name in BASELINES if name != "eigen_design")]  # which needs an ordered axis
    options = ("--epsilon", "1", "--runs", "2", "--json", "--out", str(folder))
    found = user.run("compare", "public.yaml", "--mechanisms", ",".join(names), *options)
    assert found.code == 0, found.stderr
    answer = found.json()
    assert [result["mechanism"] for result in answer["results"]] == names
    rows = pl.read_parquet(folder / "errors.parquet")
    assert rows.height == len(names) * 2 * len(answer["levels"])
    for result in answer["results"][1:]:
        assert all(level["intervals"] is level["rows_covered"] is None for level in result["levels"])
        assert result["levels"][-1]["max_absolute"]["mean"] > 0
    user.spec("hay.yaml", mechanism="hay")
    refused = user.run("plan", "hay.yaml")
    assert (refused.code, "mechanism must be one of inftda, " in refused.stderr) == (2, True)


@pytest.mark.thorough
def test_baselines_are_compared_on_views_that_cross(compared: Compared) -> None:
    """On the city of O5, flat and hierarchical noise have 50 times the error of cbdp at pairs of zones, and views have names."""
    user = compared.user
    assert user.run("synthesise", "shuttle", "--out", "city", "--seed", "1").code == 0
    names = "laplace,hay:pruned_geometric,cbdp"
    options = ("--epsilon", "1", "--runs", "1", "--utility", "fleet", "--out", "city/compared")
    said = user.run("compare", "city/o5.yaml", "--mechanisms", names, *options, "--json")
    assert said.code == 0, said.stderr
    answer = said.json()
    views = {level["view"]: place for place, level in enumerate(answer["levels"])}
    laplace, hay, cbdp = (result["levels"][views["by_zones"]]["l1"]["mean"] for result in answer["results"])
    assert min(laplace, hay) > 50 * cbdp > 0
    covered = [result["levels"][views["by_mode"]]["rows_covered"] for result in answer["results"]]
    assert covered[:2] == [None, None]
    assert covered[2]["mean"] > 0.5
    assert all(result["utility"]["fleet"]["busy"]["mean"] > 0 for result in answer["results"])
    page = (user.folder / "city" / "compared" / "index.html").read_text(encoding="utf-8")
    assert page.count('<th scope="row">by_mode</th>') == len(MEASURES) + 1
