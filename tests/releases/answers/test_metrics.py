"""Metrics of the store, as a Prometheus server reads them."""

import stat
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flows.answers.ledger import ledger_answer
from flows.answers.metrics import metrics_answer
from flows.api import release
from flows.cli.main import DONE, WRONG, main
from storage.errors import BudgetExceeded
from tests.support.office import ROWS, Office


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """Give a folder with a table, of which one release is published and one refused; nobody changes its releases."""
    place = tmp_path_factory.mktemp("office")
    (place / "people.csv").write_text("home,work\n" + ROWS)
    office = Office(place)
    spec = office.spec("first", "people.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        release(spec)
        with pytest.raises(BudgetExceeded):
            release(spec)
        yield office


def read(text):
    """Return every sample by its name and labels, read by Prometheus's own parser."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def test_metrics_are_those_of_the_store(office):
    """Releases by state, with a 0 for an alert to look at; the budget as `trellis ledger` says; the last success; the bytes of the store."""
    samples, of_first = read(metrics_answer()), frozenset({("dataset", "first")})
    by_state = {dict(labels)["state"]: value for (name, labels), value in samples.items() if name == "trellis_releases"}
    assert by_state == {"published": 1, "refused": 1, "failed": 0, "running": 0, "reserved": 0, "abandoned": 0}
    (account,) = ledger_answer(None).datasets
    for what in ("cap", "spent", "left"):
        told = samples[f"trellis_budget_{what}_epsilon", of_first]
        assert told == pytest.approx(getattr(account, what).epsilon)
    assert account.cap.epsilon == 1.0
    assert 0 <= time.time() - samples["trellis_last_success_timestamp_seconds", of_first] < 600
    assert 0 <= samples["trellis_last_success_age_seconds", of_first] < 600
    home = office.folder / "home"
    shards = sum(path.stat().st_size for path in (home / "shards").rglob("*") if path.is_file())
    assert sizes() == {"store": (home / "store.duckdb").stat().st_size, "shards": shards, "prefect": 0}
    assert shards > 0


def sizes():
    """Return the bytes in the metrics, by part."""
    samples = read(metrics_answer()).items()
    return {dict(labels)["part"]: value for (name, labels), value in samples if name == "trellis_bytes"}


FAILED = "first-2020-01-01"


def test_no_size_in_the_metrics_depends_on_a_true_count(office):
    """Whatever a release writes that it has not published, nowhere in TRELLIS_HOME, its size is in no metric."""
    (done,) = (path.parent for path in office.folder.rglob("manifest.json"))
    before = sizes()
    for name in (
        "vault/other.duckdb",
        "vault/other.duckdb.tmp/spilled",
        "tmp/slices-1/level_1_b00.slice",
        f"shards/{FAILED}/level_1_trunk.counts.parquet",  # exact counts of a release that failed
        f"shards/{done.name}/level_1_trunk.7.noisy.parquet",  # drawn, and never sealed
        f"shards/{done.name}/level_1_b00.noisy.parquet.ab.partial",
        "store.duckdb.wal.copy",
        "runs.log",
        "anything/else",
    ):
        path = office.folder / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 100_000)
        assert sizes() == before, name


@pytest.mark.usefixtures("office")
def test_a_textfile_is_open_to_its_collector(tmp_path, capsys):
    """The file has what the command prints, and other users may read it: all of it is public."""
    path = tmp_path / "trellis.prom"
    assert main(["metrics", "--textfile", str(path)]) == main(["metrics"]) == DONE
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert read(path.read_text()).keys() == read(capsys.readouterr().out).keys()
    assert main(["metrics", "--textfile", str(tmp_path / "nowhere" / "trellis.prom")]) == WRONG


def test_a_new_store_has_metrics(own_home):
    """A store without releases has its bytes, and the time."""
    assert {name for name, _ in read(metrics_answer())} == {"trellis_bytes", "trellis_metrics_timestamp_seconds"}
