"""The plan of a release as one page, for somebody who decides about it and is no statistician: to read, to sign, and to keep."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup

from flows.forecast.answer import plan_answer
from flows.forecast.values import Forecast, PlannedPart
from flows.forecast.worth import LevelWorth, further_releases, left_around, worth_at_three
from flows.planning.budget import agreed_terms
from flows.planning.plan import Plan, exact_in_words
from storage.database.connections import store
from storage.errors import UsageError, disk_fault
from storage.ledger.events import read_books
from storage.machine.files import beside, short_hash
from storage.releases.approvals import BESIDE, approval_element, canonical
from tasks.format.stated import TextTable
from tasks.pages.templates import page
from tasks.words.levels import Spec, about, axes_called, in_short, level_called, place, title_of
from tasks.words.numbers import format_rounded

_EXAMPLES = (10, 100, 1_000)  # records


def plan_page(plan: Plan, forecast: Forecast | None = None) -> str:
    """Return the page of a plan. It is for use inside the office: it may show a guess of the total, which is not published."""
    forecast = forecast or plan_answer(plan)
    with store() as con:
        books = read_books(con)
    terms = agreed_terms(books, plan.asked())
    account, typical = books.accounts.get(terms.dataset), forecast.typical
    before = account.spendings if account else []
    worth = worth_at_three(plan, before, terms.cap, typical.total if typical else None)
    planned = next(of for of in worth if of.is_planned)
    levels, approval, spec = forecast.levels, forecast.approval, plan.file.published()
    of_levels = [*zip(levels, planned.levels, strict=False)]
    parts = _parts(forecast, spec, planned.levels)
    exact = [level for level, of in of_levels if of.is_exact]
    return page(
        "plan.html",
        closed=True,
        plan=plan,
        forecast=forecast,
        title=title_of(spec, forecast.name) if spec.get("title") else forecast.name,
        about=about(spec),
        made=approval.made.replace("T", " ").removesuffix("Z"),
        fingerprint=short_hash(approval.fingerprint),
        counted="groups" if plan.mechanism.of_groups else "records",
        table_name=plan.source.table.name,
        axes=list(levels[0].axes),
        exact=_numbers_of(exact),
        hardly_noisy=_numbers_of([level for level, of in of_levels if of.within == 0 and not of.is_exact]),
        parts=parts,
        finest=planned.levels[len(levels) - 1] if planned.levels else None,
        within=_within,
        worth=worth,
        planned=planned,
        measured=_measured(forecast, exact),
        example_table=_example_table(parts),
        distinct=_called(spec, levels[0], plan.file.spec.privacy.distinct or ""),
        unprotected=[
            *(what for what in plan.unprotected if what not in plan.exact_by_choice),
            *(exact_in_words(level.level, axes_called(spec, level.axes)) for level in plan.exact_levels),
        ],
        bare_unit=plan.file.spec.privacy.unit.removeprefix("one ").removeprefix("a ").removeprefix("an "),
        further=further_releases(plan.spending, before, terms.cap),
        left=left_around(plan.spending, before, terms.cap),
        fingerprint_covers=[
            (path.split("."), text)
            for path, text in _leaves({key: of for key, of in asdict(approval).items() if key not in BESIDE})
        ],
        approval_element=Markup(approval_element(approval)),  # noqa: S704 (no angle bracket is in its JSON)
    )


def write_plan_page(path: Path, plan: Plan, forecast: Forecast) -> None:
    """Write the page of a plan to a file; it replaces an earlier one.

    Raises:
        UsageError: the file cannot be written.
    """
    text = plan_page(plan, forecast)
    try:
        with beside(path.absolute()) as file:
            file.write(text.encode())
    except OSError as fault:
        raise disk_fault(fault, "--html", str(path.parent)) or UsageError(
            f"--html: {path} cannot be written ({fault.strerror}).", field="--html", hint="Name another file."
        ) from None


def _parts(forecast: Forecast, spec: Spec, worth: Sequence[LevelWorth]) -> list[dict[str, Any]]:
    """Return the levels, then the views that have no level of their own: each with its name, its place in words and its worth."""
    parts = []
    for number, part in enumerate([*forecast.levels, *forecast.views]):
        view = f"view {part.view}" if part.view else ""
        own = f"{part.level} ({view})" if view else str(part.level)
        name = view if part.level >= len(forecast.levels) else own
        called = place(axes_called(spec, part.axes)) or "everything"
        parts.append({"part": part, "name": name, "place": called, "worth": worth[number] if worth else None})
    return parts


def _within(worth: LevelWorth | None) -> str:
    """Return within how much of the truth 19 of 20 counts are measured, as text."""
    if worth is None or worth.within is None:
        return "–"
    return "exact" if worth.is_exact else f"± {worth.within:,}"


def _numbers_of(levels: Sequence[PlannedPart]) -> str:
    """Return the numbers of some levels in words, such as `levels 0 to 2`; empty for none."""
    numbers = [level.level for level in levels]
    if len(numbers) < 2:
        return f"level {numbers[0]}" if numbers else ""
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"levels {numbers[0]} to {numbers[-1]}"
    return f"levels {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _measured(forecast: Forecast, exact: Sequence[PlannedPart]) -> dict[str, Any] | None:
    """Return which levels and groupings are measured, and how many; None where all are that are not exact."""
    if not any(part.summed for part in (*forecast.levels, *forecast.views)):
        return None
    levels = [level for level in forecast.levels if not level.summed and level not in exact]
    views = [f"view {view.view}" for view in forecast.views if not view.summed]
    names = filter(None, [_numbers_of(levels), in_short(views) if views else ""])
    return {"names": " and ".join(names), "many": len(levels) + len(views)}


def _example_table(parts: Sequence[Mapping[str, Any]]) -> TextTable:
    """Return what counts of example sizes would be measured as, level by level, at the planned ε."""
    has_means = any(of["part"].typical_count is not None for of in parts)
    rows = []
    for of in parts:
        part, worth = of["part"], of["worth"]
        mean = [format_rounded(part.typical_count) if part.typical_count is not None else "–"] if has_means else []
        more = f"{worth.more_than_noise:,}" if worth and worth.within and worth.more_than_noise is not None else "–"
        examples = [_example(count, part, worth) for count in _EXAMPLES]
        rows.append([of["name"], of["place"], *mean, _within(worth), *examples, more])
    heads = ["level", "counted by", *(["mean count"] if has_means else []), "19 of 20 are within"]
    return TextTable([*heads, *(f"a count of {count:,}" for count in _EXAMPLES), "more than noise above"], rows)


def _example(count: int, part: PlannedPart, worth: LevelWorth | None) -> str:
    if worth is None or worth.within is None:
        return "–"
    if not worth.within:
        return f"{count:,}"
    if part.threshold and count + worth.within < part.threshold:
        return "left out"
    return f"{max(0, count - worth.within):,} to {count + worth.within:,}"


def _called(spec: Spec, total: PlannedPart, level: str) -> str:
    """Return what readers call a level that the spec names without its axis."""
    words = (level_called(spec, axis, level) for axis in total.axes)
    return next((word for word in words if word != level), level)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value that is in a value of JSON, as text, with the keys that lead to it."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Mapping | Sequence) and not value:
        yield path, "none"
    else:
        yield path, (value if isinstance(value, str) else json.dumps(canonical(value), ensure_ascii=False))
