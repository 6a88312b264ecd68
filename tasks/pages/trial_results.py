"""The results of a comparison of mechanisms: `trellis compare` prints it, and the page of a comparison draws it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tasks.format.stated import TextTable

QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "ranges": "all ranges",
        "prefix": "prefixes",
        "nodes": "nodes",
        "worst_node": "worst node",
        "leaves": "leaves",
        "sets": "dense sets",
    }
)  # about an ordered axis, and what people call them
ABOUT_SUMS: Mapping[str, str] = MappingProxyType(
    {
        "margins": "the mean absolute error of the totals of one axis, as sums of the finest counts",
        "ranges": "the mean absolute error of all ranges of an ordered axis, as sums of the finest counts; where two axes have an order, of"
        " 10,000 ranges of both at once",
    }
)  # what readers add up
ABOUT_RANGES = (
    "exact, from the noise alone, before rounding, records. Ranges are all ranges of the axis, prefixes those that begin with its first"
    " code. The mean is the root of their mean variance. No linear mechanism with Gaussian noise has a smaller mean than “at least” with the"
    " same ρ. Mechanisms whose errors depend on the counts are left out"
)
ABOUT_QUESTIONS = (
    "the root of the mean variance of all such questions, records, computed from the noise alone; rounding adds about 1/6 to the"
    " variance of a range. Nodes are those of every level. A dense set has each leaf with a probability from 1/4 to 1. Mechanisms"
    " are left out whose errors depend on the counts"
)


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean, the least and the most of a measure over the runs."""

    mean: float
    min: float
    max: float

    def written(self, form: Callable[[float], str]) -> str:
        """Return the mean, with the least and the most in brackets, each in a form."""
        return f"{form(self.mean)} [{form(self.min)}, {form(self.max)}]"


@dataclass(frozen=True, slots=True)
class CoverageSpread(Spread):
    """The share of intervals that hold the true count.

    Attributes:
        standard_error: of the mean over the runs; None after a single run.
    """

    standard_error: float | None


@dataclass(frozen=True, slots=True)
class GroupIntervals:
    """The intervals of a group of cells, such as those with one true count.

    Attributes:
        cells: how many the group has, the mean over the runs.
        coverage: None where no run had such a cell.
        width: high − low, records; None where no run had such a cell.
    """

    cells: float
    coverage: CoverageSpread | None
    width: Spread | None


@dataclass(frozen=True, slots=True)
class LevelResult:
    """The errors of one mechanism at one ε and one level, and its intervals there by group of cells.

    Attributes:
        max_absolute: records; likewise `mean_absolute` and `l1`.
        false_discovery: share of the cells with a released count above 0; `false_negative`: share of the true cells.
        intervals: of cells that were fixed beforehand, by group; None where the mechanism states none at this level.
        rows_covered: the share of the published rows whose interval holds the true count; None where no row has one.
        row_width: high − low of the published rows, records; None where no row has an interval.
        false_rows: of the published rows, the share whose true count is 0; None where none is said anything of. A row may have a count
            below 0, which is no discovery.
        false_signal: of the rows that stand out, the share whose true count is 0; None where no row stands out in any run.
        noise_rows: the share of rows whose true count is 0 as the release would estimate it; the true one is `false_rows`.
            Over the runs in which it would estimate one; None where it would in none.
        noise_rows_at_most: what the release would say that it does not exceed; None where it would say nothing.
        bound_after: what the release would say that no error exceeds, known after the draw, records; the largest error is
            `max_absolute`. None where it would say nothing.
        emd: of group sizes, the earth mover's distance from the true ones, records; None for other tables.
        violations: how many counts are below 0, and of how many cells the counts of the next level do not add up to theirs; None for
            views, which are sums.
    """

    level: int
    max_absolute: Spread
    mean_absolute: Spread
    l1: Spread
    false_discovery: Spread
    false_negative: Spread
    intervals: Mapping[str, GroupIntervals] | None
    rows_covered: Spread | None
    row_width: Spread | None
    false_rows: Spread | None
    false_signal: Spread | None
    noise_rows: Spread | None
    noise_rows_at_most: Spread | None
    bound_after: Spread | None
    emd: Spread | None = None
    violations: Spread | None = None

    def measure(self, name: str) -> Spread | None:
        """Return a measure by its name."""
        spread: Spread | None = getattr(self, name)
        return spread


