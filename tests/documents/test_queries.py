"""docs/queries.md: every query runs on a release, and what it returns has the shape that the page shows."""

import re
import shutil

import duckdb
import numpy as np
import polars as pl
import pytest

from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.folders import published
from tests.support.spec import SPEC, spec_in
from tests.support.user import REPOSITORY

PAGE = (REPOSITORY / "docs" / "queries.md").read_text(encoding="utf-8")
NAMES = ("country-20261101T030000Z", "country-20261201T030000Z")  # of a release and of one that revises it
PEOPLE = 20_000


@pytest.fixture
def ids(tmp_path, monkeypatch):
    """Release a made-up country twice in the working directory, as the page has it, and return the releases."""
    generator = np.random.default_rng(13)
    country = draw_country(regions=3, provinces=6, municipalities=18, people=PEOPLE, generator=generator)
    write_country(country, tmp_path / "data")
    codes = country.codebook.get_column("province").unique(maintain_order=True)
    names = {"level": "province", "code": codes, "name": [f"Province {code}" for code in codes]}
    pl.DataFrame(names).write_csv(tmp_path / "names.csv")
    spec = SPEC | {"name": "country", "dataset": "made-up-country", "budget": {"epsilon": 20.0, "delta": 1.0e-7}}
    spec |= {"mechanism": "inftda_reconciled", "hierarchy": SPEC["hierarchy"] | {"labels": "names.csv"}}
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    made = list[str]()
    for _ in NAMES:
        made.append(published(spec_in(tmp_path, spec | ({"supersedes": made[0]} if made else {}))).name)
    return made


def ran(code):
    """Run Python of the page, and return what it has named."""
    names = {}
    exec(code, names)  # noqa: S102 (the page's own code)
    return names


def test_queries_of_the_page_return_what_it_shows(ids, capsys):
    """The store is found; each query has the columns and as many rows as the page shows; margins add up, and intervals hold their counts."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.partition("\n## ")[0], flags=re.MULTILINE | re.DOTALL)
    store = ran(code)["store"]
    assert set(store.sql("SELECT * FROM published").pl()["release"]) == set(ids)
    store.close()
    told = capsys.readouterr().out
    assert all(release in told for release in ids)
    shutil.copy("home/store.duckdb", "store.duckdb")
    answers, languages = dict[str, pl.DataFrame](), set[str]()
    for section in PAGE.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        ((language, code),) = re.findall(r"^```(\w+)\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
        for name, release in zip(NAMES, ids, strict=True):
            code = code.replace(name, release)
        if language == "sql":
            with duckdb.connect("store.duckdb", read_only=True) as con:
                answers[title] = con.sql(code).pl()
        else:
            answers[title] = ran(code)["result"]
        header, _, *rows = (line.split(" | ") for line in re.findall(r"^\| (.*) \|$", section, flags=re.MULTILINE))
        assert (answers[title].columns, answers[title].height) == (header, len(rows))
        assert {len(row) for row in rows} == {len(header)}
        languages.add(language)
    assert len(answers) >= 5
    assert languages == {"sql", "python"}
    assert answers["A margin"]["workers"].sum() == PEOPLE
    titles = ("The largest flows, with their intervals", "With the names of the areas")
    largest, named = (answers[title] for title in titles)
    for table in (largest, named):
        assert table.filter(pl.col("low") <= pl.col("count"), pl.col("count") <= pl.col("high")).height == table.height
    assert named["lives_in"].str.starts_with("Province 0").all()
    assert largest["count"].is_sorted(descending=True)
    changes = answers["What has changed between two revisions"]
    assert (changes["change"] == changes["now"].fill_null(0) - changes["before"].fill_null(0)).all()
    assert set(changes["verdict"]) <= {"changed", "may be noise", "not in both"}
    noise = answers["How much of a level is mostly noise"]
    assert noise["level"].to_list() == list(range(7))
    assert noise["share_of_rows_that_may_be_empty"][0] == 0
    covered = answers["How well an area is covered"]
    assert covered["jobs"].n_unique() == 1
    assert covered["published_flows"].is_sorted()
