"""Published folders that tests share, each made once for a run: a covering array of what a release can be. A test copies the folder that it spoils."""

import fcntl
import html
import io
import os
import re
import shutil
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

import tasks.folder.publish.task
import tasks.mechanisms
from flows.answers.release_status import show_answer
from flows.api import PublishedRelease, open_release, plan_page, release
from flows.console.plan_view import show_plan
from flows.console.release_view import show_one
from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from flows.synthetic import write_ready
from storage.database.connections import store
from tasks.laws import samplers
from tasks.synthesize.country import draw_country
from tests.support.ages import BY_AGE, GRID, PRIVACY, PRODUCT, SPEC, draw_people, people_released, with_sex
from tests.support.households import LISTED, TENURE, homes_released
from tests.support.households import PRIVACY as OF_HOME
from tests.support.households import SPEC as HOMES
from tests.support.seeded_bits import SeededBits

FAMILY, LAW, NEIGHBOURS, RECORDS, VIEWS, LAND, TABLE = range(7)
# name: (family, law, neighbours, records per unit, views, names and shapes, table)
ROWS = {
    "walked": ("inftda", "gaussian", "add_remove", 1, "none", "none", "people"),
    "walked with Laplace noise": ("inftda", "laplace", "substitution", 1, "none", "none", "people"),
    "two passes": ("inftda_reconciled", "gaussian", "substitution", 1, "none", "none", "people"),
    "shrunk": ("inftda_shrunk", "gaussian", "add_remove", 1, "none", "none", "people"),
    "leaves": ("gaussian", "gaussian", "add_remove", 1, "none", "none", "people"),
    "leaves with a threshold": ("stability_histogram", "laplace", "add_remove", 1, "none", "none", "people"),
    "settled together": ("cbdp", "gaussian", "add_remove", 1, "one", "none", "people"),
    "calibrated": ("inftda_reconciled", "gaussian", "add_remove", 1, "margins", "none", "people"),
    "unbiased tree": ("unbiased_tree", "gaussian", "add_remove", 1, "none", "none", "people"),
    "grid": ("grid", "gaussian", "add_remove", 1, "none", "none", "people"),
    "sizes by tails": ("group_sizes", "laplace", "add_remove", 1, "none", "none", "homes"),
    "sizes within a list": ("group_sizes", "laplace", "add_remove", 1, "none", "none", "listed homes"),
    "sizes by themselves": ("sizes_direct", "laplace", "add_remove", 1, "none", "none", "homes"),
    "sizes by a chain": ("sizes_chain", "laplace", "add_remove", 1, "none", "none", "homes"),
    "trips": ("inftda", "gaussian", "substitution", 1, "none", "both", "trips"),
    "trips of three": ("inftda", "laplace", "add_remove", 3, "none", "both", "trips"),
    "trips in two passes": ("inftda_reconciled", "gaussian", "add_remove", 3, "none", "names", "trips"),
    "trips shrunk": ("inftda_shrunk", "laplace", "substitution", 3, "none", "both", "trips"),
    "trips calibrated": ("inftda_reconciled", "laplace", "substitution", 3, "margins", "names", "trips"),
    "trips settled together": ("cbdp", "laplace", "substitution", 3, "one", "both", "trips"),
    "trips of leaves": ("gaussian", "laplace", "substitution", 3, "none", "names", "trips"),
    "trips with a threshold": ("stability_histogram", "laplace", "substitution", 3, "none", "both", "trips"),
    "trips by least squares": ("tda_l2", "gaussian", "substitution", 1, "none", "names", "trips"),
    "ages of three": ("unbiased_tree", "gaussian", "substitution", 3, "none", "none", "people"),
    "grid of three": ("grid", "gaussian", "substitution", 3, "none", "none", "regions"),
    "sizes of three": ("group_sizes", "gaussian", "substitution", 3, "none", "none", "homes"),
    "trips by mode": ("inftda_reconciled", "gaussian", "add_remove", 1, "one", "both", "trips by mode"),
    "sizes by tenure": ("group_sizes", "laplace", "add_remove", 1, "none", "none", "homes by tenure"),
    "unbiased tree with views": ("unbiased_tree", "gaussian", "add_remove", 1, "one", "none", "people"),
    "trips by mode without bias": ("unbiased_tree", "gaussian", "add_remove", 1, "one", "both", "trips by mode"),
    "ranges of three": ("optimal_ranges", "gaussian", "substitution", 3, "none", "none", "people"),
    "trips by priors with a view": ("inftda_shrunk", "gaussian", "substitution", 1, "one", "both", "trips"),
    "ranges by region": ("optimal_ranges", "gaussian", "add_remove", 1, "none", "none", "regions"),
}
FAMILIES = [
    *list(ROWS)[:14],
    "unbiased tree with views",
    "ranges of three",
]  # one of each family, of which all statements are judged
# which publish the rows that stand out by themselves too
WITH_SIGNAL = ["settled together", "unbiased tree", "grid", "sizes by tails"]
OF_HOMES = [name for name, row in ROWS.items() if "homes" in row[TABLE]]
PEOPLE = 600

