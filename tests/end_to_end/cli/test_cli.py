"""The command line from spec to verified folder: what it says, what it leaves behind, and what it never tells."""

import base64
import binascii
import fcntl
import json
import os
import re
import shutil
import signal
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tasks.released.query.overview import largest_counts
from tasks.released.sources.folder import open_folder

DEPTH = 6  # three levels at either end
PEOPLE = 500


@pytest.fixture(scope="module")
def user(tmp_path_factory, settle):
    """Return a user, who releases twice."""
    return settle(tmp_path_factory.mktemp("user"))


@contextmanager
def leased(path):
    """Hold Linux's lease on a file; yield a list that is empty until anybody opens the file, or None without a lease."""
    opened = []

    def give_up(*_):
        opened.append(True)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)  # until then who opens it waits

    before = signal.signal(signal.SIGIO, give_up)
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except (AttributeError, OSError):  # another system, or a file system that grants none
        yield None
    else:
        yield opened
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, before)


@pytest.fixture(scope="module")
def first(user):
    """Release the country, answered in JSON."""
    return user.run("release", "spec.yaml", "--json")


@pytest.fixture(scope="module")
def second(user, first):
    """Release the country once more, to a folder of another name, answered for people."""
    return user.run("release", "spec.yaml", "--output", "other")


def tables(folder):
    """Return the tables of a published folder, level by level."""
    return [pl.read_parquet(Path(folder) / "counts" / f"level_{level}.parquet") for level in range(DEPTH + 1)]


@pytest.mark.parametrize(
    "arguments", [["plan", "spec.yaml"], ["ledger", "--json"], ["verify", "nowhere"], ["show", "--nosuch"]]
)
def test_a_warm_command_says_what_a_cold_one_says(newcomer, arguments):
    """A command that the warm process forks has the exit code, the stdout and the stderr of one that a shell starts."""
    assert newcomer.run(*arguments) == newcomer.run_cold(*arguments)


def test_wrong_usage(newcomer):
    """A command that cannot be understood ends with 2 and says what is wrong, in JSON where that was asked for."""
    for arguments, named in (
        (["nosuch"], "nosuch"),
        (["show"], "ID"),
        (["plan", "spec.yaml", "other.yaml"], "other.yaml"),
        (["release", "spec.yaml", "--nosuch"], "--nosuch"),
    ):
        said = newcomer.run(*arguments)
        assert (said.code, said.stdout, named in said.stderr) == (2, "", True), arguments
        assert_wrong(newcomer.run(*arguments, "--json"), named)
    said = newcomer.run()
    assert (said.code, "Usage: trellis" in said.stdout, said.stderr) == (2, True, "")
    assert not (newcomer.folder / "home").exists()


def assert_wrong(said, named="", field=None):
    """Check that a command ended with 2 and one object that says what is wrong, where, and what to do."""
    assert said.code == 2
    assert said.json().keys() == {"error", "field", "hint"}
    assert named in said.json()["error"]
    assert field in {None, said.json()["field"]}


@pytest.mark.parametrize(("command", "changes", "field"), [
    ("plan", {"schedule": "daily"}, "schedule"),
    ("release", {"hierarchy": {"levels": ["land", "province", "municipality"]}}, "hierarchy.table"),
], ids=["an unknown key", "another codebook"])  # fmt: skip
def test_wrong_spec(newcomer, command, changes, field):
    """A wrong spec or codebook ends with 2 and {error, field, hint}, on stderr for people, and leaves nothing behind."""
    newcomer.spec(**changes)
    said = newcomer.run(command, "spec.yaml", "--json")
    assert_wrong(said, field=field)
    for_people = newcomer.run(command, "spec.yaml")
    assert (for_people.code, for_people.stdout) == (2, "")
    assert for_people.stderr.split() == ["Error:", *said.json()["error"].split(), *said.json()["hint"].split()]
    assert {path.name for path in newcomer.folder.iterdir()} <= {"data", "spec.yaml", "home"}
    assert not list((newcomer.folder / "home").rglob("*.duckdb"))


