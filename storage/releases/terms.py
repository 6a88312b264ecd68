"""The terms of a release: what was decided before anything was drawn, for the whole release and for each level."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from storage.errors import StoreError

# what a mechanism may waive: that counts are above zero, so that a row left out is a 0; that a public total is met
COUNTS_POSITIVE, FIXED_TOTAL = "counts_positive", "fixed_total"

Covariance = Literal["", "tree", "grid", "views", "dense"]
TREE: Covariance = "tree"  # the covariance of counts that come from all nodes of a tree by least squares
GRID: Covariance = "grid"  # of counts that come from all combinations of nodes of the axes
VIEWS: Covariance = "views"  # of counts that come from all nodes of a tree and all cells of views beside it
DENSE: Covariance = "dense"  # of counts that come from whole-number combinations of all leaves of axes

# Which cells a mechanism with a second pass measures: those below what survives the first pass; all; or all but those of the
# finest level, where they are the children of what survives.
Measure = Literal["survivors", "all", "above"]
SURVIVORS: Measure = "survivors"
ALL: Measure = "all"
ABOVE: Measure = "above"


def complete_level(measure: Measure, finest: int) -> int:
    """Return the finest level of which every cell is measured whatever survives; 0 where there is none but the root."""
    return {ALL: finest, ABOVE: finest - 1}.get(measure, 0)


# how most mechanisms count, in words that follow "the noise in one measurement,"
ADJUSTED = "before the counts were adjusted to add up"

DEFAULT_FOR_SIZES = "group_sizes"  # the mechanism of group sizes, where a spec names none
SIGNAL_RATE = 0.1  # of rows that stand out, where a spec says nothing

# the rows of levels: all in one table, or beside it also those that stand out in another
PublishedRows = Literal["all", "signal"]

Format = Literal["parquet", "csv", "xlsx", "omx", "geoparquet", "sdmx"]  # kinds of files in which counts are published

# stands for the hash of a codebook where there is none: the codes of an axis are then those that are published
RELEASED_CODES = "from the released counts"


class Privacy(BaseModel):
    """The guarantee: (ε, δ)-differential privacy for one unit under one neighbouring relation.

    Attributes:
        unit: who or what is protected, in words.
        neighbours: the change that the counts must hide: `substitution` or `add_remove`.
        max_records_per_unit: the most records that one unit has.
        exact_records_per_unit: whether every unit has exactly `max_records_per_unit`, so that the total is public.
        distinct: the level at which a unit's records lie in distinct cells; None without that promise.
        bounded_by: what ensures the bound: `ingest`, which left out records beyond it, or the data owner's `promise`.
        epsilon: ε of the whole release.
        delta: δ of the whole release.
        rho: ρ of all discrete Gaussians together; 0 if there are none.
        accountant: the accountant that derives (ε, δ) from the noise.
        sampler: the sampler that drew the noise.
        tau: an upper bound on the distance between its draws and the stated noise, in total variation over all the cells that one unit
            can touch; its cost is taken off delta.
        statement: the guarantee in words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    unit: str
    neighbours: str
    max_records_per_unit: int
    exact_records_per_unit: bool
    distinct: str | None
    bounded_by: Literal["ingest", "promise"]
    epsilon: float
    delta: float
    rho: float
    accountant: str
    sampler: str
    tau: float
    statement: str


