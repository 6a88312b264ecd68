"""The section `release`: the tree, its finest level, what is published, and in which kinds of files."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from flows.specification.rules import ONE, PER_AXIS, Keys, Name, as_list, no_boolean
from flows.specification.sections.input import GroupSizesKeys
from flows.specification.sections.views import Views
from storage.releases.terms import SIGNAL_RATE, Format, PublishedRows
from tasks.uncertainty.intervals import CONFIDENCE
from tasks.words.areas import GEOMETRY

CsvKeys = Literal[True, False, "every_level"]


def each_once(formats: list[Format]) -> list[Format]:
    """Refuse repeated formats."""
    if len(set(formats)) < len(formats):
        raise ValueError("must list each format once.")
    return formats


def _which_csv(value: object) -> object:
    if not (value is None or isinstance(value, bool) or value == "every_level"):
        raise ValueError(f"must be true, false or every_level, got {value}.")
    return value


class IntervalKeys(Keys):
    """The intervals around released counts.

    Attributes:
        confidence: At least this share of a level's rows is expected, over all noise, to have a true count in the interval.
            The interval of a question that is fixed beforehand covers its true count with at least this probability.
        simultaneous: Whether to also publish intervals that cover the true counts of all cells at once.
    """

    confidence: Annotated[float, BeforeValidator(no_boolean), Field(gt=0, lt=1)] = CONFIDENCE
    simultaneous: Annotated[bool, Field(strict=True)] = False


class ReleaseKeys(Keys):
    """The tree, its finest level, and what is published besides its levels.

    Attributes:
        tree: The end of a trip that is refined first; the two then take turns. Must be given for trips without features, unless
            order or grid is.
        order: The axes in the order in which they are refined: origin and destination, and features. The name of an axis refines it
            through all its levels that are left. axis.level refines it by that level alone, so that several axes may take turns. Must
            be given for features, unless grid is. If left out for trips with features, `trellis plan` chooses it by the codebooks
            and expected_total, and says why.
        grid: All axes of the release, two or more, for sums over sets of areas of several at once, such as ages in a region. All
            combinations of their levels are measured. It needs a mechanism that measures every node, such as unbiased_tree, or
            optimal_ranges. The levels of the axes take turns, those of the first axis here first.
        finest: The finest released level, one for both ends of a trip, or {axis: level} for axes that stop above their finest level.
            Must be given for trips without features, for both ends.
        group_sizes: How many groups of each size there are, in every region, with each value of their attributes. Must be given for group sizes.
        views: Groupings beside the tree that are measured too, or for group sizes are sums, {name: {axis: level}}. An axis that is left out is summed over;
            a derived column counts as an axis. `margins` stands for the totals of every axis at every level, `one_way` for
            those at the finest levels. `attributes` stands for `margins` and, for trips, the totals by each attribute in the coarsest areas of each end and by pairs of up to
            three attributes, as far as they have room; it is what trips with features have where order and views are left out. Other trips
            whose mechanism is left out have `one_way` where Trellis chooses priors. `none` is no views.
        csv: true to also publish the finest level as CSV, every_level for every level, false for none. If left out, the
            finest level is published as CSV if formats lists csv; without formats, if it has at most five million rows.
        records: Whether to also publish the finest level as synthetic records, one row per record.
        intervals: The intervals around released counts.
        signal_rate: Of a level's rows that are marked as standing out from the noise (`signal`), the share that is expected
            to have a true count of 0 at most.
        rows: signal to also publish the marked rows in tables of their own, with a remainder row for what they leave of each
            count above them, so that the rows still add up. all for the full tables alone.
        noisy_counts: Whether to also publish the sealed noisy counts. If left out, they are published if there are at most
            twenty million cells.
        formats: The kinds of files for the counts. parquet is always published. csv is the finest level as CSV. xlsx is a workbook,
            with a sheet for each table. omx is matrices for transport models, for trips. geoparquet is tables with the shapes of
            hierarchy.boundaries. sdmx is SDMX-CSV with its structure. xlsx, omx and sdmx need the extra trellis[formats].
    """

    tree: Literal["destination", "origin"] | None = None
    order: Annotated[list[Name], BeforeValidator(as_list), Field(min_length=1)] | None = None
    grid: Annotated[list[Name], BeforeValidator(as_list), Field(min_length=1)] | None = None
    finest: (
        Annotated[
            Annotated[str, Tag(ONE)] | Annotated[dict[str, str], Tag(PER_AXIS)],
            Discriminator(lambda value: PER_AXIS if isinstance(value, dict) else ONE),
        ]
        | None
    ) = None
    group_sizes: GroupSizesKeys | None = None
    views: Views | None = None
    csv: Annotated[CsvKeys | None, BeforeValidator(_which_csv)] = None
    records: Annotated[bool, Field(strict=True)] = False
    intervals: IntervalKeys = IntervalKeys()
    signal_rate: Annotated[float, BeforeValidator(no_boolean), Field(gt=0, lt=1)] = SIGNAL_RATE
    rows: PublishedRows = "all"
    noisy_counts: Annotated[bool, Field(strict=True)] | None = None
    formats: Annotated[list[Format], AfterValidator(each_once)] = Field(default_factory=list)

    @property
    def as_csv(self) -> CsvKeys | None:
        """Which levels are to be published as CSV; None where that is open, as it is not with a list of formats."""
        return bool("csv" in self.formats) if self.csv is None and self.formats else self.csv

    @property
    def more_formats(self) -> tuple[Format, ...]:
        """The kinds of files beside Parquet and CSV."""
        return tuple(name for name in self.formats if name not in {"parquet", "csv"})

    def faults_of_formats(
        self, columns: Sequence[str], *, has_ends: bool, same_codebook: bool, has_shapes: bool
    ) -> Iterator[str]:
        """Yield what keeps the formats from fitting the rest of a spec, given the published columns of codes."""
        if "csv" in self.formats and self.csv is False:
            yield "release.formats must not list csv where release.csv is false."
        if "omx" in self.formats and not has_ends:
            yield "release.formats must not list omx without input.origin and input.destination: a matrix has trips from zone to zone."
        elif "omx" in self.formats and not same_codebook:
            yield (
                "release.formats must not list omx unless both ends have one hierarchy.table and the same levels: the rows and the columns"
                " of a matrix are the same zones."
            )
        if "geoparquet" in self.formats and not has_shapes:
            yield "release.formats must not list geoparquet without hierarchy.boundaries, which has the shapes of areas."
        elif "geoparquet" in self.formats and GEOMETRY in {column.casefold() for column in columns}:
            yield f"release.formats would give two columns of a published file the name {GEOMETRY}."
