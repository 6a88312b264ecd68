"""The command line over tables of a database: credentials stay in the environment, also where Prefect keeps what it sees."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.support.postgresql import PASSWORD, USER, Postgres
from tests.support.user import User


def fill(server: Postgres, data: Path) -> None:
    """Write the tables of the country to the database."""
    for name in ("trips", "codebook"):
        with duckdb.connect() as con:
            found = con.execute(f"FROM read_csv('{data / name}.csv', all_varchar = true)")
            columns = [column[0] for column in found.description]
            rows = found.fetchall()
        values = ", ".join("(" + ", ".join(f"'{value}'" for value in row) + ")" for row in rows)
        texts = ", ".join(f"{column} text" for column in columns)
        server.run(f"CREATE TABLE country_{name} ({texts})", f"INSERT INTO country_{name} VALUES {values}")


def holding(word: str, *folders: Path) -> Iterator[Path]:
    """Yield the files below some folders that hold a word."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and word.encode() in path.read_bytes():
                yield path


@pytest.mark.thorough
@pytest.mark.heavy("commands are cold, and a database runs")
def test_credentials_are_in_nothing_that_a_command_leaves(newcomer: User, postgres: Postgres) -> None:
    """Of a release with Prefect, one that fails at the server and a plan, no file, output or record holds user or password."""
    fill(postgres, newcomer.folder / "data")
    tables = {
        "input": {"table": f"{postgres.url}::public.country_trips"},
        "hierarchy": {"table": f"{postgres.url}::public.country_codebook"},
    }
    newcomer.spec(**tables)
    login = {"PGUSER": USER, "PGPASSWORD": PASSWORD}
    made = newcomer.run("release", "spec.yaml", "--json", **login)
    assert made.code == 0, made.stderr
    said = [made, newcomer.run("plan", "spec.yaml", **login), newcomer.run("check", "spec.yaml", **login)]
    assert [each.code for each in said] == [0, 0, 0]
    newcomer.spec("other.yaml", dataset="other", name="other", **tables)
    refused = newcomer.run("release", "other.yaml", "--different-people", PGUSER=USER, PGPASSWORD=PASSWORD[:-1])
    assert (refused.code, "Set PGUSER and PGPASSWORD" in refused.stderr) == (2, True)
    places = (newcomer.folder, newcomer.prefect.home)
    assert len(list(holding("country_trips", *places))) > 2  # the search finds what may be there
    for secret in (USER, PASSWORD, PASSWORD[:-1]):
        assert list(holding(secret, *places)) == []
        assert [each for each in (*said, refused) if secret in each.stdout + each.stderr] == []
