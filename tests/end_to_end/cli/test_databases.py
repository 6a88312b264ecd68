"""The command line over a table of a database: credentials stay in the environment, also where Prefect keeps what it sees."""

import polars as pl
import pytest

from tests.support.postgresql import PASSWORD, USER


@pytest.mark.thorough
@pytest.mark.heavy("commands are cold, and a database runs")
def test_credentials_are_in_nothing_that_a_command_leaves(newcomer, postgres):
    """Of a release with Prefect, one that fails at the server and a plan, no file, output or record holds user or password."""
    rows = pl.read_csv(newcomer.folder / "data" / "trips.csv", infer_schema=False).rows()
    create = "CREATE TABLE country_trips (home text, work text, people text)"
    postgres.run(create, f"INSERT INTO country_trips VALUES {', '.join(map(str, rows))}")
    table = {"table": f"{postgres.url}::public.country_trips"}
    newcomer.spec(input=table)
    newcomer.spec("other.yaml", dataset="other", name="other", input=table)
    login, wrong = {"PGUSER": USER, "PGPASSWORD": PASSWORD}, {"PGUSER": USER, "PGPASSWORD": PASSWORD[:-1]}
    said = [newcomer.run(command, "spec.yaml", **login) for command in ("release", "plan", "check")]
    assert [each.code for each in said] == [0, 0, 0], said[0].stderr
    refused = newcomer.run("release", "other.yaml", "--different-people", **wrong)
    assert (refused.code, "Set PGUSER and PGPASSWORD" in refused.stderr) == (2, True)
    files = [path for place in (newcomer.folder, newcomer.prefect.home) for path in place.rglob("*") if path.is_file()]
    left = [path.read_bytes() for path in files] + [(each.stdout + each.stderr).encode() for each in (*said, refused)]
    assert sum(b"country_trips" in content for content in left) > 2  # the search finds what may be there
    for secret in (USER, PASSWORD, PASSWORD[:-1]):
        assert not any(secret.encode() in content for content in left)
