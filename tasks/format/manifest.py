"""The manifest: what a release protects, what it costs, how far off its counts can be, and what made it."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from storage.record import KNOWN_AFTER, ReleasedPart
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
from storage.tables import Role, interval_columns, roles_of
from tasks.format.entries import (
    DaysEntry,
    DerivedEntry,
    Difference,
    LevelEntry,
    PoorMargin,
    Rounding,
    Section,
    SignalTable,
    ViewEntry,
)
from tasks.words.levels import differing_views, poor_totals

CUMULATIVE = "cumulative"  # the folder of the counts of all days of a series until now


class SealEntry(Section):
    """The hash of the sealed noisy counts of one level of one branch.

    Attributes:
        level: the tree level.
        branch: the name of the branch; `trunk` for what is above all branches.
        sha256: the hash of the shard.
    """

    level: int
    branch: str
    sha256: str


class LedgerHead(Section):
    """The state of the ledger when the release was published; the hash of the first event identifies the ledger.

    Attributes:
        head: the hash of its last event.
        length: how many events it had.
        first: the hash of its first event.
    """

    head: str
    length: int
    first: str


class Manifest(Section, Counted, BaseModel):
    """The content of `manifest.json`. All of it is public.

    Attributes:
        id: the release's id.
        spec: the spec as written, with file names in place of paths.
        unprotected: what is published exactly, in words.
        levels: levels 0 to the finest.
        mechanism: the mechanism, as the spec names it.
        mechanism_reason: why Trellis chose the mechanism. The file leaves it out where the spec names one.
        seals: the seal of every shard of noisy counts.
        versions: the versions of the packages that made the release.
        codebooks: per axis, the sha256 of its codebook, or `from the released counts` where none lists its codes.
        csv: whether the finest level is also published as CSV, or `every_level` if all levels are. The file leaves out True.
        waived: the rules that the mechanism cannot meet by nature, such as `counts_positive`. The file leaves out an empty list.
        covariance: by which rule the variance of any sum of released counts follows from the sigmas of the levels: `tree`. The counts are
            the least-squares estimate from independent counts of all nodes, with 1/scale² as precision (1/sigma² where no scale is stated,
            0 for summed levels, infinite for exact ones), whose sums over the first leaves were rounded; that adds 1/6 to the variance of any range of leaves that are adjacent in the order of the tree. With `views` those of the views are measured
            too, and sums over the first areas of all axes were rounded: a count is made of some of them, and each adds 1/12. With `grid` they come from all
            combinations of levels of d axes, each with a product of precisions; rounding adds 2^d/12 to the variance of any box
            (docs/proofs/uncertainty.md). With `dense` they come from the sums in `strategy.parquet` over the codes of one axis, as noisy as the finest
            level states; rounding adds as in a tree. Beside other axes each such axis has a `strategy_<axis>.parquet`, and the rest is as with `grid`. The file leaves it out where counts are not such estimates.
        statistic: of group sizes, what was measured of each region and size: `tails`, the groups of at least this size; `sizes`, those
            of this size; `chain`, the groups of a larger size, or of this size in this region or a later one. The noisy counts are of
            that. The file leaves it out for other releases.
        cascades: the axes whose areas were measured with different precisions at one level. The scale is that of the most precise nodes of the
            level. For a node that is one of b siblings and has b' children let p = b/(b + 1) − 1/(b' + 1); the first term is 1 for the
            total, the second 0 for leaves. Its precision is p/max p times 1/scale², with the largest p of its level. Levels of only
            children are left out of this. In a `grid`, multiply these parts over the axes. The file leaves out an empty list.
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
        days: where a series measures its days together, how; None, and left out of the file, elsewhere. The folder `cumulative/` then has the
            counts of all days until now, with a manifest of the same form.
        cumulative: whether the counts are those of all days until now. The file leaves it out elsewhere.
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
    mechanism_reason: str = ""
    codebooks: dict[str, str] = Field(min_length=1)
    seals: list[SealEntry] = Field(min_length=1)
    ledger: LedgerHead
    versions: dict[str, str] = Field(min_length=1)
    csv: bool | Literal["every_level"] = True
    waived: list[str] = []
    covariance: Covariance = ""
    statistic: str = ""
    cascades: list[str] = []
    measure: Measure = SURVIVORS
    records: Literal["csv", "parquet", "left out"] | None = None
    intervals: Intervals
    noisy_counts: bool = False
    supersedes: str | None = None
    views: list[ViewEntry] = []
    derived: dict[str, DerivedEntry] = {}
    poor_margins: list[PoorMargin] = []
    rounding: Rounding | None = None
    days: DaysEntry | None = None
    cumulative: bool = False
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


def _with_default(part: Section, kind: type[Section]) -> set[str]:
    return {name for name, field in kind.model_fields.items() if getattr(part, name) == field.default}
