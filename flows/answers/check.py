"""Whether a spec can be released: every problem at once, where a release stops at the first.

Of the confidential table only the header is read, and no row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import duckdb

from flows.approvals.admission import admission, check_writable
from flows.cluster.choice import check_workers
from flows.forecast.answer import plan_answer
from flows.forecast.values import BudgetForecast, Forecast, PlannedLevel
from flows.planning.compatibility import incompatible_keys, mechanism_asked_for, mechanism_named
from flows.planning.plan import Plan, make_plan
from flows.spec.file import SpecFile, expand_variables, faults_of, located, output_below, parse_spec, text_of
from flows.spec.starter import FILL_IN, left_to_fill_in
from flows.spec.yaml import keys_in
from storage.database.connections import store
from storage.errors import InputError, SpecError, TrellisError
from tasks.ingest.sources.locations import matrix_at, table_at
from tasks.ingest.tables import Table, check_columns, opened

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a spec: the rule, the key at fault, and what to do next."""

    error: str
    field: str
    hint: str


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A spec that cannot be released as it is."""

    ok: Literal[False]
    problems: Sequence[Problem]


@dataclass(frozen=True, slots=True)
class ShapedLevel:
    """How many areas of a level of an axis have a shape, and how many areas there are."""

    axis: str
    level: str
    shaped: int
    areas: int


@dataclass(frozen=True, slots=True)
class PassedCheck:
    """A spec that can be released, down to which level, what that would cost, and which of its areas maps would show."""

    ok: Literal[True]
    problems: Sequence[Problem]
    name: str
    dataset: str
    mechanism: str
    epsilon: float
    delta: float
    rho: float
    levels: Sequence[PlannedLevel]
    statement: str
    unprotected: Sequence[str]
    budget: BudgetForecast
    shapes: Sequence[ShapedLevel]


def check_answer(path: Path, text: str | None = None) -> PassedCheck | FailedCheck:
    """Return every problem of a spec, or that it can be released and what that would cost.

    Args:
        path: of the spec.
        text: of the spec; what is at its path if left out.
    """
    found: list[TrellisError] = []
    try:
        text = text_of(path) if text is None else text
        found += _undecided(text)
        wrong = faults_of(text)
    except SpecError as fault:
        return _failed([*found, fault], "")
    keys = keys_in(text)
    about_mechanism = _about_name(keys) if wrong else _about_mechanism(parse_spec(text, path))
    about_spec = [*wrong, *about_mechanism, *_about_tables(keys, path.absolute().parent)]
    found += about_spec
    plan = None if about_spec else _kept(lambda: make_plan(parse_spec(text, path)), found)
    forecast = _about_ledger(plan, found) if plan else None
    if plan:
        _kept(lambda: check_workers(plan.terms.run.workers), found)
    return _failed(found, text) if found or forecast is None or plan is None else _passed(forecast, plan)


def _failed(found: Sequence[TrellisError], text: str) -> FailedCheck:
    """Return what was found, each problem once, with the line of its key, unless the text cannot be read as keys.

    Where two looks at a key find the same, the hint is that of the later one, which knows more.
    """
    told = [located(fault, text) if text else fault for fault in found]
    problems = {(str(fault), fault.field): Problem(str(fault), fault.field, fault.hint) for fault in told}
    return FailedCheck(False, list(problems.values()))


def _passed(forecast: Forecast, plan: Plan) -> PassedCheck:
    axes = {axis.name: axis for axis in plan.tree.axes}
    shapes = [
        ShapedLevel(axis, axes[axis].level_names[level - 1], shaped, axes[axis].areas(level))
        for (axis, level), shaped in plan.shaped.items()
    ]
    of_plan = {
        field.name: getattr(forecast, field.name) for field in fields(PassedCheck) if hasattr(forecast, field.name)
    }
    return PassedCheck(ok=True, problems=[], shapes=shapes, **of_plan)


def _kept(work: Callable[[], T], found: list[TrellisError]) -> T | None:
    """Return what some work returns; where it is refused, add the reason to what was found."""
    try:
        return work()
    except TrellisError as fault:
        found.append(fault)
        return None


def _undecided(text: str) -> Iterator[SpecError]:
    for number, key in left_to_fill_in(text):
        yield SpecError(
            f"{key} (line {number}) is still marked {FILL_IN}.",
            field=key,
            hint="Edit the value, then delete the marker.",
        )


def _about_mechanism(file: SpecFile) -> list[TrellisError]:
    found: list[TrellisError] = []
    mechanism = _kept(lambda: mechanism_asked_for(file.spec), found)
    return found if mechanism is None else list(incompatible_keys(file.spec, mechanism))


def _about_name(keys: dict[str, Any]) -> list[TrellisError]:
    """Return whether there is no mechanism of the name that a spec gives, whatever else is wrong with it."""
    found: list[TrellisError] = []
    name = keys.get("mechanism")
    if isinstance(name, str):
        _kept(lambda: mechanism_named(name), found)
    return found


def _about_tables(keys: dict[str, Any], folder: Path) -> list[TrellisError]:
    """Return what is wrong with the places of tables, and which columns their headers lack.

    Args:
        keys: of the spec as written: what is no place, or no name of a column, is passed over.
        folder: that of the spec.
    """
    found: list[TrellisError] = []
    for field, location, columns in _tables_in(keys):
        found += _about_table(partial(table_at, field), folder, field, location, columns)
    given = keys.get("input")
    if isinstance(given, dict) and isinstance(given.get("matrix"), str):
        zones = next(iter(_texts(given.get("zones"))), None)
        at = partial(matrix_at, "input.matrix", zones=zones)
        found += _about_table(at, folder, "input.matrix", given["matrix"], [])
    output = keys.get("output", "out")
    if isinstance(output, str):
        _kept(lambda: check_writable(output_below(folder, output)), found)
    return found


def _tables_in(keys: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the key, the place and the columns of the confidential table, of every codebook and of every derived column."""
    given, domains, derived = keys.get("input"), keys.get("hierarchy"), keys.get("derived")
    if isinstance(given, dict) and isinstance(given.get("table"), str):
        ends = ("origin", "destination", "features", "group", "region", "count", "unit")
        yield "input.table", given["table"], [column for key in ends for column in _texts(given.get(key))]
        listed = given.get("groups")
        if isinstance(listed, dict) and isinstance(listed.get("table"), str):
            columns = [*_texts(listed.get("group", given.get("group"))), *_texts(listed.get("levels"))]
            yield "input.groups.table", listed["table"], columns
    for name, column in derived.items() if isinstance(derived, dict) else ():
        if isinstance(column, dict) and isinstance(column.get("table"), str):
            yield f"derived.{name}.table", column["table"], []  # a plan says more of its columns
    if not isinstance(domains, dict):
        return
    each = {f"hierarchy.{name}": domain for name, domain in domains.items()}
    for field, domain in {"hierarchy": domains, **each}.items():
        if isinstance(domain, dict) and isinstance(domain.get("table"), str):
            yield f"{field}.table", domain["table"], _texts(domain.get("levels"))