def test_a_plan_spends_nothing_and_does_not_open_the_confidential_table(newcomer):
    """A plan of what is no table at all has levels and budget, and leaves no dataset, release or folder; whoever opens it is noticed."""
    table = newcomer.folder / "data" / "trips.csv"
    table.write_bytes(b"\xff\x00 no table")
    with leased(table) as opened:
        said = newcomer.run("plan", "spec.yaml", "--json")
        assert not opened
        table.read_bytes()
        assert opened is None or opened
    assert (said.code, said.stderr) == (0, "")
    plan = said.json()
    assert [level["possible_cells"] for level in plan["levels"]] == [1, 2, 4, 8, 16, 48, 144]
    assert plan["levels"][3]["axes"] == {"origin": "region", "destination": "province"}
    assert (plan["budget"]["before"]["rho"], plan["budget"]["after"]["rho"]) == (0, plan["rho"])
    assert newcomer.run("ledger", "--json").json() == {"datasets": []}
    assert newcomer.run("releases", "--json").json() == {"releases": []}
    assert not (newcomer.folder / "out").exists()
    newcomer.spec(privacy={"epsilon": 20.0})
    said = newcomer.run("plan", "spec.yaml")
    assert (said.code, "would be refused" in said.stdout, said.stdout.count("\n") <= 25) == (0, True, True)


def test_a_release_answers_in_json_and_for_people(first, second, user):
    """It says on stdout, in one object and nothing else, its id, state, folder, levels and seconds; people read folder and report."""
    assert (first.code, first.stderr, second.code, second.stderr) == (0, "", 0, "")
    release = first.json()
    assert re.fullmatch(r"synthetic-\d{8}T\d{6}Z", release["id"])
    assert (release["state"], release["folder"]) == ("published", str(user.folder / "out" / release["id"]))
    assert {"ingest", "publish", "total"} <= release["seconds"].keys()
    for level, table in zip(release["levels"], tables(release["folder"]), strict=True):
        assert level["nonzero"] == table.height <= level["cells"]
        assert table["count"].sum() == PEOPLE
    other = release_ids(user)[1]
    folder = user.folder / "other" / other
    told = {f"{other} published", f"folder: {folder}", f"report: {folder / 'report.html'}"}
    assert told <= {*second.stdout.splitlines()}
    exact, noisy = ((tables(release["folder"])[level], tables(folder)[level]) for level in (0, DEPTH))
    assert exact[0].equals(exact[1])
    assert not noisy[0].equals(noisy[1])  # the noise is fresh


def release_ids(user):
    """Return the published releases, oldest first."""
    answer = user.run("releases", "--json").json()
    return [release["id"] for release in answer["releases"] if release["state"] == "published"]


def test_a_release_is_listed_shown_and_charged(first, second, user):
    """Each has its levels, seals, charges and checks; the ledger has both releases' charges and what is left; a plan knows of it."""
    id_ = first.json()["id"]
    assert user.run("releases", "--json").json()["releases"][0]["id"] == id_
    shown = user.run("show", id_, "--json").json()
    assert all(shown[key] == first.json()[key] for key in ("state", "folder", "levels"))
    assert [(seal["level"], seal["branch"]) for seal in shown["seals"]] == [(k, "trunk") for k in range(DEPTH + 1)]
    charged = [(charge["level"], charge["state"]) for charge in shown["charges"]]
    assert charged == [(level, "released") for level in range(1, DEPTH + 1)]
    assert {check["level"] for check in shown["checks"] if check["passed"]} == set(range(DEPTH + 1))
    (account,) = user.run("ledger", "synthetic-country", "--json").json()["datasets"]
    assert (account["cap"]["epsilon"], account["cap"]["delta"]) == (10, 1e-7)
    assert {charge["release"] for charge in account["charges"]} == set(release_ids(user))
    spent = sum(charge["rho"] for charge in account["charges"])
    assert account["left"]["rho"] == pytest.approx(account["cap"]["rho"] - spent)
    plan = user.run("plan", "spec.yaml", "--json").json()
    assert plan["budget"]["before"]["rho"] == account["spent"]["rho"] == pytest.approx(2 * plan["rho"])
    said = user.run("show", id_)
    assert (said.code, f"folder: {shown['folder']}\n" in said.stdout) == (0, True)
    for command, told in (("releases", id_), ("ledger", "synthetic-country")):
        assert told in user.run(command).stdout


def test_refused_by_the_budget(first, second, user):
    """A release that passes the cap ends with 3, says what is left, is listed as refused, and spends nothing."""
    before = user.run("ledger", "--json").json()
    user.spec("dear.yaml", name="dear", privacy={"epsilon": 9.0})
    said = user.run("release", "dear.yaml", "--json")
    assert (said.code, said.stderr) == (3, "")
    refusal = said.json()
    assert refusal.keys() == {"id", "state", "reason", "left"}
    assert (refusal["state"], refusal["left"]["rho"]) == ("refused", before["datasets"][0]["left"]["rho"])
    listed = user.run("releases", "--json").json()["releases"]
    assert [release["state"] for release in listed if release["id"] == refusal["id"]] == ["refused"]
    for_people = user.run("release", "dear.yaml")
    assert (for_people.code, for_people.stdout, "left" in for_people.stderr) == (3, "", True)
    user.spec("fits.yaml", name="fits", privacy={"epsilon": refusal["left"]["epsilon"]})
    assert "would be refused" not in user.run("plan", "fits.yaml").stdout
    assert user.run("ledger", "--json").json() == before
    assert sorted(folder.name for folder in (user.folder / "out").iterdir()) == [first.json()["id"]]
    for arguments, named in ((["show", "nosuch"], "nosuch"), (["ledger", "no-such"], "no-such")):
        assert_wrong(user.run(*arguments, "--json"), named)


