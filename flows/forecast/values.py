"""The forecast of a planned release as a value, what `trellis plan --json` prints, and which cells it would measure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.planning.compatibility import most_measured
from flows.planning.guarantee import CurvePoint
from flows.planning.plan import Plan
from flows.planning.views import ChosenOrder
from storage.ledger.spending import CapTerms, Cost
from storage.releases.approvals import Approval
from storage.releases.parts import StatedPart
from storage.releases.terms import ABOVE, ALL, PublishedRows
from tasks.mechanisms import MECHANISMS
from tasks.words.numbers import format_cells


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPart(StatedPart):
    """What JSON states of a level or a view of a planned release.

    Attributes:
        possible_cells: those that some leaf can be in; None where no codebook lists them.
        half_width: of the interval around the noisy count of a cell that is fixed beforehand, records; None where intervals
            differ from cell to cell. How wide the intervals of rows are depends on how many rows there will be.
        typical_count: of a cell, if a public total were spread evenly; None without such a total.
        law: of the noise, by its name in specs, where the level is measured.
    """

    possible_cells: int | None
    half_width: int | None
    typical_count: float | None
    law: str | None = None


@dataclass(frozen=True, slots=True)
class MeasureForecast:
    """Which cells of the tree would be measured.

    Attributes:
        asked: what the spec asks for: `all`, `survivors` or `auto`; where it says nothing, the default of its mechanism.
        chosen: what follows: `all`, every cell of every level; `above`, every cell of the levels above the finest, and at the finest the
            children of what survives; or `survivors`, the children of what survives at every level.
        measured_cells: how many are measured, on all levels of the tree; None where that depends on what survives.
        rule: why, in words.
    """

    asked: str
    chosen: str
    measured_cells: int | None
    rule: str


@dataclass(frozen=True, slots=True)
class PlannedMargin:
    """The totals of one axis at one of its levels, such as all trips that begin in each zone.

    Attributes:
        axis: its name; `level` is the name of the level, and `cells` how many areas that has.
        expected_error: the mean absolute noise of the best sum of measurements for a total, before counts are settled, where views are
            measured, records: those of the spec, or `views: margins` where it has none. Settled counts are usually nearer to the
            truth, and further from it where many small counts end at zero. None where views cannot be measured.
        without_views: the same error where no views are measured, records.
    """

    axis: str
    level: str
    cells: int
    expected_error: float | None
    without_views: float | None


@dataclass(frozen=True, slots=True)
class LawForecast:
    """What a release would be by one of the noise laws that its mechanism can use.

    Attributes:
        law: by its name in specs.
        sigma: the standard deviation of the noise at the finest level, records.
        epsilon: of the release; `rho` is 0 where the noise costs ε.
        releases: how many such releases fit the cap, with nothing else.
    """

    law: str
    is_chosen: bool
    sigma: float
    epsilon: float
    rho: float
    releases: int


@dataclass(frozen=True, slots=True)
class TypicalCells:
    """What of the counts would stand above twice the noise.

    Attributes:
        total: a public guess of the number of records.
        from_: where the guess is from: `expected_total`, or an earlier release.
        finest_above_noise: the finest level at which the mean count does; None for none.
        records_above: per level the least and the greatest share of records in cells that do, for typical tables: their counts are
            uneven, and few are like the mean. Nothing where a threshold decides, or the number of cells is unknown.
        views_below_noise: the names of the views in which the mean count of a cell is below one standard deviation of the noise.
    """

    total: int
    from_: str
    finest_above_noise: int | None
    records_above: Sequence[Sequence[float]]
    views_below_noise: Sequence[str]


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The bytes that a release would leave on disk; an upper bound where nothing is known of the total."""

    shards: int
    published: int
    store: int
    total: int
    upper_bound: bool


@dataclass(frozen=True, slots=True)
class DeviationsOfDays:
    """Standard deviations of the widest count of the finest level, records.

    Attributes:
        day: of one day, the last one.
        cumulative: of the sum of all days.
    """

    day: float
    cumulative: float


@dataclass(frozen=True, slots=True)
class MeasuredTogether:
    """What a series gains that measures its days together, and what releases would have at the same ρ that each stand alone.

    Attributes:
        level: the finest level, of which the deviations are.
        days: how many days the counts of one sum are of, at most. So many days are the true counts of a day kept.
        together: as planned.
        independent: of releases that share the ρ, since a unit may have its records on every day.
        disjoint: of releases that each cost the whole ρ, which holds for units that have all their records on one day.
    """

    level: int
    days: int
    together: DeviationsOfDays
    independent: DeviationsOfDays
    disjoint: DeviationsOfDays


@dataclass(frozen=True, slots=True)
class PlannedDays:
    """The releases of a schedule.

    Attributes:
        until: where the series ends; None for a schedule without an end.
        declared: whether the series is declared, and so reserved.
        releases: the ids of its releases, or of the next ones of a schedule without an end.
        cumulative: where its days are measured together, what that gains; None elsewhere.
    """

    cron: str
    timezone: str
    until: str | None
    declared: bool
    releases: Sequence[str]
    cumulative: MeasuredTogether | None = None


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """The cap of a dataset's people, and what is spent before and after the planned release.

    Attributes:
        cap: on all releases.
        before: what the earlier ones cost a unit for which the claim holds after the planned release.
        after: the same with the planned release.
        left: the ε of one more release that would fit the cap after that; 0 if none does.
        holds_for: these units, in words.
    """

    cap: CapTerms
    before: Cost
    after: Cost
    left: float
    holds_for: str


