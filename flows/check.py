"""Whether a spec can be released: all that is wrong with it at once, where a release stops at the first.

What is said of the confidential table is said from its header; no row of it is read.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from flows.explanations import next_step
from flows.forecast import plan_answer
from flows.hierarchy_keys import Hierarchy
from flows.keys import Spec
from flows.plan import Plan, faults_of_meaning, make_plan, mechanism_of
from flows.reservation import check_budget, check_writable, different_people_from
from flows.spec import SpecFile, expand_variables, faults_of, parse_spec, text_of
from flows.starter import FILL_IN, left_to_fill_in
from storage.database import store
from storage.errors import InputError, SpecError, TrellisError
from storage.ledger import read_books
from tasks.ingest.tables import check_columns, opened, table_at

T = TypeVar("T")


def check_answer(path: Path) -> dict[str, Any]:
    """Return what `trellis check` says of a spec: every problem, or that it can be released and what that would cost.

    Args:
        path: of the spec.
    """
    found: list[TrellisError] = []
    answer: dict[str, Any] = {}
    try:
        text = text_of(path)
        found += _undecided(text)
        wrong = faults_of(text)
    except SpecError as fault:
        return _answer([*found, fault])
    found += wrong
    if not wrong:
        file = parse_spec(text, path)
        about_spec = [*_about_mechanism(file), *_about_tables(file)]
        found += about_spec
        plan = None if about_spec else _kept(lambda: make_plan(file), found)
        if plan:
            answer = _about_ledger(plan, found)
    return _answer(found) | (answer if not found else {})


def _answer(found: list[TrellisError]) -> dict[str, Any]:
    told = [{"error": str(fault), "field": fault.field, "hint": fault.hint or _hint(fault)} for fault in found]
    return {
        "ok": not told,
        "problems": [problem for number, problem in enumerate(told) if problem not in told[:number]],
    }


def _hint(fault: TrellisError) -> str:
    """Return what the keys of the spec say of the one at fault."""
    return next_step(Spec, fault.field) if isinstance(fault, SpecError) and fault.field not in {"", "SPEC"} else ""


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
            f"{key} (line {number}) is still to be decided.", field=key, hint=f"Set it, and take {FILL_IN} away."
        )


def _about_mechanism(file: SpecFile) -> list[TrellisError]:
    found: list[TrellisError] = []
    mechanism = _kept(lambda: mechanism_of(file.spec), found)
    return found if mechanism is None else list(faults_of_meaning(file.spec, mechanism))


def _about_tables(file: SpecFile) -> list[TrellisError]:
    """Return what is wrong with the places of tables, and which columns their headers lack."""
    spec = file.spec
    found: list[TrellisError] = []
    also = [column for column in (spec.input.count, spec.input.unit) if column]
    wanted = {
        "input.table": (spec.input.table, [*(column for axis in spec.axes for column in spec.columns(axis)), *also])
    }
    for key, hierarchy in map(spec.hierarchy_of, spec.axes):
        if isinstance(hierarchy, Hierarchy) and hierarchy.table is not None:
            wanted[f"{key}.table"] = (hierarchy.table, hierarchy.levels)
    for field, (location, columns) in wanted.items():
        found += _about_table(file, field, location, columns)
    _kept(lambda: check_writable(file.output()), found)
    return found


def _about_table(file: SpecFile, field: str, location: str, columns: list[str]) -> list[TrellisError]:
    found: list[TrellisError] = []
    table = _kept(lambda: table_at(field, expand_variables(field, location), file.folder), found)
    if table is None:
        return found
    try:
        with duckdb.connect() as con, opened(con, table) as rows:
            for column in dict.fromkeys(columns):
                try:
                    check_columns(con, table, rows, [column])
                except InputError as fault:
                    found.append(fault)
    except TrellisError as fault:
        found.append(fault)
    return found


def _about_ledger(plan: Plan, found: list[TrellisError]) -> dict[str, Any]:
    """Return what is to be said of a release that is possible; add to what was found why its people's budget forbids it."""
    answer = _kept(lambda: plan_answer(plan), found)
    if answer is None:
        return {}
    with store() as con:
        books = read_books(con)
    schedule, budget = answer["schedule"], answer["budget"]
    _kept(lambda: different_people_from(plan, books, different_people=False), found)
    if not (schedule and schedule["declared"]):  # whose releases are reserved, and paid for
        is_refused = len(found)
        _kept(lambda: check_budget(plan, books), found)
        if len(found) == is_refused and budget["after"]["epsilon"] > budget["cap"]["epsilon"]:
            found.append(
                SpecError(
                    f"schedule.until: the series would come to epsilon {budget['after']['epsilon']:.8g} at delta"
                    f" {budget['cap']['delta']:g}; the cap of dataset {answer['dataset']} is {budget['cap']['epsilon']:g}.",
                    field="schedule.until",
                    hint="Declare fewer releases, or a smaller privacy.epsilon.",
                )
            )
    kept = ("name", "dataset", "mechanism", "epsilon", "delta", "rho", "levels", "statement", "unprotected", "budget")
    return {key: answer[key] for key in kept}
