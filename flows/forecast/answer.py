"""The forecast of a planned release: its levels and cost, what its people have spent, its disk use and its days."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice

from flows.forecast.remarks import remarks
from flows.forecast.values import (
    BudgetForecast,
    DeviationsOfDays,
    DiskUse,
    Forecast,
    LawForecast,
    MeasuredTogether,
    PlannedDays,
    PlannedPart,
    RangesBeside,
    RangesForecast,
    TargetCost,
    TypicalCells,
    planned_measure,
)
from flows.forecast.worth import finest_above, left_after, planned_margins
from flows.planning.admission import Admission, admission, series_to_come
from flows.planning.approval import approval_of
from flows.planning.compatibility import guarantees
from flows.planning.composition import composed_epsilon, releases_within
from flows.planning.guarantee import guarantee_for
from flows.planning.plan import Plan
from flows.planning.views import settling_memory
from flows.specification.file import SpecFile, is_same_spec
from flows.specification.sections.privacy import Target
from flows.specification.sections.schedule import days, days_of_series, scheduled_id
from storage.counts.published import published_total
from storage.database.connections import Connection, store
from storage.errors import SpecError, UsageError
from storage.ledger.accounts import Cap, Series
from storage.ledger.books import Books
from storage.ledger.spending import CapTerms, Cost, Spending, claimed_units, for_one_unit
from storage.releases.parts import Part
from storage.releases.register import specs_of
from storage.releases.terms import complete_level
from storage.tables import SIGNAL
from tasks.accounting.conversions import float_above
from tasks.folder.export.formats import too_many_zones, zones_of_matrices
from tasks.folder.export.matrices import MOST_ZONES, cells_of_matrices
from tasks.folder.export.workbook import MOST_ROWS as MOST_SHEET_ROWS
from tasks.laws.law import LevelNoise
from tasks.laws.named import noise_of
from tasks.tree.order import Tree
from tasks.uncertainty.bounds import records_above_noise
from tasks.uncertainty.intervals import margins_of
from tasks.uncertainty.sources import for_every_level, own_levels
from tasks.validate.size import bytes_of_formats, disk_size, expected_cells, expected_leaves

_NUMBERS_BYTES = 15.0  # of a row's numbers as text
_NEXT_DAYS = 3  # of a schedule without an end that a plan shows


def plan_answer(plan: Plan, target: Target | None = None) -> Forecast:
    """Return the forecast of a planned release, and what an error bound takes, where one is asked for."""
    spec, guarantee = plan.file.spec, plan.guarantee
    is_series = spec.schedule is not None and spec.schedule.until is not None
    with store() as con:
        to_come = series_to_come(con, plan) if is_series else None
        admitted = admission(con, plan, plan.place_of_table)
        admitted.check("supersedes")
        books = admitted.books
        total, source = _public_total(con, books, plan)
        repeated = _repeated(con, plan)
    schedule = _schedule(plan, to_come if is_series else admitted.series)
    return Forecast(
        name=spec.name,
        dataset=spec.dataset,
        supersedes=spec.supersedes,
        mechanism=plan.mechanism.name,
        mechanism_reason=plan.default.reason if plan.default else None,
        neighbours=spec.privacy.neighbours,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        rho=float(guarantee.rho),
        accountant=guarantee.accountant.name,
        law=plan.law,
        laws=_laws(plan, admitted.terms.cap),
        sampler=spec.noise.sampler,
        tau=float_above(guarantee.tau),
        statement=plan.statement(),
        levels=_planned_parts(plan, plan.levels, total),
        views=_planned_parts(plan, plan.views, total),
        order=plan.chosen,
        margins=planned_margins(plan),
        measure=planned_measure(plan),
        confidence=spec.release.intervals.confidence,
        is_grid=plan.scheme.is_grid,
        ranges=_ranges(plan),
        ranges_beside=[RangesBeside(*of) for of in plan.scheme.ranges_beside(plan.guarantee.noises)],
        rows=spec.release.rows,
        unprotected=plan.unprotected,
        unlisted=plan.file.spec.unlisted,
        curve=guarantee.curve(),
        typical=_typical(plan, total, source),
        disk=_disk(plan, books, total),
        settling_memory=settling_memory(plan.scheme),
        schedule=schedule,
        remarks=[*remarks(plan, total, admitted.terms.cap)],
        caution=" ".join(filter(None, (plan.mechanism.caution, repeated))),
        warnings=_warnings(plan, admitted.others),
        budget=_budget_summary(plan, admitted, schedule),
        approval=approval_of(plan, admitted.terms, admitted.account),
        for_=_target_cost(plan, target) if target else None,
    )


def _planned_parts(plan: Plan, parts: Sequence[Part], total: int | None) -> list[PlannedPart]:
    """Return what is planned of the levels, or of the views beside them."""
    confidence, mechanism = plan.file.spec.release.intervals.confidence, plan.mechanism
    is_beside = any(part.level > plan.tree.depth for part in parts)
    if (
        mechanism.adds_up_leaves
        or mechanism.settles_together
        or mechanism.of_groups
        or (is_beside and not mechanism.is_unbiased)
    ):
        return [_planned(plan, part, total, None) for part in parts]
    if plan.mechanism.is_unbiased:  # the cells of a level may have different ones
        counts = plan.scheme.released(plan.guarantee.noises, confidence)
        return [
            replace(
                _planned(plan, part, total, counts.widest_margin(view)),
                deviations=dict(zip(("least", "most"), counts.deviations(view), strict=True)),
            )
            for part, view in ((part, plan.scheme.view(part.level)) for part in parts)
        ]
    own = [noise_of(level) for level in own_levels(plan.levels)]
    margins = for_every_level(plan.levels, margins_of(own, confidence))
    return [_planned(plan, part, total, margins[part.level].own) for part in parts]


def _ranges(plan: Plan) -> RangesForecast | None:
    """Return how exact ranges will be, and how near to the optimum, where a strategy measures them."""
    found = plan.scheme.ranges(plan.guarantee.noises)
    return None if found is None else RangesForecast(*found)


def _planned(plan: Plan, part: Part, total: int | None, half_width: int | None) -> PlannedPart:
    possible = part.possible_cells
    return PlannedPart(
        **part.stated,
        possible_cells=possible,
        half_width=half_width,
        typical_count=total / possible if total is not None and possible is not None else None,
        law=plan.law if part.is_charged else None,
    )


def _laws(plan: Plan, cap: Cap) -> list[LawForecast]:
    """Return what the release would be by every law that its spec allows; nothing where its mechanism has only one."""
    spec, mechanism = plan.file.spec, plan.mechanism
    if len(mechanism.laws) == 1:
        return []
    planned = guarantees(spec, mechanism, plan.tree, plan.whole, plan.scheme.named_views)
    by_law = {name: guarantee for name, _, guarantee in planned} | {plan.law: plan.guarantee}
    return [
        LawForecast(
            law=law,
            is_chosen=law == plan.law,
            sigma=plan.scheme.finest_noise(by_law[law].noises).sigma,
            epsilon=by_law[law].epsilon,
            rho=float(by_law[law].rho),
            releases=releases_within(cap, plan.spending_with(by_law[law])),
        )
        for law in mechanism.laws
        if law in by_law
    ]


def _repeated(con: Connection, plan: Plan) -> str:
    """Return a note where the same spec was released before, without a schedule and without superseding a release."""
    if not (same := made_before(con, plan.file, "published")):
        return ""
    return (
        f"{same} was released from the same spec. Another release is a new measurement and is charged again. To replace"
        f" that release, add supersedes: {same} to the spec."
    )


def made_before(con: Connection, file: SpecFile, *states: str) -> str:
    """Return the latest release that was made from the same spec and has one of some states; empty with a schedule, or where one is superseded."""
    spec = file.spec
    if spec.schedule or spec.supersedes:
        return ""
    known = specs_of(con, spec.dataset, states)
    return next((id_ for id_, text in reversed(known) if is_same_spec(text, file.text)), "")


def _target_cost(plan: Plan, target: Target) -> TargetCost:
    """Return what an error bound takes; what is wrong with it is the fault of `--for`, not of the spec."""
    try:
        wanted = guarantee_for(plan.scheme, target)
    except SpecError as fault:
        of_target = fault.field.startswith("privacy.target")
        message = str(fault).removeprefix(fault.field) if of_target else f": {fault}"
        raise UsageError(f"--for{message}", field="--for", hint=fault.hint) from None
    except ValueError as fault:
        raise UsageError(f"--for: {fault}", field="--for") from None
    return TargetCost(target.level, target.max_error, target.confidence, wanted.epsilon, float(wanted.rho))


def _public_total(con: Connection, books: Books, plan: Plan) -> tuple[int | None, str]:
    """Return a public guess of the total and where it is from: the spec, or the last release about the same people."""
    spec = plan.file.spec
    if spec.expected_total is not None:
        return spec.expected_total, "expected_total"
    account = books.account(spec.dataset) or books.account(spec.same_people_as)
    for release in reversed(account.claims if account else {}):
        total = published_total(con, release)
        if total is not None:
            return max(total, 0), release  # the sum of noisy leaves may be below zero
    return None, ""


def _typical(plan: Plan, total: int | None, source: str) -> TypicalCells | None:
    if total is None:
        return None
    deviations, cells_of = plan.deviations, {part.level: part.possible_cells for part in plan.parts}
    known = [] if plan.levels[-1].threshold else _possible_cells(plan)
    above = [records_above_noise(total, deviations[level], cells) for level, cells in enumerate(known)]
    rounded = [[round(share, 3) for share in shares] for shares in above]
    named = ((view.name, view.number) for view in plan.named_views)
    below = [name for name, number in named if (cells := cells_of[number]) and total / cells < deviations[number]]
    return TypicalCells(total, source, finest_above(plan, total), rounded, below)


def _possible_cells(plan: Plan) -> list[int]:
    """Return the possible cells of levels 0 to T; nothing where some are unknown."""
    possible = [level.possible_cells for level in plan.levels if level.possible_cells is not None]
    return possible if len(possible) == len(plan.levels) else []


def _disk(plan: Plan, books: Books, total: int | None) -> DiskUse | None:
    """Return the bytes that a release is expected to leave on disk, or may at most where nothing is known of the total.

    None where nothing is known of the codes either.
    """
    possible = _possible_cells(plan)
    if not possible:
        return None
    codes = [codes for axis in plan.tree.axes for codes in axis.codes]
    code_bytes = sum(int(areas.str.len_bytes().sum()) / len(areas) + 1 for areas in codes)
    sigmas = [level.sigma for level in plan.levels]
    if plan.mechanism.adds_up_leaves:
        cells = expected_leaves(possible, total, plan.levels[-1].threshold)
    else:
        cells = expected_cells(possible, sigmas, total, complete_level(plan.measure, plan.tree.depth))
    size = disk_size(
        cells,
        possible,
        sigmas,
        total,
        finest_areas=plan.tree.sizes(plan.tree.depth),
        code_bytes=code_bytes,
        noisy_counts_kept=plan.file.spec.keep_noisy_counts,
        store_is_new=not books.charged_to,
        csv=plan.file.spec.release.as_csv,
        records=plan.file.spec.release.records,
        bounds=4 if plan.file.spec.release.intervals.simultaneous else 2,
        noisy_counts=plan.noisy_counts_asked,
        signal_tables=plan.file.spec.release.rows == SIGNAL,
    )
    more = _bytes_of_formats(plan, [of.nonzero for of in cells], code_bytes)
    return DiskUse(size.shards, size.published + more, size.store, size.total + more, size.upper_bound)


def _bytes_of_formats(plan: Plan, rows: list[float], code_bytes: float) -> int:
    """Return the bytes of the files of more kinds, given the rows of each level and the bytes of the codes of one."""
    formats = plan.file.spec.release.more_formats
    return bytes_of_formats(
        formats,
        rows,
        zones_of_matrices(plan.tree) if "omx" in formats else {},
        areas=sum(len(codes) for axis in plan.tree.axes for codes in axis.codes),
        row_bytes=code_bytes + _NUMBERS_BYTES,
        most_sheet_rows=MOST_SHEET_ROWS,
    )


def _schedule(plan: Plan, declared: Series | None) -> PlannedDays | None:
    """Return the days of a schedule: those that a series was declared for, or would be, or else the next ones."""
    spec, keys = plan.file.spec, plan.file.spec.schedule
    if keys is None:
        return None
    now = datetime.now(UTC)
    if declared:
        ids: list[str] = list(declared.releases)
    elif keys.until:
        ids = [scheduled_id(spec.name, day) for day in days_of_series(keys.cron, keys.timezone, keys.until, now)]
    else:
        ids = [scheduled_id(spec.name, day) for day in islice(days(keys.cron, keys.timezone, now), _NEXT_DAYS)]
    return PlannedDays(keys.cron, keys.timezone, keys.until, declared is not None, ids, _together(plan))


def _together(plan: Plan) -> MeasuredTogether | None:
    """Return what a series gains that measures its days together; None for others."""
    scheme, days, many = plan.scheme, plan.scheme.days, plan.guarantee.before + 1
    if days is None:
        return None

    def deviations(day: Callable[[float], float], cumulative: Callable[[float], float]) -> DeviationsOfDays:
        found = [
            scheme.released([LevelNoise(scheme.law, of(drawn.sigma)) for drawn in plan.guarantee.measurements])
            for of in (day, cumulative)
        ]
        return DeviationsOfDays(*(of.deviations(scheme.view(plan.tree.depth))[1] for of in found))

    alone, root = days.square**-0.5, many**0.5  # of one day with the whole ρ, in units of the scale
    return MeasuredTogether(
        plan.tree.depth,
        len(days.weights),
        deviations(
            lambda scale: days.deviation(scale, many - 1), lambda scale: days.cumulative_deviation(scale, [many])
        ),
        deviations(lambda scale: scale * alone * root, lambda scale: scale * alone * many),
        deviations(lambda scale: scale * alone, lambda scale: scale * alone * root),
    )


def _warnings(plan: Plan, users: Sequence[str]) -> list[str]:
    of_table = [
        f"input.table was used by dataset {user}. Add same_people_as: {user} to the spec, or release with"
        " --different-people if the table holds other people."
        for user in users
    ]
    return of_table + [
        f"release.formats: omx leaves out level {level}, which has {_zones_and_codes(plan.tree, level)}; a matrix has at most"
        f" {MOST_ZONES:,} zones, and fewer where there is one for each code."
        for level in too_many_zones(plan.file.spec.release.formats, plan.tree)
    ]


def _zones_and_codes(tree: Tree, level: int) -> str:
    zones, codes = cells_of_matrices(tree, level)
    return f"{zones:,} zones" + (f" and {codes:,} combinations of codes" if codes > 1 else "")


def _budget_summary(plan: Plan, admitted: Admission, scheduled: PlannedDays | None) -> BudgetForecast:
    """Return the cap, what is spent before a release, and what would be after it."""
    before = admitted.account.spendings if admitted.account else []
    cap, cost = admitted.terms.cap, [admitted.charge]
    if scheduled and (scheduled.until or scheduled.declared):
        releases = len(scheduled.releases)
        cost = [] if scheduled.declared else [plan.spending_of_series(releases, cap.delta)]
    after = for_one_unit([*before, *cost])
    return BudgetForecast(
        CapTerms(cap.epsilon, cap.delta, float(cap.rho)),
        before=_composed(after[: len(before)], cap),
        after=_composed(after, cap),
        left=left_after(admitted.charge, after, cap),
        holds_for=claimed_units(
            [spending.contributions for spending in after],
            days_together=plan.guarantee.days is not None or bool(admitted.account and admitted.account.days_together),
        ),
    )


def _composed(spendings: list[Spending], cap: Cap) -> Cost:
    rho = sum((spending.rho for spending in spendings), Fraction(0))
    return Cost(composed_epsilon(spendings, cap.delta, cap), float(rho))
