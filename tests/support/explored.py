"""A made-up land of named, drawn towns, whose trips are released with an explorer; and what a reader sees of a page."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import yaml
from shapely.geometry import box, mapping

from flows.answers.query import QueryAnswer, query_answer
from flows.api import release

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROWS, COLUMNS = 3, 5  # counties, and towns in each
COUNTIES = ["Ashford", "Bergen", "Çorlu"]
TOWNS = [f"{county + 1:02}{town + 1:02}" for county in range(ROWS) for town in range(COLUMNS)]
NAMES = {
    town: f"{'Mill' if number % 4 == 0 else 'Port'} {COUNTIES[number // COLUMNS]} {number % COLUMNS + 1}"
    for number, town in enumerate(TOWNS)
}

SPEC: dict[str, Any] = {
    "name": "land",
    "dataset": "land",
    "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
    "hierarchy": {"table": "areas.csv", "levels": ["county", "town"]},
    "release": {"tree": "destination", "finest": "town", "csv": "every_level"},
    "privacy": {"unit": "one made-up commuter", "neighbours": "substitution", "max_records_per_unit": 1, "epsilon": 1.5}
    | {"delta": 1e-8, "accountant": "zcdp"},
    "budget": {"epsilon": 1000.0, "delta": 1e-5},
    "noise": {"sampler": "table"},
}
DRAWN = {"labels": {"county": "county_name", "town": "town_name"}, "boundaries": "towns.geojson"}


def land_released(folder: Path, hierarchy: dict[str, Any], **keys: Any) -> Path:
    """Release the trips of the land; TRELLIS_HOME must be set. Return the published folder.

    Args:
        folder: for the tables.
        hierarchy: further keys of the hierarchy, such as `DRAWN`.
        keys: of the spec.
    """
    folder.mkdir(parents=True, exist_ok=True)
    areas = [(town[:2], COUNTIES[int(town[:2]) - 1], town, NAMES[town]) for town in TOWNS]
    pl.DataFrame(areas, ["county", "county_name", "town", "town_name"], orient="row").write_csv(folder / "areas.csv")
    squares = [box(n % COLUMNS, 50 - n // COLUMNS, n % COLUMNS + 1, 51 - n // COLUMNS) for n in range(len(TOWNS))]
    features = [
        {"type": "Feature", "properties": {"code": town}, "geometry": mapping(square)}
        for town, square in zip(TOWNS, squares, strict=True)
    ]
    (folder / "towns.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    chance = np.random.default_rng(7)
    shares = chance.pareto(0.7, len(TOWNS) ** 2)
    pairs = chance.choice(len(TOWNS) ** 2, 6000, p=shares / shares.sum())
    homes, works = ([TOWNS[place] for place in of.tolist()] for of in divmod(pairs, len(TOWNS)))
    pl.DataFrame({"home": homes, "work": works}).write_csv(folder / "trips.csv")
    spec = SPEC | {"hierarchy": SPEC["hierarchy"] | hierarchy} | keys
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    return release(folder / "spec.yaml", different_people=True).folder


def asked(folder: Path, where: dict[str, str]) -> QueryAnswer:
    """Return what `trellis query` answers."""
    found = query_answer(folder, None, None, [f"{axis}={area}" for axis, area in where.items()], simultaneous=False)
    assert isinstance(found, QueryAnswer)
    return found


@dataclass
class Reader:
    """Somebody in front of an explorer.

    Attributes:
        page: the browser's tab.
        requests: the addresses that it asked.
        said: what its console said.
    """

    page: "Page"
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Note every request and every message."""
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    def opens(self, path: Path, state: str = "") -> None:
        """Open a page, at a state that its address names."""
        self.page.goto("about:blank")
        self.page.goto(f"{path.as_uri()}{state}")
        self.page.wait_for_load_state("load")

    def cards(self) -> dict[str, tuple[str, str, str]]:
        """Return the cards by title: the count, the interval, and the sentence to quote, as they stand there."""
        found = self.page.evaluate(
            "[...document.querySelectorAll('.card')].map(card => [card.querySelector('h3').textContent, "
            "...['.count', '.interval', 'q'].map(part => card.querySelector(part)?.textContent ?? '')])"
        )
        return {title: (count, interval.strip(), quote) for title, count, interval, quote in found}

    def types(self, field: str, text: str, *keys: str) -> None:
        """Type into a field as a hand on a keyboard does."""
        self.page.focus(f"#{field}")
        self.page.keyboard.type(text)
        for key in keys:
            self.page.keyboard.press(key)


def card_of(answer: QueryAnswer) -> tuple[str, str]:
    """Return the count and the interval of an answer as a card shows them."""
    count = f"{answer.count:,}".replace("-", "−")
    if answer.low is None or answer.exact:
        return count, ""
    return count, f"{answer.low:,} to {answer.high:,}, with 90% probability".replace("-", "−")