def test_verify(first, tmp_path, user):
    """A published folder verifies by itself; once altered it ends with 1 and says what is wrong."""
    folder = tmp_path / first.json()["id"]
    shutil.copytree(first.json()["folder"], folder)
    said = user.run("verify", str(folder), "--json", TRELLIS_HOME="/proc/nowhere")
    assert (said.code, said.json()) == (0, {"ok": True, "failures": []})
    with (folder / "counts.csv").open("a") as file:
        file.write("09,0909,0909001,09,0909,0909001,1\n")
    for options, told in (
        ([str(folder), "--json"], "counts.csv is not the file that was published."),
        ([str(folder)], "counts.csv is not the file that was published."),
        ([str(tmp_path)], f"is not a release: it holds releases ({folder.name})."),
        ([str(tmp_path / "nothing"), "--json"], '"ok": false'),
    ):
        said = user.run("verify", *options)
        assert (said.code, told in said.stdout) == (1, True)


def test_prefect_shows_stages_and_what_is_public(first, prefect, user):
    """A release is one flow run, with a task run for each stage of each level, all completed; the UI shows levels and statement."""
    answer = first.json()
    runs, levels = prefect.task_runs(answer["id"]), range(DEPTH + 1)
    drawn = [f"{verb} level {level} trunk" for verb in ("measure", "optimise") for level in levels]
    validated = [f"validate level {level}" for level in levels]
    assert sorted(name for name, _ in runs) == sorted(["ingest", "grow tree", "publish", *drawn, *validated])
    assert {state for _, state in runs} == {"COMPLETED"}
    inputs = prefect.rows("SELECT DISTINCT task_inputs FROM task_run")
    assert {value for (text,) in inputs for value in map(str, json.loads(text).values())} <= {"[]"}
    assert prefect.parameters(answer["id"]) == [{"spec": str(user.folder / "spec.yaml"), "measure_again": False}]
    shown = prefect.artifacts(answer["id"])
    # at a level that stands above the noise, which is drawn
    largest = largest_counts(open_folder(Path(answer["folder"])), 1)
    assert ("largest" in shown) == bool(largest and largest.rows)
    assert shown.keys() | {"largest"} == {"progress", "levels", "largest", "statement"}
    assert shown["progress"] == 100
    assert not any(row["origin"] == row["destination"] for row in json.loads(shown.get("largest", "[]")))
    expected = [(of["level"], f"{of['cells']:,}", f"{of['nonzero']:,}") for of in answer["levels"]]
    assert [(row["level"], row["cells"], row["non-zero"]) for row in json.loads(shown["levels"])] == expected
    assert answer["statement"] in shown["statement"]
    assert answer["folder"] in shown["statement"]


def test_nobody_else_can_read_the_store(first, second, user):
    """Below TRELLIS_HOME all is closed to group and others, the true counts are gone, and nothing is written elsewhere."""
    home = user.folder / "home"
    files = [path for path in home.rglob("*") if path.is_file()]
    assert [str(path) for path in (home, *files) if path.stat().st_mode & 0o077] == []
    assert (home / "store.duckdb" in files, list((home / "vault").iterdir())) == (True, [])
    specs = {path.name for path in user.folder.glob("*.yaml")}
    assert {path.name for path in user.folder.iterdir()} - specs == {"data", "home", "out", "other"}
    assert {path.name for path in (user.folder / "data").iterdir()} == {"trips.csv", "codebook.csv", "README.md"}


PLANTED = 271_828_182_845  # records that go from one municipality to another; with the others less than 2**40
BAD_CODE = "0101-31415"
BAD_COUNT = 161_803_398_874
TINY = {"epsilon": 1e-6}  # σ is millions: that a released count equals a true one has a chance below 1e-7


