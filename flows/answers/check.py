"""Whether a spec can be released: every problem at once, where a release stops at the first.

Of the confidential table only the header is read, and no row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from flows.answers.release_status import ErrorMessage
from flows.cluster.choice import check_workers
from flows.forecast.answer import plan_answer
from flows.forecast.remarks import remarks_on_unit
from flows.forecast.values import BudgetForecast, Forecast, PlannedPart
from flows.planning.admission import admission, check_writable
from flows.planning.compatibility import mechanism_named
from flows.planning.plan import Plan, faults_of_keys, make_plan
from flows.specification.file import expand_each, faults_of, located, output_below, parse_spec, text_of
from flows.specification.sections.hierarchy import Csv
from flows.specification.undecided import Undecided, marked_in
from flows.specification.yaml import keys_in
from storage.database.connections import store
from storage.errors import SpecError, TrellisError
from storage.machine.caller import tell_caller
from tasks.ingest.sources.csv_files import Dialect
from tasks.ingest.sources.locations import matrix_at, table_at
from tasks.ingest.tables import Table, check_columns, opened, reader

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A spec that cannot be released as it is, and the keys of it that are undecided, if any are."""

    ok: Literal[False]
    problems: Sequence[ErrorMessage]
    undecided: Sequence[str] | None = None

    def __repr__(self) -> str:
        number, fields = len(self.problems), list(dict.fromkeys(of.field for of in self.problems))
        return f"<cannot be released: {number} problem{'s' * (number > 1)}, in {', '.join(fields[:3])}>"


@dataclass(frozen=True, slots=True)
class ShapedLevel:
    """How many areas of a level of an axis have a shape, and how many areas there are."""

    axis: str
    level: str
    shaped: int
    areas: int


@dataclass(frozen=True, slots=True)
class PassedCheck:
    """A spec that can be released, down to which level, what that would cost, what weakens it, and which areas maps would show."""

    ok: Literal[True]
    problems: Sequence[ErrorMessage]
    name: str
    dataset: str
    mechanism: str
    mechanism_reason: str | None
    epsilon: float
    delta: float
    rho: float
    levels: Sequence[PlannedPart]
    statement: str
    unprotected: Sequence[str]
    remarks: Sequence[str]
    budget: BudgetForecast
    shapes: Sequence[ShapedLevel]

    def __repr__(self) -> str:
        return f"<can be released: {self.name} by {self.mechanism}, epsilon {self.epsilon:g}, delta {self.delta:g}>"


class _Problems(list[TrellisError]):
    """The problems of a spec, in their order."""

    def kept(self, work: Callable[[], T]) -> T | None:
        """Return what some work returns; where it is refused, add the reason and return None."""
        try:
            return work()
        except TrellisError as fault:
            self.append(fault)
            return None

    def check_table(self, at: Callable[[], Table], columns: Sequence[str]) -> None:
        """Add why there is no table at a place, or which columns its header lacks."""
        if table := self.kept(at):
            if table.remark:
                tell_caller(table.remark)
            try:
                with reader(table) as con, opened(con, table) as rows:
                    for column in dict.fromkeys(columns):
                        self.kept(partial(check_columns, table, rows, [column], columns))
            except TrellisError as fault:
                self.append(fault)


def check_answer(path: Path, text: str | None = None) -> PassedCheck | FailedCheck:
    """Return every problem of a spec, whose text is what is at its path if left out, or that it can be released and what that would cost."""
    problems = _Problems()
    try:
        text = text_of(path) if text is None else text
        problems += faults_of(text)
    except SpecError as fault:
        return _failed([fault], "")
    keys = keys_in(text)
    if not problems:
        spec = parse_spec(text, path).spec
        problems.kept(lambda: problems.extend(faults_of_keys(spec)))
    elif isinstance(name := keys.get("mechanism"), str) and not [*marked_in(name)]:  # whatever else is wrong
        problems.kept(lambda: mechanism_named(name))
    _check_tables(keys, path.absolute().parent, problems)
    plan = None if problems else problems.kept(lambda: make_plan(parse_spec(text, path)))
    forecast = _check_ledger(plan, problems) if plan else None
    if plan:
        problems.kept(lambda: check_workers(plan.terms.run.workers))
    return _failed(problems, text) if problems or forecast is None or plan is None else _passed(forecast, plan)


def _failed(faults: Sequence[TrellisError], text: str) -> FailedCheck:
    """Return each problem once, with the line of its key, unless the text cannot be read as keys.

    Where two looks at a key find the same, the hint is that of the later one, which knows more.
    """
    placed = [located(fault, text) if text else fault for fault in faults]
    problems = {(str(fault), fault.field): ErrorMessage(str(fault), fault.field, fault.hint) for fault in placed}
    undecided = [fault.field for fault in faults if isinstance(fault, Undecided)]
    return FailedCheck(False, list(problems.values()), undecided or None)


