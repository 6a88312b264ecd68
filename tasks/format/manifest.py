"""The manifest: what a release protects, what it cost, how far off it can be, and what it was made with."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from storage.counts.columns import interval_columns
from storage.releases.terms import DISCRETE_GAUSSIAN, RELEASED_CODES

# left out of the file where they have their default
_OF_SOME_LEVELS = (
    "summed",
    "mechanism",
    "epsilon",
    "delta",
    "scale",
    "threshold",
    "bias",
    "half_width",
    "cap_margin",
    "simultaneous_half_width",
)
_OF_SOME_RELEASES = ("csv", "waived", "records", "noisy_counts", "supersedes")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Privacy(_Part):
    """The guarantee: (ε, δ)-differential privacy for one unit under one neighbouring relation.

    Attributes:
        unit: who or what is protected, in words.
        neighbours: the change that must not show: `substitution` or `add_remove`.
        max_records_per_unit: how many records one unit has at most.
        exact_records_per_unit: whether every unit has exactly `max_records_per_unit`, so that the total is public.
        distinct: the level at which a unit's records lie in distinct cells; None without that promise.
        bounded_by: who sees to the bound: `ingest`, which cut what was beyond, or the data owner's `promise`.
        epsilon: of the whole release.
        delta: of the whole release.
        rho: of all discrete Gaussians together; 0 where there are none.
        accountant: by which (ε, δ) follows from the noise.
        sampler: who drew the noise.
        tau: how far its draws may be from the noise stated, in total variation over all the cells that one unit can
            touch, at most; what that costs is taken off delta.
        statement: the guarantee in words.
    """

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


class LevelEntry(_Part):
    """One level: how much noise its counts bear and how far off they can be.

    Attributes:
        level: of the tree; 0 is everything.
        axes: per axis, the name of the level reached; None where it is not refined yet.
        cells: how many were measured.
        nonzero: how many cells have a released count that is not 0.
        rho: that the level cost; 0 where it was not measured, or is only (ε, δ).
        l2_sensitivity: how far one unit moves the level's counts, in the Euclidean norm, records.
        derivation: of that, in words.
        sigma: the standard deviation of the noise: of a level that is summed, of its widest cell; 0 where it is exact, and
            where leaves that did not reach a threshold are missing from its sums, so that none can be stated.
        bound: with 95 % every count of the level is within so many records of the truth; None where the mechanism states none.
        summed: whether nothing was measured here; left out of the file where it was, like all that follows.
        mechanism: what was drawn, where it is only (ε, δ).
        epsilon: of that, as charged.
        delta: of that, as charged.
        scale: of its noise, records.
        threshold: the least noisy count that was kept, records.
        bias: released minus noisy counts, the mean over the cells measured, records; it bears noise itself. None where nothing
            was measured, only what reached a threshold was kept, or noisy counts were not to be kept.
        half_width: z of the interval around a cell's noisy count, records; None where intervals differ from cell to cell, or
            none are stated.
        cap_margin: z' by which the noisy count of a cell may exceed the truth as one that holds others, records.
        simultaneous_half_width: z of the intervals that hold at once, where they are published.
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
    mechanism: str = DISCRETE_GAUSSIAN
    epsilon: float = 0.0
    delta: float = 0.0
    scale: float = 0.0
    threshold: int = 0
    bias: float | None = None
    half_width: int | None = None
    cap_margin: int | None = None
    simultaneous_half_width: int | None = None


class Intervals(_Part):
    """The intervals in the tables: with the stated probability, over all noise, that of any one cell covers its true count.

    Attributes:
        confidence: that probability.
        simultaneous: whether the tables also have those that cover the true counts of all cells of all levels at once.
        rounded: whether they end at multiples of the noise's sigma, rounded up, since noisy counts were not to be kept.
    """

    confidence: float
    simultaneous: bool = False
    rounded: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the tables."""
        return interval_columns(simultaneous=self.simultaneous)


class SealEntry(_Part):
    """The hash of the sealed noisy counts of one level of one branch.

    Attributes:
        level: of the tree.
        branch: its name; `trunk` for what is above all branches.
        sha256: of the shard.
    """

    level: int
    branch: str
    sha256: str


class LedgerHead(_Part):
    """Where the ledger stood when the release was published; the first event's hash tells one ledger from another.

    Attributes:
        head: the hash of its last event.
        length: how many events it had.
        first: the hash of its first event.
    """

    head: str
    length: int
    first: str


class Manifest(_Part):
    """`manifest.json`, whole. Everything in it is public.

    Attributes:
        id: of the release.
        spec: as written, with file names in place of paths.
        unprotected: what is published exactly, in words.
        levels: levels 0 to the finest.
        mechanism: the recipe, as the spec names it.
        seals: of every shard of noisy counts.
        versions: of the packages that made it.
        codebooks: per axis, the sha256 of its codebook, or `from the released counts` where none lists its codes.
        csv: whether the finest level is published as CSV too, or `every_level` is; left out of the file where the finest is.
        waived: what the mechanism cannot meet by nature, such as `counts_positive`; left out where there is nothing.
        records: as what it is published as synthetic records too: `csv`, `parquet`, or `left out` where they were asked for
            and are too many; None, and left out of the file, where they were not asked for.
        intervals: those in the tables.
        noisy_counts: whether the sealed noisy counts are published; left out of the file where they are not.
        supersedes: the release whose place this one takes; None, and left out of the file, where it revises none.
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
    records: Literal["csv", "parquet", "left out"] | None = None
    intervals: Intervals
    noisy_counts: bool = False
    supersedes: str | None = None

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of intervals that every table has."""
        return self.intervals.columns

    @property
    def unlisted(self) -> list[str]:
        """The axes whose codes no codebook lists."""
        return [axis for axis, codebook in self.codebooks.items() if codebook == RELEASED_CODES]

    def text(self) -> str:
        """Return the manifest as it is published."""
        content = self.model_dump(exclude={name for name in _OF_SOME_RELEASES if _is_default(self, name)})
        for level, entry in zip(self.levels, content["levels"], strict=True):
            for name in _OF_SOME_LEVELS:
                if _is_default(level, name):
                    del entry[name]
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _is_default(part: _Part, name: str) -> bool:
    return bool(getattr(part, name) == type(part).model_fields[name].default)
