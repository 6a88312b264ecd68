"""docs/queries.md: every query runs on a release, and what it returns has the shape that the page shows."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pytest
import yaml

from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.folders import published

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")
FIRST, SECOND = "country-20261101T030000Z", "country-20261201T030000Z"  # as the page has them
SPEC: dict[str, Any] = {
    "name": "country",
    "dataset": "made-up-country",
    "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {
        "table": "data/codebook.csv",
        "levels": ["region", "province", "municipality"],
        "labels": "names.csv",
    },
    "release": {"tree": "destination", "finest": "municipality"},
    "privacy": {"unit": "one made-up job", "neighbours": "substitution", "max_records_per_unit": 1}
    | {"epsilon": 4.0, "delta": 1.0e-8, "accountant": "zcdp"},
    "budget": {"epsilon": 20.0, "delta": 1.0e-7},
}
PEOPLE = 20_000


class Query(NamedTuple):
    """A query of the page.

    Attributes:
        title: of its section.
        language: `sql` or `python`.
        code: as it is written.
        shown: the columns and rows that the page shows.
    """

    title: str
    language: str
    code: str
    shown: list[list[str]]


def queries() -> list[Query]:
    """Return the queries of the page, each with the table behind it."""
    found = []
    for section in PAGE.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL):
            lines = re.findall(r"^\| (.*) \|$", section, flags=re.MULTILINE)
            found.append(Query(title, language, code, [line.split(" | ") for line in lines]))
    return found


QUERIES = queries()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """Release a made-up country twice, as the page has it; return where, and the releases by what the page calls them."""
    place = tmp_path_factory.mktemp("queried")
    country = draw_country(
        regions=3, provinces=6, municipalities=18, people=PEOPLE, generator=np.random.default_rng(13)
    )
    write_country(country, place / "data")
    codes = country.codebook.get_column("province").unique(maintain_order=True)
    names = {"level": "province", "code": codes, "name": [f"Province {code}" for code in codes]}
    pl.DataFrame(names).write_csv(place / "names.csv")
    ids: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        for name in (FIRST, SECOND):
            revises = {"supersedes": ids[FIRST]} if ids else {}
            (place / "spec.yaml").write_text(yaml.safe_dump(SPEC | revises))
            ids[name] = published(place / "spec.yaml").name
        shutil.copy(place / "home" / "store.duckdb", place / "store.duckdb")
        yield place, ids


def answer(query: Query, place: Path, ids: dict[str, str]) -> pl.DataFrame:
    """Return what a query returns, for the releases that were made."""
    code = query.code
    for name, release in ids.items():
        code = code.replace(name, release)
    if query.language == "sql":
        with duckdb.connect(str(place / "store.duckdb"), read_only=True) as con:
            return con.sql(code).pl()
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 (the page's own code)
    result = names["result"]
    assert isinstance(result, pl.DataFrame)
    return result


def test_the_store_is_found_where_trellis_keeps_it(
    made: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the page has Python do before any query opens the store of TRELLIS_HOME, and lists every release."""
    place, ids = made
    code = re.findall(r"^```python\n(.*?)^```$", PAGE.partition("\n## ")[0], flags=re.MULTILINE | re.DOTALL)
    assert len(code) == 1
    monkeypatch.setenv("TRELLIS_HOME", str(place / "home"))
    names: dict[str, Any] = {}
    exec(code[0], names)  # noqa: S102 (the page's own code)
    listed = names["store"].sql("SELECT * FROM published").pl()
    names["store"].close()
    assert set(listed["release"]) == set(ids.values())
    told = capsys.readouterr().out
    assert all(release in told for release in ids.values())


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.title)
def test_a_query_of_the_page_returns_what_it_shows(
    made: tuple[Path, dict[str, str]], query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query runs, and returns the columns and as many rows as the page shows; there are five or more, in SQL and Polars."""
    assert len(QUERIES) == len({query.title for query in QUERIES}) >= 5
    assert {query.language for query in QUERIES} == {"sql", "python"}
    place, ids = made
    monkeypatch.chdir(place)
    returned = answer(query, place, ids)
    header, rule, *rows = query.shown
    assert all(set(cell) <= set("-:|") for cell in rule)
    assert returned.columns == header
    assert returned.height == len(rows)
    assert all(len(row) == len(header) for row in rows)


def test_what_the_queries_return_is_of_the_release(
    made: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Margins add up to everybody, the largest come first within their intervals, and every level is looked at."""
    place, ids = made
    monkeypatch.chdir(place)
    answers = {query.title: answer(query, place, ids) for query in QUERIES}
    assert answers["A margin"]["workers"].sum() == PEOPLE
    for title in ("The largest flows, with their intervals", "With the names of the areas"):
        assert (
            answers[title]
            .select((pl.col("low") <= pl.col("count")) & (pl.col("count") <= pl.col("high")))
            .to_series()
            .all()
        )
    assert answers["With the names of the areas"]["lives_in"].str.starts_with("Province 0").all()
    assert answers["The largest flows, with their intervals"]["count"].is_sorted(descending=True)
    changes = answers["What has changed between two revisions"]
    assert (changes["change"] == changes["now"].fill_null(0) - changes["before"].fill_null(0)).all()
    assert set(changes["verdict"]) <= {"changed", "may be noise", "not in both"}
    noise = answers["How much of a level is mostly noise"]
    assert noise["level"].to_list() == list(range(7))
    assert noise["share_of_rows_that_may_be_empty"][0] == 0
    covered = answers["How well an area is covered"]
    assert covered["jobs"].n_unique() == 1
    assert covered["published_flows"].is_sorted()
