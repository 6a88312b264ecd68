"""One small release of every family of mechanisms, and all that its outputs say, as text."""

import html
import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import flows.mechanisms
from flows.answers.release_status import show_answer
from flows.api import PublishedRelease, plan_page
from flows.console.plan_view import show_plan
from flows.console.release_view import show_one
from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from tests.support.ages import PRIVACY, SPEC, draw_people, people_released
from tests.support.households import LISTED, homes_released

SUBSTITUTION = {"privacy": PRIVACY | {"neighbours": "substitution"}}
WITHOUT_RHO = {key: value for key, value in PRIVACY.items() if key != "accountant"}
LAPLACE = {
    "noise": {"law": "laplace", "sampler": "table"},
    "privacy": WITHOUT_RHO | {"neighbours": "substitution"},
}
ORDER = SPEC["release"]["order"]

# of people by zone and age
OF_PEOPLE: dict[str, dict[str, Any]] = {
    "walked": {"mechanism": "inftda"},
    "walked with Laplace noise": {"mechanism": "inftda", **LAPLACE},
    "two passes": {"mechanism": "inftda_reconciled", **SUBSTITUTION},
    "shrunk": {"mechanism": "inftda_shrunk"},
    "leaves": {"mechanism": "gaussian"},
    "leaves with a threshold": {"mechanism": "stability_histogram", "noise": {}, "privacy": WITHOUT_RHO},
    "settled together": {"mechanism": "cbdp", "release": {"order": ORDER, "views": {"ages": {"age": "age"}}}},
    "calibrated": {"mechanism": "inftda_reconciled", "release": {"order": ORDER, "views": "margins"}},
    "unbiased tree": {"mechanism": "unbiased_tree"},
    "grid": {
        "mechanism": "unbiased_tree",
        "hierarchy": {"zone": {"ordered": ["n", "e", "s"]}, "age": {"ordered": 10}},
        "release": {"grid": ["zone", "age"]},
    },
}
OF_HOMES: dict[str, dict[str, Any]] = {
    "sizes by tails": {"mechanism": "group_sizes"},
    "sizes within a list": {"mechanism": "group_sizes", **LISTED},
    "sizes by themselves": {"mechanism": "sizes_direct"},
    "sizes by a chain": {"mechanism": "sizes_chain"},
}
FAMILIES = [*OF_PEOPLE, *OF_HOMES]
_PEOPLE = 600


@dataclass(frozen=True)
class Outputs:
    """A release and its outputs.

    Attributes:
        found: the release.
        texts: what each output says, by its name, on one line.
    """

    found: PublishedRelease
    texts: dict[str, str]


def outputs_of(name: str, place: Path) -> Outputs:
    """Release a family in a folder of its own, and return what its outputs say; TRELLIS_HOME must be set."""
    place.mkdir()
    number = FAMILIES.index(name)
    with pytest.MonkeyPatch.context() as patch:
        if name == "calibrated":
            patch.setattr(flows.mechanisms, "MOST_SETTLED", 5)
        if name in OF_PEOPLE:
            keys = {"release": SPEC["release"], **OF_PEOPLE[name]}
            keys["release"] = keys["release"] | {"formats": ["parquet", "csv", "xlsx"]}
            people = draw_people(_PEOPLE + number)  # another table, of another dataset
            found = people_released(place, people, dataset=f"family-{number}", expected_total=10 * _PEOPLE, **keys)
        else:
            found = homes_released(place, dataset=f"family-{number}", **OF_HOMES[name])
        spec = place / "spec.yaml"
        texts = {
            "plan page": _as_text(plan_page(spec)),
            "plan in a terminal": _printed(lambda: show_plan(plan_answer(make_plan(load_spec(spec))))),
        }
    folder = found.folder
    texts |= {
        "README": (folder / "README.md").read_text().split("## Files")[0],
        "report": _as_text((folder / "report.html").read_text()),
        "release in a terminal": _printed(lambda: show_one(show_answer(folder.name))),
        "metadata": (folder / "metadata.json").read_text(),
    }
    if (folder / "counts.xlsx").exists():
        sheet = pl.read_excel(folder / "counts.xlsx", sheet_name="Read me", has_header=False)
        texts["workbook"] = "\n".join(text for row in sheet.rows() for text in row if text)
    return Outputs(found, {output: " ".join(text.split()) for output, text in texts.items()})


def _as_text(page: str) -> str:
    """Return the text of a page, with a bar between the cells of tables."""
    page = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r"</t[dh]>", " | ", page)
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def _printed(show: Any) -> str:
    with redirect_stdout(io.StringIO()) as said:
        show()
    return said.getvalue()