def needles(numbers, texts=()):
    """Return how numbers and texts look in files: in digits, as SQLite, DuckDB, Arrow and pickle store them."""
    forms = [text.encode() for text in texts]
    for number in numbers:
        digits = [str(number), f"{number:,}", f"{number:_}", f"{number:x}"]
        forms += [form.encode() for form in digits]
        forms += [number.to_bytes(8, "little"), number.to_bytes(8, "big"), number.to_bytes(6, "big")]
        forms += [bytes([0x8A, size]) + number.to_bytes(size, "little") for size in (5, 6)]
    return forms


def readable(path):
    """Yield what a file holds: its bytes, what is in base64 in them, and the values of tables that are compressed."""
    content = path.read_bytes()
    yield content
    for encoded in re.findall(rb"[A-Za-z0-9+/=\n]{24,}", content):
        try:
            yield base64.b64decode(encoded)
        except binascii.Error:
            continue
    if path.suffix == ".parquet":
        yield repr(pl.read_parquet(path).rows()).encode()
    if path.suffix == ".duckdb":
        with duckdb.connect(str(path), read_only=True) as con:
            names = con.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
            for schema, table in names:
                yield repr(con.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall()).encode()
    if path.name == "prefect.db":
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as con:
            for (table,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                yield repr(con.execute(f'SELECT * FROM "{table}"').fetchall()).encode()


def holding(words, *folders):
    """Return the names of the files below some folders, the vault apart, that hold one of these words."""
    # Where a name says nothing, as in Prefect's store of results, it is that of the folder.
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.parent.name != "vault"]
    found = [path for path in files if any(word in text for text in readable(path) for word in words)]
    return {path.name if path.suffix else path.parent.name for path in found}


def test_no_true_count_leaves_the_vault(newcomer, prefect):
    """A table with a planted count is released; one with a planted count in a row with a bad code is refused, and leaves nothing."""
    # No file of Prefect or of the store, and nothing said, holds a planted count or a true count above it. The search has power: it
    # finds the counts in the input, and public words in each place that it searches.
    data, home = newcomer.folder / "data", newcomer.folder / "home"
    path, codebook = data / "trips.csv", pl.read_csv(data / "codebook.csv", infer_schema=False)
    start, end, *_ = sorted(codebook["municipality"])
    path.write_text(path.read_text() + f"{start},{end},{PLANTED}\n")
    trips = pl.read_csv(path, schema_overrides={"home": pl.String, "work": pl.String})
    true_counts = set[int]()  # of every node that holds the planted one, except the public total
    for home_digits, work_digits in ((0, 2), (2, 2), (2, 4), (4, 4), (4, 7), (7, 7)):
        same_home = pl.col("home").str.starts_with(start[:home_digits])
        same_work = pl.col("work").str.starts_with(end[:work_digits])
        true_counts.add(int(trips.filter(same_home & same_work)["people"].sum()))
    assert len(true_counts) >= 3
    newcomer.spec(privacy=TINY)
    published = newcomer.run("release", "spec.yaml", "--json")
    path.write_text(path.read_text() + f"{BAD_CODE},{end},{BAD_COUNT}\n")
    newcomer.spec("bad.yaml", name="bad", privacy=TINY)
    failed = newcomer.run("release", "bad.yaml", "--json")

    assert_wrong(failed, "input.table: column home has codes that the codebook lacks.", "input.origin")
    assert failed.stderr == "1 row is at fault.\n"
    (made,) = newcomer.run("releases", "--json").json()["releases"]
    assert (made["id"], made["state"]) == (published.json()["id"], "published")
    assert list((home / "vault").iterdir()) == []
    places = (home / "shards", newcomer.folder / "out")
    assert [of.name for place in places for of in place.iterdir()] == [made["id"]] * 2
    ((state, parameters),) = prefect.rows("SELECT state_type, parameters FROM flow_run WHERE name LIKE 'bad-%'")
    assert (state, json.loads(parameters).keys()) == ("FAILED", {"spec", "measure_again"})

    assert holding(needles([PLANTED]), data) == holding(needles([BAD_COUNT], [BAD_CODE]), data) == {"trips.csv"}
    assert holding([made["id"].encode()], prefect.home) >= {"prefect.db"}
    assert holding([made["id"].encode()], home) == {"store.duckdb"}
    noisy = pl.read_parquet(next((home / "shards").rglob("level_1_trunk.noisy.parquet")))
    assert "level_1_trunk.noisy.parquet" in holding(needles([noisy["noisy"].max()]), home)
    assert "prefect.db" in holding([b"column home has codes that the codebook lacks"], prefect.home)

    words = needles([PLANTED, *true_counts, BAD_COUNT], [BAD_CODE])
    assert holding(words, prefect.home, home) == set()
    said = "".join(text for run in (published, failed) for text in (run.stdout, run.stderr)).encode()
    assert [word for word in words if word in said] == []
