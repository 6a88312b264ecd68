"""The manifest: what a release protects, what it costs, how far off its counts can be, and what made it."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from storage.counts.columns import Role, interval_columns, roles_of
from storage.counts.tables import level_files, level_path
from storage.record import KNOWN_AFTER, ReleasedPart
from storage.releases.parts import DISCRETE_GAUSSIAN
from storage.releases.terms import (
    RELEASED_CODES,
    SURVIVORS,
    Counted,
    Covariance,
    Format,
    Intervals,
    Measure,
    Privacy,
    complete_level,
)
from tasks.laws.named import LAWS
from tasks.words.margins import differing_views, poor_totals

Promise = Literal["rows", "cells"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LevelIntervals(_Part):
    """What the columns `low` and `high` of a level promise.

    Attributes:
        confidence: 1 − α.
        promise: `rows`: of the level's rows, at most a share α is expected to have a true count outside, however they came to be
            rows. `cells`: the interval of a cell that was fixed beforehand covers its true count with a probability of 1 − α.
    """

    confidence: float
    promise: Promise


class Signal(_Part):
    """The rows of a level that stand out from the noise.

    Attributes:
        rows: how many of its rows have `signal`.
        above: a row of the level stands out if its noisy count is above this, records; None where that differs from row to row,
            and where no noise is in the way: at exact levels, and where counts had to reach a threshold.
    """

    rows: int
    above: int | None = None


class SignalTable(_Part):
    """The table of a level's rows that stand out, with remainder rows for what they leave of the counts above them.

    Attributes:
        level: the tree level.
        rows: how many rows it has.
        remainders: how many of them are remainders.
        half_width: how far the intervals of its other rows reach around a noisy count (z), records. On average at most a share α of
            these rows has a true count outside its interval, with the α of `intervals`. They reach at least as far as those of the
            full table. None where no intervals are stated.
    """

    level: int
    rows: int
    remainders: int
    half_width: int | None = None


class NoiseRows(_Part):
    """The share of a level's rows that are noise alone: their true count is 0.

    Attributes:
        estimate: the estimated share. None where the noisy counts agree with shares that are more than 0.2 apart: where the noise is
            large, nothing tells a true count of 1 from one of 0.
        at_most: with 95% probability, the share is no larger.
    """

    estimate: float | None
    at_most: float


class AboveNoise(_Part):
    """What of a level stands above twice its noise, as estimated from the noisy counts.

    Attributes:
        rows: the share of rows whose true count is above twice sigma.
        records: the share of the records in rows that are in such rows.
    """

    rows: float
    records: float


class Deviations(_Part):
    """The standard deviation of the released counts of a level, with the rounding to whole numbers, records.

    Attributes:
        least: of any of its cells.
        most: of any of its cells.
    """

    least: float
    most: float


class LevelEntry(_Part):
    """One level: how much noise its counts have and how far off they can be.

    Attributes:
        level: the tree level; 0 is everything.
        axes: per axis, the name of the level reached; None where the axis is not refined yet.
        cells: how many cells were measured.
        nonzero: how many cells have a released count that is not 0.
        rho: ρ that the level cost; 0 where it was not measured, or costs only (ε, δ).
        l2_sensitivity: how far one unit moves the level's counts, in the Euclidean norm, records.
        derivation: how the sensitivity follows, in words.
        sigma: the standard deviation of the noise; for a summed level, that of its widest cell. 0 where the level is exact, and
            where leaves that did not reach a threshold are missing from its sums, so that none can be stated.
        bound: with 95% probability, every count at this level is within this many records of the true count; None where the
            mechanism states none. It is known before anything is drawn.
        summed: whether nothing was measured at this level. The file leaves it out where the level was measured, and likewise
            leaves out each field below that has its default value.
        same_as: the level above that this one repeats, since each of its cells holds one cell of this level: nothing was
            measured or charged here, and the noise and the bounds are those of that level.
        mechanism: what was drawn, where it costs only (ε, δ).
        epsilon: ε of that, as charged.
        delta: δ of that, as charged.
        scale: the scale of its noise, records; 0 where that is `sigma`, as of a discrete Gaussian that is not tiny.
        threshold: the least noisy count that was kept, records.
        bound_after: the same, known from the released and the noisy counts: with 95% probability, every count at every level is
            within the level's of its true count. None where not every level is measured.
        bias: released minus noisy counts, the mean over the cells that have one, records; it is noisy itself. None where nothing was
            measured, where only counts that reached a threshold were kept, where counts are settled without bias or are of groups,
            and where the spec does not keep noisy counts.
        half_width: z of the interval around the noisy count of a row, records; None where only leaves are measured.
        cap_margin: z', the margin above the noisy count of a cell that limits the cells inside it, in questions that are fixed
            beforehand, records.
        simultaneous_half_width: z of the simultaneous intervals, where they are published.
        intervals: what `low` and `high` promise; None where none are stated.
        signal: the rows that stand out from the noise; None where no row does.
        noise_rows: how many rows are noise alone; None where there is no row, or counts had to reach a threshold.
        above_noise: how much stands above the noise; None likewise.
        view: the name of the view that has the cells of this level; empty for others.
        source: where everything was settled together, the level or view from whose noisy counts the intervals follow.
        deviations: the standard deviations of its released counts; None where counts are not unbiased estimates.
        parts: how many files hold the rows of a large level, one after the other: `counts/level_<k>/part-0000.parquet` and so on.
            0 where one file does, `counts/level_<k>.parquet`.
    """

    level: int
    axes: dict[str, str | None]
    cells: int
    nonzero: int
    rho: float
    sigma: float
    l2_sensitivity: float
    derivation: str
    bound: float | None
    summed: bool = False
    same_as: int | None = None
    mechanism: str = DISCRETE_GAUSSIAN
    epsilon: float = 0.0
    delta: float = 0.0
    scale: float = 0.0
    threshold: int = 0
    bound_after: int | None = None
    bias: float | None = None
    half_width: int | None = None
    cap_margin: int | None = None
    simultaneous_half_width: int | None = None
    intervals: LevelIntervals | None = None
    signal: Signal | None = None
    noise_rows: NoiseRows | None = None
    above_noise: AboveNoise | None = None
    view: str = ""
    source: int | None = None
    deviations: Deviations | None = None
    parts: int = Field(default=0, ge=0)

    @property
    def path(self) -> str:
        """The path of the level in the folder: that of its file, or of the folder of its parts."""
        return level_path(self.level, self.parts)

    @property
    def files(self) -> list[str]:
        """The paths of its files in the folder, in the order of their rows."""
        return level_files(self.level, self.parts)

    @field_validator("mechanism")
    @classmethod
    def _has_a_law(cls, name: str) -> str:
        if name not in LAWS:
            raise ValueError(f"there is no noise law {name}.")
        return name

    @model_validator(mode="after")
    def _has_the_threshold_of_its_law(self) -> Self:
        if bool(self.threshold) != LAWS[self.mechanism].keeps_some:
            raise ValueError(f"noise law {self.mechanism} has {'no' if self.threshold else 'a'} threshold.")
        return self


class Difference(_Part):
    """How far the counts of a view are from the sums of the finest level's, over all its cells.

    Attributes:
        largest: the largest distance, records.
        mean: the mean distance, records.
    """

    largest: int
    mean: float


class ViewEntry(LevelEntry):
    """A view: a grouping beside the tree, whose counts are sums of the finest level's, unless it states how far they differ.

    The fields are those of a level. A view that has the axis levels of a tree level is the same as that one: its number is the level's,
    and what it cost is stated there. A view that has the cells of a level by the codebooks alone has a number of its own. It is
    `summed`, since nothing is measured for it, and its `source` is that level.

    Attributes:
        name: as the spec names it, and the name of its table.
        differs: how far its counts are from the sums of the finest level's, where these could only be calibrated to it, since
            there were too many leaves to settle everything together; otherwise None, and they are these sums.
    """

    name: str = Field(min_length=1)
    differs: Difference | None = None


class DerivedEntry(_Part):
    """A column that is a public function of the axes.

    Attributes:
        of: the columns of codes on which it depends.
        sha256: the hash of the table from which it was read.
    """

    of: list[str] = Field(min_length=1)
    sha256: str


class Rounding(_Part):
    """How far rounding to whole counts has moved what was settled together.

    Attributes:
        exact: whether every count of everything that was measured is less than 1 from what its cell added up to before.
        deviation: the largest such distance, records, by the name of each view that was measured; `level_<k>` for level k.
    """

    exact: bool
    deviation: dict[str, float]


class PoorMargin(_Part):
    """The totals of one axis at one of its levels, where nothing measures them by itself.

    Attributes:
        margin: their name: that of the level's column of codes.
        expected_error: the mean absolute noise of the best sum of measurements for one of them, before counts are settled, records. The
            released sums are usually nearer to the truth. They are further from it where many small counts ended at zero.
    """

    margin: str = Field(min_length=1)
    expected_error: float


class SealEntry(_Part):
    """The hash of the sealed noisy counts of one level of one branch.

    Attributes:
        level: the tree level.
        branch: the name of the branch; `trunk` for what is above all branches.
        sha256: the hash of the shard.
    """

    level: int
    branch: str
    sha256: str


class LedgerHead(_Part):
    """The state of the ledger when the release was published; the hash of the first event identifies the ledger.

    Attributes:
        head: the hash of its last event.
        length: how many events it had.
        first: the hash of its first event.
    """

    head: str
    length: int
    first: str


class Manifest(_Part, Counted):
    """The content of `manifest.json`. All of it is public.

    Attributes:
        id: the release's id.
        spec: the spec as written, with file names in place of paths.
        unprotected: what is published exactly, in words.
        levels: levels 0 to the finest.
        mechanism: the mechanism, as the spec names it.
        seals: the seal of every shard of noisy counts.
        versions: the versions of the packages that made the release.
        codebooks: per axis, the sha256 of its codebook, or `from the released counts` where none lists its codes.
        csv: whether the finest level is also published as CSV, or `every_level` if all levels are. The file leaves out True.
        waived: the rules that the mechanism cannot meet by nature, such as `counts_positive`. The file leaves out an empty list.
        covariance: by which rule the variance of any sum of released counts follows from the sigmas of the levels: `tree`. The counts are
            the least-squares estimate from independent counts of all nodes, with 1/scale² as precision (1/sigma² where no scale is stated,
            0 for summed levels, infinite for exact ones), whose sums over the first leaves were rounded; that adds 1/6 to the variance of any range of leaves that are adjacent in the order of the tree. With `grid` they come from all
            pairs of levels of two axes, each with a product of precisions; rounding adds 1/3 to the variance of any rectangle
            (docs/uncertainty.md). The file leaves it out where counts are not such estimates.
        statistic: of group sizes, what was measured of each region and size: `tails`, the groups of at least this size; `sizes`, those
            of this size; `chain`, the groups of a larger size, or of this size in this region or a later one. The noisy counts are of
            that. The file leaves it out for other releases.
        measure: which cells of the tree were measured, where the mechanism has a second pass: `all`, every cell of every level; `above`,
            every cell of the levels above the finest, and at the finest the children of what survived there. The file leaves out
            `survivors`: the children of what survived at every level.
        records: the format of the synthetic records, `csv` or `parquet`, or `left out` where the spec asks for more than can be
            written. None, and left out of the file, where the spec does not ask for them.
        intervals: those in the tables.
        noisy_counts: whether the sealed noisy counts are published. The file leaves out False.
        supersedes: the release that this one replaces; None, and left out of the file, if there is none.
        views: the groupings beside the tree. The file leaves out an empty list.
        derived: the derived columns of the views, by name. The file leaves it out if there are none.
        poor_margins: the totals of one axis that nothing measures by itself. The file leaves out an empty list.
        rounding: how far rounding has moved the counts, where everything was settled together; None, and left out of the file,
            elsewhere.
        signal_tables: the tables of the rows that stand out, of levels 1 to the finest. The file leaves out an empty list.
        names: per axis, the levels whose areas have names, in `names/<column of codes>.parquet`. The file leaves it out if there are none.
        boundaries: per axis, the levels whose areas have shapes. The file leaves it out if there are none.
        formats: the kinds of files beside Parquet and CSV in which the counts are published. The file leaves out an empty list.
        left_out: per kind of these files, the tables that are too large for it, by their paths. The file leaves it out if there are none.
    """

    id: str
    spec: dict[str, Any] = Field(min_length=1)
    privacy: Privacy
    unprotected: list[str]
    levels: list[LevelEntry] = Field(min_length=1)
    mechanism: str
    codebooks: dict[str, str] = Field(min_length=1)
    seals: list[SealEntry] = Field(min_length=1)
    ledger: LedgerHead
    versions: dict[str, str] = Field(min_length=1)
    csv: bool | Literal["every_level"] = True
    waived: list[str] = []
    covariance: Covariance = ""
    statistic: str = ""
    measure: Measure = SURVIVORS
    records: Literal["csv", "parquet", "left out"] | None = None
    intervals: Intervals
    noisy_counts: bool = False
    supersedes: str | None = None
    views: list[ViewEntry] = []
    derived: dict[str, DerivedEntry] = {}
    poor_margins: list[PoorMargin] = []
    rounding: Rounding | None = None
    signal_tables: list[SignalTable] = []
    names: dict[str, list[str]] = {}
    boundaries: dict[str, list[str]] = {}
    formats: list[Format] = []
    left_out: dict[Format, list[str]] = {}

    @property
    def roles(self) -> dict[str, Role | None]:
        """The role of each axis; None for a feature."""
        return roles_of(self.levels[0].axes, self.spec, counts_groups=self.counts_groups)

    @property
    def complete(self) -> int:
        """The finest level of which every cell was measured because a second pass reads it, whatever survived; 0 where none was."""
        return complete_level(self.measure, len(self.levels) - 1)

    @property
    def own_views(self) -> list[ViewEntry]:
        """The views that have not the cells of a level, by their numbers."""
        return [view for view in self.views if view.level >= len(self.levels)]

    @property
    def parts(self) -> list[LevelEntry]:
        """All levels and views, by their numbers."""
        return [*self.levels, *sorted(self.own_views, key=lambda view: view.level)]

    @property
    def warning_of_margins(self) -> str:
        """A warning about totals of one axis that nothing measures by itself; empty if there are none."""
        return poor_totals({of.margin: of.expected_error for of in self.poor_margins})

    @property
    def differences(self) -> dict[str, Difference]:
        """How far the sums of the finest level are from the views to which it is calibrated, by the names of the views."""
        return {view.name: view.differs for view in self.own_views if view.differs}

    @property
    def warning_of_views(self) -> str:
        """A warning about the views from which the sums of the finest level differ; empty if there are none."""
        return differing_views({name: (of.largest, of.mean) for name, of in self.differences.items()})

    @property
    def has_sources(self) -> bool:
        """Whether everything that was measured was settled together, and each level and view has a source."""
        return self.levels[0].source is not None

    @property
    def adds_up_leaves(self) -> bool:
        """Whether only leaves were measured, and every count is the sum of their noisy counts."""
        return self.levels[0].summed and not (self.has_sources or self.is_unbiased or self.counts_groups)

    @property
    def sums_of_source(self) -> bool:
        """Whether the sigma of a level that is not measured is that of the widest sum from which its intervals follow."""
        return self.has_sources or self.counts_groups

    @property
    def missing_row(self) -> str:
        """What a row says that the table of a level has not, in words that follow it."""
        if self.levels[-1].threshold:
            return "has no records, or too few for the threshold"
        return "stands for a released count of zero"

    @property
    def finest_drawn(self) -> LevelEntry:
        """The finest level at which noise was drawn; the finest level if none was."""
        return next((entry for entry in reversed(self.levels) if entry.rho or entry.epsilon), self.levels[-1])

    @property
    def has_groups(self) -> bool:
        """Whether a public list says how many groups there are, so that size 0 is released too."""
        of_input = self.spec.get("input")
        return self.counts_groups and isinstance(of_input, dict) and of_input.get("groups") is not None

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of intervals that every table has."""
        return interval_columns(simultaneous=self.intervals.simultaneous)

    @property
    def unlisted(self) -> list[str]:
        """The axes whose codes no codebook lists."""
        return [axis for axis, codebook in self.codebooks.items() if codebook == RELEASED_CODES]

    def text(self) -> str:
        """Return the manifest as it is published, without the fields of the release and of levels that have their default."""
        content = self.model_dump(exclude=_with_default(self, Manifest))
        entries = zip([*self.levels, *self.views], [*content["levels"], *content.get("views", [])], strict=True)
        for level, entry in entries:
            for name in _with_default(level, LevelEntry):
                del entry[name]
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def published_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a published folder; None if it cannot be read."""
    try:
        return Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    except (OSError, ValidationError):
        return None


def entry_fields(part: ReleasedPart) -> dict[str, Any]:
    """Return what an entry states of a level or view besides what is known of its counts, by the names of its fields."""
    stated = {field.name: getattr(part, field.name) for field in fields(part) if field.name not in KNOWN_AFTER}
    return {name: value for name, value in stated.items() if value is not None or name == "bound"}


def _with_default(part: _Part, kind: type[_Part]) -> set[str]:
    return {name for name, field in kind.model_fields.items() if getattr(part, name) == field.default}