def _texts(value: object) -> list[str]:
    several = value if isinstance(value, list) else [value]
    return [text for text in several if isinstance(text, str) and text]


def _about_table(
    at: Callable[[str, Path], Table], folder: Path, field: str, location: str, columns: list[str]
) -> list[TrellisError]:
    found: list[TrellisError] = []
    table = _kept(lambda: at(expand_variables(field, location), folder), found)
    if table is None:
        return found
    try:
        with duckdb.connect() as con, opened(con, table) as rows:
            for column in dict.fromkeys(columns):
                try:
                    check_columns(table, rows, [column], columns)
                except InputError as fault:
                    found.append(fault)
    except TrellisError as fault:
        found.append(fault)
    return found


def _about_ledger(plan: Plan, found: list[TrellisError]) -> Forecast | None:
    """Return the forecast of a release that is possible; add to what was found why its people's budget forbids it."""
    forecast = _kept(lambda: plan_answer(plan), found)
    if forecast is None:
        return None
    with store() as con:
        refusals = dict(admission(con, plan, plan.place_of_table).refusals)
    schedule, budget = forecast.schedule, forecast.budget
    if schedule and schedule.declared:  # the releases of the series are reserved, and paid for
        refusals.pop("series", None)
        refusals.pop("budget", None)
    elif "budget" not in refusals and budget.after.epsilon > budget.cap.epsilon:
        refusals["budget"] = SpecError(
            f"schedule.until: the series would reach epsilon {budget.after.epsilon:.8g} at delta"
            f" {budget.cap.delta:g}; the cap of dataset {forecast.dataset} is {budget.cap.epsilon:g}.",
            field="schedule.until",
            hint="Declare fewer releases, or set a smaller privacy.epsilon.",
        )
    found += refusals.values()
    return forecast
