"""`trellis compare`, mechanisms against the truth on a table that may be seen, and `trellis synthesise`, which draws one that is ready to release."""

import re
from itertools import product

import polars as pl
import pytest

from flows.trials.baselines import BASELINES
from flows.trials.comparison import ADDED, MEASURES
from tasks.validate.coverage import GROUPS, TRUE_COUNTS

COLUMNS = ["mechanism", "epsilon", "run", "level", *MEASURES, *ADDED, "seconds"]


def test_mechanisms_are_compared_and_nothing_is_charged(newcomer):
    """There is a row per mechanism, ε, run and level, of coverage per group of cells, and the JSON holds what is told of them."""
    # The page has a figure per measure, one of seconds and one of coverage for each ε, and loads nothing.
    user, folder = newcomer, newcomer.folder / "compared"
    user.spec("public.yaml", public_data=True, noise={"sampler": "table"})
    options = ("--mechanisms", "inftda,inftda_reconciled", "--epsilon", "1,30", "--runs", "2", "--json")
    said = user.run("compare", "public.yaml", *options, "--out", str(folder))
    assert said.code == 0, said.stderr
    answer = said.json()
    errors, rows, coverage = (pl.read_parquet(folder / f"{name}.parquet") for name in ("errors", "rows", "coverage"))
    number = 2 * 2 * 2 * len(answer["levels"])
    assert errors.columns == COLUMNS
    assert (errors.height, rows.height, coverage.height) == (number, number, number * len(GROUPS))
    assert errors.select("mechanism", "epsilon", "run", "level").is_duplicated().sum() == 0
    assert (rows["noise_rows"] <= rows["noise_rows_at_most"]).all()
    for result, (level, of_level) in product(answer["results"], enumerate(answer["levels"])):
        place = {"mechanism": result["mechanism"], "epsilon": result["epsilon"], "level": level}
        told, off = result["levels"][level], errors.filter(**place)["max_absolute"]
        assert told["max_absolute"] == {"mean": off.mean(), "min": off.min(), "max": off.max()}
        for measure in ("rows_covered", "noise_rows", "noise_rows_at_most", "bound_after"):
            values, stated = rows.filter(**place)[measure].drop_nulls(), told[measure]
            assert (stated is None) == values.is_empty()
            assert stated is None or stated["mean"] == pytest.approx(values.mean())
        assert sum(told["intervals"][group]["cells"] for group in TRUE_COUNTS) == of_level["possible_cells"]
        for group in GROUPS:
            stated, of_group = told["intervals"][group]["coverage"], coverage.filter(**place, group=group)["coverage"]
            assert (stated is None) == of_group.drop_nulls().is_empty()
            assert stated is None or stated["mean"] == pytest.approx(of_group.mean())
    finest = [result["levels"][-1]["max_absolute"]["mean"] for result in answer["results"]]
    assert finest[0] > finest[1] > 0  # ε = 30 is nearer to the truth than ε = 1
    assert finest[2] > finest[3] > 0
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(MEASURES) + 1 + 2
    assert re.findall(r"""(?:src|href)=["'](?!#)[^"']*|@import|url\((?!#)""", page) == []
    assert user.run("ledger", "--json").json() == {"datasets": []}
    assert user.run("releases", "--json").json() == {"releases": []}
    assert not list((user.folder / "home" / "vault").glob("*"))


def test_what_cannot_be_compared_is_refused(newcomer):
    """An ε out of range, no run, no utility, or a table that may not be seen end with 2 and a reason; a baseline is no mechanism."""
    newcomer.spec("public.yaml", public_data=True)
    newcomer.spec("hay.yaml", mechanism="hay")
    for command, told in (
        (["compare", "public.yaml", "--epsilon", "1,-2"], "--epsilon must list numbers > 0"),
        (["compare", "public.yaml", "--runs", "0"], "--runs"),
        (["compare", "public.yaml", "--utility", "fleet"], "utility.fleet must be given"),
        (["compare", "spec.yaml"], "public_data must be true"),
        (["plan", "hay.yaml"], "mechanism must be one of inftda, "),
    ):
        said = newcomer.run(*command)
        assert (said.code, told in said.stderr) == (2, True), command
    assert not (newcomer.folder / "out").exists()
    said = " ".join(newcomer.run("compare", "--help").stdout.replace("│", " ").split())
    assert all(name in said for name in BASELINES)


def test_a_drawn_set_is_ready_to_release(newcomer):
    """The command writes tables, a README and a spec, and a rehearsal of the spec's release finds nothing wrong."""
    said = newcomer.run("synthesise", "random", "--density", "sparse", "--out", "set", "--seed", "7", "--json")
    assert said.code == 0, said.stderr
    told = said.json()
    wanted = {"set": "random sparse", "seed": 7, "spec": "set/spec.yaml", "areas": 435, "pairs": 1892}
    assert wanted.items() <= told.items()
    rehearsed = newcomer.run("release", told["spec"], "--dry-run", "--json")
    assert rehearsed.code == 0, rehearsed.stderr
    assert (rehearsed.json()["name"], len(rehearsed.json()["levels"])) == ("random-sparse", 9)