_VIEWS = {
    ("one", "people"): {"views": {"ages": {"age": "age"}}},
    ("one", "trips"): {"views": {"out": {"origin": "province"}}},
    ("margins", "people"): {"views": "margins"},
    ("margins", "trips"): {"views": "margins"},
}
_OF_HOMES = {"listed homes": LISTED, "homes by tenure": TENURE}
# of trips by mode, at four hours, in the order and with the views that Trellis chooses
MODES = ["bike", "bus", "car/x"]
_PAGES = {name: getattr(tasks.folder.publish.task, name) for name in ("report", "explorer")}


@dataclass(frozen=True)
class Kept:
    """A release of the library, its row, the store that it is alone in, and its spec, beside its tables. Nobody changes its folder."""

    name: str
    home: Path
    spec: Path
    found: PublishedRelease

    @property
    def folder(self):
        """Where it is published."""
        return self.found.folder

    def copied(self, to):
        """Return a copy of its folder below another, to spoil."""
        return Path(shutil.copytree(self.folder, to / self.folder.name))

    @cached_property
    def texts(self):
        """What each of its outputs says, by its name, on one line."""
        with _at_home(self.home, self.name):
            texts = {"plan page": _as_text(plan_page(self.spec))}
            with redirect_stdout(io.StringIO()) as plan:
                show_plan(plan_answer(make_plan(load_spec(self.spec))))
            with redirect_stdout(io.StringIO()) as shown:
                show_one(show_answer(self.folder.name))
            texts |= {"plan in a terminal": plan.getvalue(), "release in a terminal": shown.getvalue()}
        texts |= {
            "README": (self.folder / "README.md").read_text().split("## Files")[0],
            "report": _as_text((self.folder / "report.html").read_text()),
            "metadata": (self.folder / "metadata.json").read_text(),
        }
        if (self.folder / "counts.xlsx").exists():
            sheet = pl.read_excel(self.folder / "counts.xlsx", sheet_name="Read me", has_header=False)
            texts["workbook"] = "\n".join(text for row in sheet.rows() for text in row if text)
        return {output: " ".join(text.split()) for output, text in texts.items()}