class Intervals(BaseModel):
    """The intervals that a release states. Each level says what those in its table promise.

    The interval of a question that was fixed beforehand covers its true count with the stated probability, over all noise.

    Attributes:
        confidence: that probability, 1 − α.
        simultaneous: whether the tables also have intervals that cover the true counts of all cells of all levels at once.
        rounded: whether the ends are multiples of the noise's sigma, rounded up, because the spec does not keep noisy counts.
        signal_rate: of a level's rows with `signal`, the share that is expected to have a true count of 0 at most.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    confidence: float
    simultaneous: bool = False
    rounded: bool = False
    signal_rate: float = SIGNAL_RATE


@dataclass(frozen=True, slots=True)
class TableTerms:
    """A public table, as it was when the release was reserved: its path, or its location in a database, without credentials."""

    location: str
    sha256: str


@dataclass(frozen=True, slots=True)
class FileTerms:
    """Where the spec and the public tables, by the keys that name them, were when the release was reserved, to notice changes.

    Nothing of it is published.
    """

    spec: str
    tables: Mapping[str, TableTerms]


@dataclass(frozen=True, slots=True)
class ViewTerms:
    """A view that a release publishes beside its levels.

    Attributes:
        number: by which charges and seals know it; that of a level where it has the cells of one.
        levels: per axis, the axis level of its cells; 0 where the axis is left out.
    """

    name: str
    number: int
    levels: tuple[int, ...]
    derived: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DerivedTerms:
    """A derived column: the axis levels on which it depends, by the number of the axis, and the sha256 of its public table."""

    name: str
    of: tuple[tuple[int, int], ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class RunTerms:
    """How a release runs; nothing that it publishes depends on this.

    Attributes:
        workers: what branches are walked in: `threads`, `processes` or `dask`.
        max_memory: bytes for the arrays of all branches that are walked at once; None for a quarter of the machine.
    """

    workers: str
    max_memory: int | None


class Counted:
    """What follows from how counts come about, as the terms and the manifest of a release state it.

    Attributes:
        covariance: by which rule the variance of any sum of counts follows from the noise of the levels; empty where by none.
        statistic: of group sizes, what is measured of each region and size: `tails`, `sizes` or `chain`; empty for others.
        cascades: the axes of which nodes of a level are measured more or less precisely, by their own fan-outs.
        views: the groupings beside the tree.
    """

    __slots__ = ()
    if TYPE_CHECKING:  # they are fields of its subclasses, one of which is read by pydantic
        covariance: Covariance
        statistic: str
        cascades: Sequence[str]
        views: Any

    @property
    def is_unbiased(self) -> bool:
        """Whether counts are unbiased estimates, whose standard deviations are known."""
        return bool(self.covariance)

    @property
    def is_grid(self) -> bool:
        """Whether they come from all combinations of levels of the axes."""
        return self.covariance == GRID or (self.covariance == DENSE and bool(self.views))

    @property
    def crosses(self) -> bool:
        """Whether what they come from by least squares is no tree alone, so that errors of different cells may be positively correlated."""
        return self.covariance in {GRID, VIEWS, DENSE}

    @property
    def counts_groups(self) -> bool:
        """Whether groups are counted, by their sizes, and not records."""
        return bool(self.statistic)

    @property
    def measured_of_groups(self) -> str:
        """What is measured of each region and size: `tails`, `sizes` or `chain`; empty where no groups are counted."""
        return self.statistic

    @property
    def rules(self) -> dict[str, Any]:
        """These rules, as a manifest states them."""
        return {"covariance": self.covariance, "statistic": self.statistic, "cascades": [*self.cascades]}


@dataclass(frozen=True, slots=True)
class Terms(Counted):
    """What the stages need to know of a release. Everything here is public but `files`.

    Attributes:
        steps: the order of refinement: the number of the axis that each level refines.
        mechanism_reason: why Trellis chose the mechanism; empty where the spec names it.
        priority: which of equally good counts the optimiser takes; None for its first choice.
        keep_vault: whether the true counts are kept after publication.
        keep_noisy_counts: whether the sealed noisy counts are kept after publication.
        published_spec: the spec as it is published, without paths.
        unprotected: what is published exactly, in words.
        codebooks: per axis, the sha256 of its codebook, or `from the released counts`.
        unlisted: the axes whose codes no codebook lists.
        waived: what the mechanism cannot meet by nature.
        how_counted: how its counts come from measurements, in words that follow "the noise in one measurement,".
        csv: whether the finest level is published as CSV too, or every level is; None where the number of rows decides.
        records: whether the finest level is published as synthetic records too.
        noisy_counts: whether the sealed noisy counts are published; None where the number of cells decides.
        different_people: whether the data owner says that the table holds other people than the datasets that used it before.
        series: the id of the declared series that the release belongs to; empty where it stands alone.
        views: the groupings beside the tree, in the order of the spec.
        covariance: by which rule the variance of any sum of counts follows from the noise of the levels; empty where by none.
        statistic: of group sizes, what is measured of each region and size, by its name; empty where that is the count that is released.
        cascades: the axes of which nodes of a level are measured more or less precisely, by their own fan-outs.
        rows: whether the rows that stand out are published in tables of their own too.
        measure: which cells of a tree are measured, where a mechanism has a second pass; `survivors` of all others.
        formats: more kinds of files for the counts, beside Parquet and CSV.
        strategy: the rows that strategies measure of axes, as text; empty where levels and views are measured.
        days: the whole weights of this day and those before it in what a series measures; empty where each release stands alone.
    """

    axes: tuple[str, ...]
    steps: tuple[int, ...]
    mechanism: str
    priority: str | None
    sampler: str
    keep_vault: bool
    keep_noisy_counts: bool
    published_spec: Mapping[str, Any]
    unprotected: tuple[str, ...]
    codebooks: Mapping[str, str]
    unlisted: tuple[str, ...]
    waived: tuple[str, ...]
    csv: bool | Literal["every_level"] | None
    records: bool
    noisy_counts: bool | None
    intervals: Intervals
    privacy: Privacy
    run: RunTerms
    files: FileTerms
    how_counted: str = ADJUSTED
    different_people: bool = False
    series: str = ""
    views: tuple[ViewTerms, ...] = ()
    derived: tuple[DerivedTerms, ...] = ()
    covariance: Covariance = ""
    statistic: str = ""
    cascades: tuple[str, ...] = ()
    rows: PublishedRows = "all"
    measure: Measure = SURVIVORS
    formats: tuple[Format, ...] = ()
    strategy: str = ""
    days: tuple[int, ...] = ()
    mechanism_reason: str = ""

    def to_json(self) -> str:
        """Return these terms as the store keeps them."""
        return json.dumps(asdict(self), default=BaseModel.model_dump)

    @classmethod
    def from_json(cls, text: str) -> "Terms":
        """Return the terms that the store keeps.

        Raises:
            StoreError: a key is unknown or missing.
        """
        content = _checked(cls, {"mechanism_reason": ""} | json.loads(text), "terms")  # older stores have none
        parts = {"intervals": Intervals, "privacy": Privacy, "run": RunTerms, "files": FileTerms}
        content |= {name: kind(**_checked(kind, content[name], f"terms.{name}")) for name, kind in parts.items()}
        content |= {
            name: tuple(content[name])
            for name in ("axes", "steps", "unprotected", "unlisted", "waived", "cascades", "formats", "days")
        }
        tables = content["files"].tables
        content["files"] = replace(
            content["files"],
            tables={
                key: TableTerms(**_checked(TableTerms, tables[key], f"terms.files.tables.{key}")) for key in tables
            },
        )
        content["views"] = tuple(
            ViewTerms(of["name"], of["number"], tuple(of["levels"]), tuple(of["derived"]))
            for of in (_checked(ViewTerms, view, "terms.views") for view in content["views"])
        )
        content["derived"] = tuple(
            DerivedTerms(of["name"], tuple((axis, level) for axis, level in of["of"]), of["sha256"])
            for of in (_checked(DerivedTerms, column, "terms.derived") for column in content["derived"])
        )
        return cls(**content)


def _checked(kind: type[Any], content: Any, place: str) -> dict[str, Any]:
    """Return the JSON of a value of a kind, if it has the kind's fields and no others."""
    if not isinstance(content, dict):
        raise StoreError(f"{place} must be an object.", field=place)
    wanted = set(kind.model_fields) if issubclass(kind, BaseModel) else {field.name for field in fields(kind)}
    for wrong, names in (("lacks", wanted - content.keys()), ("has the unknown", content.keys() - wanted)):
        if names:
            raise StoreError(
                f"{place} {wrong} {', '.join(sorted(names))}.",
                field=place,
                hint="Use the Trellis that wrote this store.",
            )
    return dict(content)