def _passed(forecast: Forecast, plan: Plan) -> PassedCheck:
    axes = {axis.name: axis for axis in plan.tree.axes}
    shapes = [
        ShapedLevel(axis, axes[axis].level_names[level - 1], shaped, axes[axis].areas(level))
        for (axis, level), shaped in plan.shaped.items()
    ]
    of_plan = {
        field.name: getattr(forecast, field.name) for field in fields(PassedCheck) if hasattr(forecast, field.name)
    }
    remarks = [*forecast.remarks, *remarks_on_unit(plan)]
    return PassedCheck(**of_plan | {"ok": True, "problems": [], "shapes": shapes, "remarks": remarks})


def _check_tables(keys: dict[str, Any], folder: Path, problems: _Problems) -> None:
    """Find what is wrong with the places of tables, and which columns their headers lack.

    Args:
        keys: of the spec as written: what is no place, or no name of a column, is passed over.
        folder: that of the spec.
        problems: to which they are added.
    """

    def at(open_at: Callable[[str, Any, Path], Table], field: str, location: str | list[str]) -> Callable[[], Table]:
        return lambda: open_at(field, expand_each(field, location), folder)

    for field, location, columns, csv in _tables_in(keys):
        problems.check_table(at(partial(table_at, csv=csv), field, location), columns)
    given = keys.get("input")
    if isinstance(given, dict) and _texts(given.get("matrix")):
        zones, csv = next(iter(_texts(given.get("zones"))), None), _dialect(given)
        problems.check_table(at(partial(matrix_at, zones=zones, csv=csv), "input.matrix", given["matrix"]), [])
    output = keys.get("output", "out")
    if _texts(output):
        problems.kept(lambda: check_writable(output_below(folder, output)))


def _tables_in(keys: dict[str, Any]) -> Iterator[tuple[str, str | list[str], list[str], Dialect | None]]:
    """Yield the key, the place, the columns and the dialect of the confidential table, every codebook and every derived column."""
    given, domains, derived = keys.get("input"), keys.get("hierarchy"), keys.get("derived")
    if isinstance(given, dict) and (table := _texts(given.get("table"))):
        ends = ("origin", "destination", "features", "group", "region", "count", "unit")
        listed = given.get("groups")  # it has the attributes of groups
        columns = [column for key in ends if not (listed and key == "features") for column in _texts(given.get(key))]
        taken = {name: of["from"] for name, of in _sections(domains) if isinstance(of.get("from"), dict)}
        needed = [*chain(*(_texts(taken.get(column, column)) for column in columns))]
        yield "input.table", table if isinstance(given["table"], list) else table[0], needed, _dialect(given)
        if isinstance(listed, dict) and _texts(listed.get("table")):
            columns = [
                *_texts(listed.get("group", given.get("group"))),
                *_texts(listed.get("levels")),
                *_texts(given.get("features")),
            ]
            yield "input.groups.table", listed["table"], columns, None
    for name, column in derived.items() if isinstance(derived, dict) else ():
        if isinstance(column, dict) and _texts(column.get("table")):
            yield f"derived.{name}.table", column["table"], [], None  # a plan says more of its columns
    for name, domain in _sections(domains):
        path = ".".join(filter(None, ("hierarchy", name)))
        if _texts(domain.get("table")):
            columns = _texts(domain.get("levels"))
            yield f"{path}.table", domain["table"], columns, _dialect(domain)
        recode = domain.get("recode")
        if isinstance(recode, dict) and _texts(recode.get("table")):
            columns = [*_texts(recode.get("from")), *_texts(recode.get("to"))]
            yield f"{path}.recode.table", recode["table"], columns, None


def _sections(domains: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the section `hierarchy` under an empty name, and those below it under theirs."""
    if isinstance(domains, dict):
        each = {"": domains, **domains}
        yield from ((name, of) for name, of in each.items() if isinstance(of, dict))


def _dialect(section: Mapping[str, Any]) -> Dialect | None:
    """Return how a section says that its CSV file is written; None where it does not, or not validly."""
    try:
        return Csv.model_validate(section["csv"]).dialect
    except (KeyError, ValidationError):
        return None


def _texts(value: object) -> list[str]:
    """Return the texts of a key that are decided."""
    if isinstance(value, dict):  # a column from which codes are taken
        value = value.get("column")
    several = value if isinstance(value, list) else [value]
    return [text for text in several if isinstance(text, str) and text and not [*marked_in(text)]]


def _check_ledger(plan: Plan, problems: _Problems) -> Forecast | None:
    """Return the forecast of a release that is possible, and find why it may not be made."""
    forecast = problems.kept(lambda: plan_answer(plan))
    if forecast is None:
        return None
    with store() as con:
        refusals = dict(admission(con, plan, plan.place_of_table).refusals)
    schedule, budget = forecast.schedule, forecast.budget
    if plan.scheme.days:  # they are releases of a series, which is declared as a whole
        refusals.pop("series", None)
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
    problems += refusals.values()
    return forecast