@dataclass(frozen=True)
class Library:
    """The releases, in a folder that all workers see."""

    place: Path

    def __getitem__(self, name):
        """Return a release, which is made if nobody has asked for it before."""
        place = self.place / name.replace(" ", "_")
        place.mkdir(parents=True, exist_ok=True)
        with (place / "made.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = place / "made"
            if not known.exists():
                with _at_home(place / "home", name), store():  # open all the time: to open it is a fifth of a release
                    known.write_text(str(_released(name, place).folder))
        return Kept(name, place / "home", place / "spec.yaml", open_release(known.read_text()))


def _released(name, place):
    family, law, neighbours, records, views, land, table = ROWS[name]
    privacy = OF_HOME if "homes" in table else PRIVACY
    privacy = privacy | {"neighbours": neighbours, "max_records_per_unit": records}
    mechanism = "unbiased_tree" if family == "grid" else family
    keys = {"mechanism": mechanism, "dataset": f"library-{list(ROWS).index(name)}"}
    rows = {"rows": "signal"} if name in WITH_SIGNAL else {}
    if "homes" in table:
        keys |= {"release": HOMES["release"] | rows, "privacy": privacy, "noise": {"sampler": "table", "law": law}}
        return homes_released(place, **keys, **_OF_HOMES.get(table, {}))
    if law == "laplace":
        del privacy["accountant"]
    threshold = mechanism == "stability_histogram"
    keys |= {"privacy": privacy, "noise": {} if threshold else {"sampler": "table", "law": law}}
    if table.startswith("trips"):
        return _trips_released(place, keys, views, land, by_mode=table != "trips")
    made = draw_people(PEOPLE + list(ROWS).index(name))  # other people in every dataset
    keys |= {"grid": GRID, "optimal_ranges": BY_AGE}.get(family, {"release": SPEC["release"]})
    if table == "regions":
        made, keys = with_sex(made, place), keys | PRODUCT
    keys["release"] = keys["release"] | {"formats": ["parquet", "csv", "xlsx"]} | rows | _VIEWS.get((views, table), {})
    return people_released(place, made, expected_total=10 * PEOPLE, **keys)


def _trips_released(place, keys, views, land, *, by_mode):
    number = int(keys["dataset"].removeprefix("library-"))
    generator = np.random.default_rng(number)
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500 + number, generator=generator)
    spec = write_ready(country, place, "trips", "country", epsilon=1.0)
    written = yaml.safe_load(spec.read_text()) | keys | {"budget": SPEC["budget"]}
    written["privacy"] = keys["privacy"] | {"unit": "one made-up commuter", "epsilon": 20.0}  # many rows at every level
    written["release"] |= _VIEWS.get((views, "trips"), {}) | {"csv": "every_level"}
    written["release"] |= {"noisy_counts": True} if keys["mechanism"] != "stability_histogram" else {}
    if keys["mechanism"] == "inftda_shrunk" and views == "one":  # which Trellis chooses, with other views
        del written["mechanism"], written["release"]["views"]
    if land == "names":
        del written["hierarchy"]["boundaries"]
    if by_mode:
        _add_modes(place, written, generator)
    spec.write_text(yaml.safe_dump(written))
    return release(spec)


def _add_modes(place, written, generator):
    """Give trips a mode and an hour, in their table and in their spec."""
    trips = pl.read_csv(place / "data/trips.csv", infer_schema=False)
    codes = {"mode": MODES, "hour": range(4)}
    drawn = {name: pl.Series(generator.choice(of, trips.height)) for name, of in codes.items()}
    trips.with_columns(**drawn).write_csv(place / "data/trips.csv")
    ends = dict.fromkeys(("origin", "destination"), written["hierarchy"])
    written["input"]["features"] = [*codes]
    written["hierarchy"] = ends | {"mode": MODES, "hour": {"ordered": 4}}
    written["release"] = {"csv": "every_level", "noisy_counts": True, "formats": ["omx", "geoparquet"]}
    written["release"] |= {"views": "attributes"} if written["mechanism"] == "unbiased_tree" else {}
    written["expected_total"] = 60


@contextmanager
def _at_home(home, name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(home))
        for page, write in _PAGES.items():
            patch.setattr(tasks.folder.publish.task, page, write)  # whole, whoever asks first
        patch.setattr(samplers, "system_words", SeededBits(list(ROWS).index(name)))
        if ROWS[name][VIEWS] == "margins":
            patch.setattr(tasks.mechanisms, "MOST_SETTLED", 5)  # so that they are calibrated to, not settled with
        yield


def shared_place(basetemp):
    """Return the folder of the library of a run, which its workers share."""
    return (basetemp.parent if "PYTEST_XDIST_WORKER" in os.environ else basetemp) / "library"


def _as_text(page):
    """Return the text of a page, with a bar between the cells of tables."""
    page = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r"</t[dh]>", " | ", page)
    return html.unescape(re.sub(r"<[^>]*>", " ", page))
