"""The entries of a manifest: what it states of each level, view and derived column."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from storage.releases.parts import DISCRETE_GAUSSIAN
from storage.tables import level_files, level_path
from tasks.laws.law import LevelNoise
from tasks.laws.named import LAWS, noise_of
from tasks.words.levels import in_short

Promise = Literal["rows", "cells"]


class Section(BaseModel):
    """A section of a manifest: it has the keys that are listed, no others, and is not changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class LevelIntervals(Section):
    """What the columns `low` and `high` of a level promise.

    Attributes:
        confidence: 1 − α.
        promise: `rows`: of the level's rows, at most a share α is expected to have a true count outside, however they came to be
            rows. `cells`: the interval of a cell that was fixed beforehand covers its true count with a probability of 1 − α.
    """

    confidence: float
    promise: Promise


class Signal(Section):
    """The rows of a level that stand out from the noise.

    Attributes:
        rows: how many of its rows have `signal`.
        above: a row of the level stands out if its noisy count is above this, records; None where that differs from row to row,
            and where no noise is in the way: at exact levels, and where counts had to reach a threshold.
    """

    rows: int
    above: int | None = None


class SignalTable(Section):
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


class NoiseRows(Section):
    """The share of a level's rows that are noise alone: their true count is 0.

    Attributes:
        estimate: the estimated share. None where the noisy counts agree with shares that are more than 0.2 apart: where the noise is
            large, nothing tells a true count of 1 from one of 0.
        at_most: with 95% probability, the share is no larger.
    """

    estimate: float | None
    at_most: float


class AboveNoise(Section):
    """What of a level stands above twice its noise, as estimated from the noisy counts.

    Attributes:
        rows: the share of rows whose true count is above twice sigma.
        records: the share of the records in rows that are in such rows.
    """

    rows: float
    records: float


class Deviations(Section):
    """The standard deviation of the released counts of a level, with the rounding to whole numbers, records.

    Attributes:
        least: of any of its cells.
        most: of any of its cells.
    """

    least: float
    most: float


class LevelEntry(Section):
    """One level: how much noise its counts have and how far off they can be.

    Attributes:
        level: the tree level; 0 is everything.
        axes: per axis, the name of the level reached; None where the axis is not refined yet.
        cells: how many cells were measured.
        nonzero: how many cells have a released count that is not 0.
        rho: ρ that the level cost; 0 where it was not measured, or costs only (ε, δ).
        sigma: the standard deviation of the noise; for a summed level, that of its widest cell. 0 where the level is exact, and
            where leaves that did not reach a threshold are missing from its sums, so that none can be stated.
        l2_sensitivity: how far one unit moves the level's counts, in the Euclidean norm, records.
        derivation: how the sensitivity follows, in words.
        bound: with 95% probability, every count at this level is within this many records of the true count; None where the
            mechanism states none. It is known before anything is drawn.
        summed: whether nothing was measured at this level. The file leaves it out where the level was measured, and likewise
            leaves out each field below that has its default value.
        same_as: the level above that this one repeats, since each of its cells holds one cell of this level: nothing was
            measured or charged here, and the noise and the bounds are those of that level.
        mechanism: what was drawn, where it costs only (ε, δ), or days are measured together.
        epsilon: ε of that, as charged.
        delta: δ of that, as charged.
        scale: the scale of its noise, records; 0 where that is `sigma`, as of a discrete Gaussian that is not tiny. Where days are measured
            together, that of what is drawn for their sums, in units of the weights.
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
    def noise(self) -> LevelNoise:
        """The noise of a measured cell; of a summed one that of its widest cell."""
        return noise_of(self)

    @property
    def is_exact(self) -> bool:
        """Whether it is published exactly."""
        return not (self.sigma or self.summed)

    @property
    def is_measured(self) -> bool:
        """Whether its cells were read, with noise or without."""
        return not self.summed and self.same_as is None

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


class Difference(Section):
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

    @property
    def path(self) -> str:
        """The path of its file in the folder."""
        return f"views/{self.name}.parquet"

    @property
    def files(self) -> list[str]:
        """The paths of its files: one."""
        return [self.path]


class DerivedEntry(Section):
    """A column that is a public function of the axes.

    Attributes:
        of: the columns of codes on which it depends.
        sha256: the hash of the table from which it was read.
    """

    of: list[str] = Field(min_length=1)
    sha256: str


class DaysEntry(Section):
    """How the days of a series are measured together: the sums that are drawn are of this day and those before it.

    Attributes:
        weights: of the day itself, the day before, and so on.
        runs: how many days each run of published days has until now: a run ends before a day that is abandoned, and sums reach back to
            the first day of theirs.
        since: the release of the first day that is published.
        missing: the releases of days since then that were abandoned.
    """

    weights: list[int] = Field(min_length=1)
    runs: list[int] = Field(min_length=1)
    since: str = ""
    missing: list[str] = []

    def period(self, until: str) -> str:
        """Return in words which days the cumulative counts of a day add up, given its release."""
        if not self.since:
            return f"all published days of the series until {until}"
        if self.since == until:
            return f"{until} alone, the first day"
        abandoned = f", except for abandoned days ({in_short(self.missing)})" if self.missing else ""
        return f"all days from {self.since} to {until}{abandoned}"


class Rounding(Section):
    """How far rounding to whole counts has moved what was settled together.

    Attributes:
        exact: whether every count of everything that was measured is less than 1 from what its cell added up to before.
        deviation: the largest such distance, records, by the name of each view that was measured; `level_<k>` for level k.
    """

    exact: bool
    deviation: dict[str, float]


class PoorMargin(Section):
    """The totals of one axis at one of its levels, where nothing measures them by itself.

    Attributes:
        margin: their name: that of the level's column of codes.
        expected_error: the mean absolute noise of the best sum of measurements for one of them, before counts are settled, records. The
            released sums are usually nearer to the truth. They are further from it where many small counts ended at zero.
    """

    margin: str = Field(min_length=1)
    expected_error: float