@dataclass(frozen=True, slots=True)
class RangeDeviations:
    """The standard deviations of ranges, exactly, from the noise alone, before rounding, records.

    Attributes:
        mean: the root of their mean variance; `worst` is that of the least exact one.
        at_least: below which no linear mechanism with Gaussian noise has this mean at the same ρ; None where the noise costs no ρ.
    """

    mean: float
    worst: float
    at_least: float | None

    @property
    def gap(self) -> float | None:
        """By which part the mean variance exceeds the bound."""
        return (self.mean / self.at_least) ** 2 - 1 if self.at_least else None


@dataclass(frozen=True, slots=True)
class MechanismResult:
    """What one mechanism did at one ε.

    Attributes:
        sigmas: σ of levels 0 to T, 0 where a level is exact.
        seconds: of one trial.
        utility: the numbers of each measure of the leaves, by measure and number; a number is None where no run has it. Beside those
            that were asked for, `margins` and `ranges` (`ABOUT_SUMS`), where the release has any. None where there is none.
        deviations: by `QUESTIONS`, the root of their mean variance before rounding, records, computed from the noise alone; empty
            without an ordered axis, and where the counts have a part in it.
        of_ranges: of all `ranges` and of those from the first code on, `prefix`; empty without a single ordered axis of at most 2,048
            codes, and where the counts have a part in it.
    """

    mechanism: str
    epsilon: float
    sigmas: Sequence[float]
    seconds: Spread
    levels: Sequence[LevelResult]
    utility: Mapping[str, Mapping[str, Spread | None]] | None = None
    deviations: Mapping[str, float] = field(default_factory=dict)
    of_ranges: Mapping[str, RangeDeviations] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lead:
    """Which mechanism has the least error in something, and by how much.

    Attributes:
        best: the mechanism; of those by which a release can be made, where there are any.
        next: the one that comes next; None where no other was tried.
        ratio: its error over that of the next one, means of the runs; None without a next one, or where that has no error. For ranges
            whose standard deviations are known of all mechanisms, from the noise alone, the ratio of these.
        is_clear: whether the two are more than two standard errors of their difference apart; where deviations are known, whether
            these differ by half a per cent.
    """

    best: str
    next: str | None
    ratio: float | None
    is_clear: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison comes to at one ε.

    Attributes:
        leads: by what the errors are in: the `leaves` (their ℓ₁), `margins` and `ranges`, where there are any.
        text: all of it in one or two sentences, and one more where standard deviations of ranges are known exactly.
    """

    epsilon: float
    leads: Mapping[str, Lead]
    text: str


@dataclass(frozen=True, slots=True)
class MadeUp:
    """How a made-up table was drawn.

    Attributes:
        total: about how many records it has; None, like `skew`, where a public list says how many groups each place has.
        skew: σ of the logarithms of what its leaves expect; of group sizes, of the regions' numbers of groups.
    """

    total: int | None = None
    skew: float | None = None

    @property
    def in_words(self) -> str:
        """What it holds, in words that follow "with"."""
        if self.total is None:
            return "records in nine tenths of the groups of the public list"
        return f"about {self.total:,} records and skew {self.skew:g}"


@dataclass(frozen=True, slots=True)
class ComparedLevel:
    """A level of the table that is compared on.

    Attributes:
        possible_cells: None where the codes come from the records.
        true_cells: how many cells have a true count above zero.
        view: the name of a view, which follows the levels; empty for a level.
    """

    level: int
    axes: Mapping[str, str | None]
    possible_cells: int | None
    true_cells: int
    view: str = ""

    @property
    def label(self) -> str:
        """The name of a view; the number of a level."""
        return self.view or str(self.level)


@dataclass(frozen=True, slots=True)
class TrialResults:
    """The results of a comparison.

    Attributes:
        name: of the spec.
        confidence: with which each interval holds the true count.
        results: per mechanism and ε that could be tried.
        refused: per mechanism that could not be tried, at some ε or at any, why.
        notes: per mechanism for which not all of the spec holds, what was left out, and why.
        folder: where the page and the rows are.
        verdicts: which mechanism is best, at every ε.
        made_up: how the table was drawn, if it is made up; None where a public one was read.
        counted: what is counted: records, or groups.
    """

    name: str
    dataset: str
    delta: float
    neighbours: str
    runs: int
    confidence: float
    levels: Sequence[ComparedLevel]
    results: Sequence[MechanismResult]
    refused: Mapping[str, str]
    notes: Mapping[str, Sequence[str]]
    folder: str
    verdicts: Sequence[Verdict] = ()
    made_up: MadeUp | None = None
    counted: str = "records"

    @property
    def epsilons(self) -> list[float]:
        """Every ε that was tried, in the order of the results."""
        return list(dict.fromkeys(result.epsilon for result in self.results))

    @property
    def mechanisms(self) -> list[str]:
        """Every mechanism that was tried, in the order of the results."""
        return list(dict.fromkeys(result.mechanism for result in self.results))

    @property
    def utilities(self) -> dict[str, list[str]]:
        """The names of the numbers of each measure of the leaves, by measure; none where none was asked for."""
        return {name: [*numbers] for name, numbers in (self.results[0].utility or {}).items()}

    def has(self, measure: str) -> bool:
        """Return whether a measure of levels is above 0 anywhere."""
        spreads = (level.measure(measure) for result in self.results for level in result.levels)
        return any(of and of.max for of in spreads)

    def at(self, epsilon: float) -> list[MechanismResult]:
        """Return the results at one ε."""
        return [result for result in self.results if result.epsilon == epsilon]

    def of_questions(self, epsilon: float) -> list[MechanismResult]:
        """Return the results at one ε of mechanisms that state intervals of questions at some level."""
        return [result for result in self.at(epsilon) if any(level.intervals for level in result.levels)]

    def of_rows(self, epsilon: float) -> list[MechanismResult]:
        """Return the results at one ε of mechanisms that state any intervals, of questions or of published rows."""
        return [
            result
            for result in self.at(epsilon)
            if any(level.intervals or level.rows_covered for level in result.levels)
        ]

    def deviations(self, epsilon: float) -> TextTable:
        """Return the deviations of questions about an ordered axis, of the mechanisms for which they are computed."""
        rows = [
            [result.mechanism]
            + [f"{result.deviations[of]:,.1f}" if of in result.deviations else "" for of in QUESTIONS]
            for result in self.at(epsilon)
            if result.deviations
        ]
        return TextTable(["mechanism", *QUESTIONS.values()], rows)

    def of_ranges(self, epsilon: float) -> TextTable:
        """Return the exact deviations of ranges and prefixes, of the mechanisms for which they are computed."""
        rows = [
            [
                result.mechanism,
                *(
                    "" if value is None else f"{value:,.2f}"
                    for of in result.of_ranges.values()
                    for value in (of.mean, of.at_least, of.worst)
                ),
            ]
            for result in self.at(epsilon)
            if result.of_ranges
        ]
        return TextTable(
            [
                "mechanism",
                *(f"{of}: {what}" for of in ("ranges", "prefixes") for what in ("mean", "at least", "worst")),
            ],
            rows,
        )

    def utility(self, epsilon: float, name: str) -> TextTable:
        """Return the numbers of a measure of the leaves, over the runs; dashes where no run has one."""
        rows = list[list[str]]()
        for number in self.utilities[name]:
            for of in self.at(epsilon):
                spread = of.utility[name][number] if of.utility else None
                found = [f"{of:,.2f}" for of in (spread.mean, spread.min, spread.max)] if spread else ["–"] * 3
                rows.append([number, of.mechanism, *found])
        return TextTable([name, "mechanism", "mean", "least", "most"], rows)