@dataclass(frozen=True, slots=True)
class TargetCost:
    """What it costs, in ε at the spec's δ and in ρ, that no count of a level is further off than some records, with a probability."""

    level: str
    max_error: float
    confidence: float
    epsilon: float
    rho: float


@dataclass(frozen=True, slots=True)
class RangesForecast:
    """How exact sums over ranges of codes will be, where one axis is measured for a workload of them.

    Attributes:
        mean: the root of the mean variance of all ranges before rounding, records; `worst` is that of the least exact one.
        gap: by which part the mean variance of the workload exceeds the bound below which no linear mechanism with Gaussian noise goes.
    """

    mean: float
    worst: float
    gap: float


@dataclass(frozen=True, slots=True)
class RangesBeside:
    """How exact ranges of the ordered axes of a grid will be, in an area of a level of each other axis.

    Attributes:
        axes: the level of each other axis; those left out are summed over.
        mean: the root of the mean variance of all ranges before rounding, records.
    """

    axes: Mapping[str, str]
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a release would protect, cost and be worth.

    Attributes:
        mechanism_reason: why Trellis chose it; None where the spec names it.
        law: of the noise, by its name in specs; never `auto`.
        laws: what the release would be by every law that the spec allows, the chosen one among them.
        epsilon: of the release, with `delta`; `rho` is the cost of its discrete Gaussians.
        tau: how far the sampler may be from its law, in total variation.
        statement: the guarantee, in words.
        views: those that have not the cells of a level.
        order: what takes the place of `release.order`, and why; None where the spec has it.
        measure: None where the mechanism has no choice.
        confidence: with which an interval holds the true count.
        is_grid: whether all combinations of levels of the axes are measured; intervals then hold for single cells, not for the rows of a table.
        ranges: None where no single axis is measured for ranges by a strategy.
        ranges_beside: of a grid with ordered axes, by the levels of the others.
        rows: `signal` where the rows that stand out are published in tables of their own too, `all` elsewhere.
        unprotected: what is published exactly, in words.
        unlisted: the axes whose codes no codebook lists.
        curve: the δ that holds at other values of ε.
        typical: None without a public total.
        disk: None where nothing is known of the codes.
        settling_memory: the bytes that settling all levels and views together takes at most; None where nothing is.
        remarks: what weakens the protection, and does not prevent the release, in words.
        caution: what the owner should know before the release; may be empty.
        warnings: what must be settled before the release.
        approval: what `trellis release --approved-plan` holds a release to.
        for_: the cost of an error bound, where one was asked for.
        dry_run: True after a rehearsal.
    """

    name: str
    dataset: str
    supersedes: str | None
    mechanism: str
    mechanism_reason: str | None
    neighbours: str
    epsilon: float
    delta: float
    rho: float
    accountant: str
    law: str
    laws: Sequence[LawForecast]
    sampler: str
    tau: float
    statement: str
    levels: Sequence[PlannedPart]
    views: Sequence[PlannedPart]
    order: ChosenOrder | None
    margins: Sequence[PlannedMargin]
    measure: MeasureForecast | None
    confidence: float
    is_grid: bool
    ranges: RangesForecast | None
    ranges_beside: Sequence[RangesBeside]
    rows: PublishedRows
    unprotected: Sequence[str]
    unlisted: Sequence[str]
    curve: Sequence[CurvePoint]
    typical: TypicalCells | None
    disk: DiskUse | None
    settling_memory: int | None
    schedule: PlannedDays | None
    remarks: Sequence[str]
    caution: str
    warnings: Sequence[str]
    budget: BudgetForecast
    approval: Approval
    for_: TargetCost | None = None
    dry_run: bool | None = None

    def __repr__(self) -> str:
        cost = f"epsilon {self.epsilon:g}, delta {self.delta:g}"
        return (
            f"<plan of {self.name}: {self.mechanism}, {len(self.levels)} levels, {cost}, {len(self.warnings)} warnings>"
        )


def planned_measure(plan: Plan) -> MeasureForecast | None:
    """Return which cells of the tree are measured and why; None where the mechanism has no choice."""
    if not plan.mechanism.chooses_cells:
        return None
    asked = plan.file.spec.measure or MECHANISMS[plan.mechanism.name].measure
    cells = sum(level.possible_cells or 0 for level in plan.levels if level.is_measured)
    return MeasureForecast(
        asked=asked,
        chosen=plan.measure,
        measured_cells=cells if plan.measure == ALL else None,
        rule=_rule(plan, asked, cells),
    )


def _rule(plan: Plan, asked: str, cells: int) -> str:
    """Return what is measured and why, as one sentence without a full stop."""
    tree, spec = plan.tree, plan.file.spec
    finest, above = tree.depth, tree.depth - 1
    most = f"{asked} measures every cell of a level of at most {most_measured(spec):,}"
    has, has_above = (format_cells(tree.possible_cells(level)) for level in (finest, above))
    if plan.measure == ALL:
        return f"every cell of every level is measured, {cells:,} in all: level {finest} has {has} cells, and {most}"
    if plan.measure == ABOVE:
        return (
            f"every cell of levels 0 to {above} is measured, and at level {finest} the children of what survives: level {finest} has"
            f" {has} cells and level {above} has {has_above}, and {most}"
        )
    below = "at every level the children of what survives above it are measured"
    if asked == "survivors":
        return f"{below}: {'the spec asks for that' if spec.measure else 'the spec does not ask for more'}"
    return f"{below}: level {max(above, 1)} has {has_above if above else has} cells, and {most}"
