"""The keys of a spec: what a user may write, and the rule for each key."""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from flows.specification.kinds import GRID, by_axis, faults_of_kind
from flows.specification.rules import ONE, PER_AXIS, Keys, Name, Slug, Text, no_boolean, one_or_each, refuse
from flows.specification.sections.hierarchy import DOMAIN_TAGS, Domain, Hierarchy, Ordered, Values
from flows.specification.sections.input import Input, faults_of_group_sizes, sizes_of
from flows.specification.sections.privacy import SPLIT_TAGS, BudgetKeys, Minimise, PrivacyKeys, weights_of_views
from flows.specification.sections.release import ReleaseKeys
from flows.specification.sections.run import NoiseKeys, RunKeys
from flows.specification.sections.schedule import ScheduleKeys
from flows.specification.sections.taken import TAKEN_TAGS, Taken
from flows.specification.sections.utility import UtilityKeys
from flows.specification.sections.views import (
    ATTRIBUTES,
    LEAVES,
    MARGINS,
    NOT_OF_CODES,
    ONE_WAY,
    TREE,
    VIEW_TAGS,
    DerivedKeys,
    attribute_views,
    faults_of_derived,
    faults_of_grid,
    faults_of_views,
    faults_of_weights,
    margin_views,
    one_way_views,
    tables_beside_levels,
)
from storage.machine.files import is_file_name
from storage.tables import ENDS, REGION, REMAINDER, SIGNAL, SIZE, Role, column_name
from tasks.words.areas import GEOMETRY, name_column
from tasks.words.levels import in_short
from tasks.words.spelling import entry_of, faults_of_order, refinement

# what pydantic adds to the path of an error
TAGS = SPLIT_TAGS | DOMAIN_TAGS | TAKEN_TAGS | VIEW_TAGS | {ONE, PER_AXIS}


class Spec(Keys):
    """A release spec. Unknown keys are refused.

    Attributes:
        name: The name of the series. A release's id is <name>-<UTC time>, or <name>-<day> with a schedule.
        title: What the table counts, in words for readers, such as Jobs in Rhode Island in 2019, from home to work. It heads the
            report and the explorer, and sentences to quote name it. If left out, the name of the dataset.
        description: What readers should know about the counts, in one paragraph: who and what is counted, who is not, and when. It
            stands at the top of the report, the explorer and the README.
        source: Who collected the records and who publishes the counts, in words for readers. Sentences to quote name it.
        dataset: The name of the dataset, which stands for the people in it. Unit, neighbours and budget belong to the
            dataset, and its first release fixes them.
        same_people_as: Another dataset about the same people, such as an earlier version, a correction or a subset. The two
            share one budget.
        hierarchy: The public areas or codes. For trips, one codebook for both ends, or {origin: …, destination: …}. For
            features, a codebook, {values: …} or {ordered: …} under the name of each feature, and for trips with features also a
            codebook for each end. For group sizes, {region: …}, and the codes of each attribute under its name.
        derived: Columns that are a public function of the axes, for use in release.views.
        mechanism: One of the mechanisms in docs/mechanisms.md. The mechanisms inftda_reconciled, inftda, inftda_lenient, inftda_shrunk, tda_l2
            and tda_linf go down the tree; gaussian and stability_histogram measure the leaves, and other levels are sums; cbdp
            measures the leaves and release.views; cascade, wavelet, hierarchical and unbiased_tree measure every node, for
            unbiased counts and ranges with a stated deviation, with release.views too; optimal_ranges
            measures one ordered axis for its ranges. group_sizes is for group sizes; sizes_direct,
            sizes_direct_relaxed, sizes_direct_exact, sizes_cumulative, sizes_cumulative_relaxed, sizes_cumulative_exact, sizes_chain
            and sizes_top_down are there to compare with it. If left out, Trellis chooses by a rule that reads only the spec and the
            codebooks, and the plan and the manifest say why: docs/how-to/which-mechanism.md.
        priority: Which of several equally good counts are chosen: those with few false positives (if left out), those with
            few false negatives, or those nearest in the Euclidean norm.
        measure: Which cells a mechanism with a second pass measures. survivors: the children of what is left of the level above.
            all: every cell; if the finest level has more than ten million cells, every cell of the levels above it. auto: the same as
            all, if no level that it measures whole has more than ten million cells, or one million with the sampler opendp;
            otherwise survivors. If left out, survivors, or auto with mechanism inftda_shrunk.
        keep_noisy_counts: Whether to keep the sealed measurements after publication.
        keep_vault: Whether to keep the true counts after publication.
        expected_total: A guess of the number of records, for the plan. It is not published. For trips with features, without
            release.order, it decides the order, which is published: give a guess that may be known.
        public_data: Whether anybody may see the table. If true, errors against the true counts may be shown.
        utility: What `trellis compare --utility` measures on a public table. A release does not depend on it.
        supersedes: The published release that this one replaces.
        output: The folder in which releases are published, relative to the spec. --output overrides it.
    """

    name: Slug
    title: Text | None = None
    description: Text | None = None
    source: Text | None = None
    dataset: Slug
    same_people_as: Slug | None = None
    input: Input
    hierarchy: Annotated[
        Annotated[Hierarchy, Tag(ONE)] | Annotated[dict[str, Domain], Tag(PER_AXIS)],
        Discriminator(one_or_each),
    ]
    derived: dict[str, DerivedKeys] = Field(default_factory=dict)
    release: ReleaseKeys
    mechanism: Text = ""
    priority: Literal["false_positives", "false_negatives", "least_squares"] | None = None
    measure: Literal["all", "survivors", "auto"] | None = None
    privacy: PrivacyKeys
    budget: BudgetKeys | None = None
    noise: NoiseKeys = NoiseKeys()
    run: RunKeys = RunKeys()
    schedule: ScheduleKeys | None = None
    keep_noisy_counts: bool = True
    keep_vault: bool = False
    expected_total: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, strict=True)] | None = None
    public_data: Annotated[bool, Field(strict=True)] = False
    utility: UtilityKeys | None = None
    supersedes: Name | None = None
    output: str = "out"

    @model_validator(mode="before")
    @classmethod
    def _is_of_one_kind(cls, keys: object) -> object:
        """Refuse a mixture of kinds of releases, and mark a hierarchy that holds one entry per axis."""
        if not isinstance(keys, dict) or not all(isinstance(keys.get(part), dict) for part in ("input", "release")):
            return keys
        refuse(faults_of_kind(keys))
        return by_axis(keys)

    @model_validator(mode="after")
    def _fits_together(self) -> "Spec":
        refuse(
            chain(
                self._faults_of_people(),
                self._faults_of_groups(),
                self._faults_of_levels(),
                self._faults_of_axes(),
                self._faults_of_formats(),
                self._faults_of_areas(),
                self._faults_of_utility(),
            )
        )
        refuse(self._faults_of_views())
        return self

    def _faults_of_people(self) -> Iterator[str]:
        if self.release.noisy_counts and not self.keep_noisy_counts:
            yield "release.noisy_counts must not be true when keep_noisy_counts is false."
        if self.same_people_as == self.dataset:
            yield "same_people_as must name another dataset, not this one."
        if self.supersedes and self.schedule:
            yield "supersedes must be left out with a schedule: only one of its releases could replace another release."

    def _faults_of_groups(self) -> Iterator[str]:
        sizes = self.release.group_sizes
        if sizes is None:
            return
        key, region = self.hierarchy_of(REGION)
        if not isinstance(region, Hierarchy | Values):
            yield f"{key} must be a codebook or values: regions have no order."
            return
        yield from faults_of_group_sizes(sizes, self.input, self.levels(REGION))
        if self.input.unit and self.input.unit in (self.input.group or ()):
            yield "input.unit must not be a column of input.group: a unit that is a whole group needs no group sizes; give the size of its group as a feature instead."
        for name in (self.input.features or []) if self.input.groups else []:
            if self.taken(name):
                yield f"hierarchy.{name}.from must be left out with input.groups: the list has a column {name} that holds its codes."
        if self.views and isinstance(self.privacy.split, Minimise | dict):
            yield "privacy.split must be a rule, finest or shares of levels for group sizes with release.views: a view is a sum of rows, so it has no share and costs nothing."
        if self.privacy.distinct:
            yield "privacy.distinct must be left out for group sizes: a unit's records are bounded by their number alone."
        if self.privacy.invariants:
            yield "privacy.invariants must be left out for group sizes: with exact numbers of groups, a table would differ for certain once a person who lives alone leaves."

    def _faults_of_levels(self) -> Iterator[str]:
        if self.release.group_sizes and self.release.group_sizes.region not in self.levels(REGION):
            return  # `_faults_of_groups` refuses it
        codes = {column for axis in self.axes for column in self.columns(axis)}
        if self.input.origin and self.input.origin == self.input.destination:
            yield "input.destination must not name the same column as input.origin."
        if self.input.count in codes:
            yield "input.count must not be a column of codes."
        if self.input.unit and self.input.unit in {*codes, self.input.count}:
            yield "input.unit must not be a column of codes or counts."
        distinct = self.privacy.distinct
        if distinct and not any(distinct in self.levels(axis) for axis in self.axes):
            yield f"privacy.distinct must be a level of the hierarchy, got {distinct}."
        for axis in self.axes:
            levels, columns, finest = self.levels(axis), self.columns(axis), self.finest(axis)
            key, hierarchy = self.hierarchy_of(axis)
            if self.role_of(axis) in ENDS and not isinstance(hierarchy, Hierarchy):
                yield f"{key} must be a codebook with its levels, {{table: …, levels: […]}}: the ends of trips are areas."
                continue
            if getattr(hierarchy, "from") and self.role_of(axis):
                yield f"{key}.from must be left out, since {axis} is no feature: write input.{axis}: {{column: …, take: …}} in its place."
            if not columns:  # the list of groups says what the table does not
                continue
            if len(columns) not in {1, len(levels)}:
                yield f"input.{axis} must name one column, or one for each of the levels {', '.join(levels)}; got {len(columns)}."
            elif isinstance(hierarchy, Hierarchy) and hierarchy.table is None and len(columns) != len(levels):
                which = f"input.{axis} names" if self.role_of(axis) else "a feature has"
                yield (
                    f"{key}.table must be given: {which} one column, and without a codebook each of the levels"
                    f" {', '.join(levels)} needs its own."
                )
            if self.has_own_areas(axis) and len(columns) > 1:
                yield (
                    f"{key}.blank must be refuse, since input.{axis} names several columns: records would lack the code"
                    " that the codebook gets."
                )
            if hierarchy.recode and len(columns) > 1:
                yield f"{key}.recode must be left out, since input.{axis} names several columns: it replaces one code by one."
            if finest not in levels:
                yield f"release.finest must be one of the levels {', '.join(levels)}, got {finest}."

    def _faults_of_axes(self) -> Iterator[str]:
        features, order, grid = self.input.features or [], self.release.order, self.release.grid
        levels = {name: self.levels(name) for name in self.axes if self.role_of(name) != SIZE}
        finest = {name: stop if (stop := self.finest(name)) in of else of[-1] for name, of in levels.items()}
        if order is not None:
            yield from faults_of_order(order, levels, finest)
        if grid is not None:
            yield from faults_of_grid(grid, {name: of.index(finest[name]) + 1 for name, of in levels.items()})
            if self.release.views:
                yield (
                    f"release.views must be left out with {GRID}: every view of its axes is a table that it measures already, and with one"
                    " more the variances would no longer be the products of one for each axis, from which all intervals follow."
                )
        for name in self.release.finest if isinstance(self.release.finest, dict) else ():
            if name not in self.axes:
                yield f"release.finest must name axes ({in_short(self.axes)}), got {name}."
        if not features:
            return
        seen = {*NOT_OF_CODES} | ({REMAINDER} if self.release.rows == SIGNAL else set())
        for column in chain(*self._published_columns.values()):
            if column.casefold() in seen:
                yield f"input.features would give two columns of the published tables the name {column}."
            seen.add(column.casefold())

    def _faults_of_formats(self) -> Iterator[str]:
        domains = [self.hierarchy_of(axis)[1] for axis in self.axes]
        yield from self.release.faults_of_formats(
            [*chain(*self._published_columns.values())],
            has_ends=self.has_ends,
            same_codebook=all(
                isinstance(of, Hierarchy) and of.table and of == domains[0] for of in domains[: len(ENDS)]
            ),
            has_shapes=any(isinstance(of, Hierarchy) and of.boundaries for of in domains),
        )
        hidden = [axis for axis in self.unlisted if axis not in ENDS]
        if "omx" in self.release.formats and self.has_ends and hidden:
            yield f"release.formats must not list omx without a codebook of {in_short(hidden)}: there is a matrix for each code."

    def _faults_of_areas(self) -> Iterator[str]:
        """Yield what is wrong with the columns and files of names and shapes."""
        columns = self._published_columns
        taken = {*NOT_OF_CODES, REMAINDER, *(column.casefold() for column in chain(*columns.values()))}
        for axis in self.axes:
            key, hierarchy = self.hierarchy_of(axis)
            boundaries = hierarchy.boundaries if isinstance(hierarchy, Hierarchy) else None
            for column in columns[axis] if hierarchy.labels or boundaries else ():
                if hierarchy.labels and name_column(column).casefold() in taken:
                    yield f"{key}.labels would give two columns of the published tables the name {name_column(column)}."
                if boundaries and column.casefold() == GEOMETRY:
                    yield f"{key}.boundaries would give two columns of a published file the name {GEOMETRY}."
                if not is_file_name(column):
                    yield f"{key} must have levels whose names can be names of files, to have labels or boundaries; {column} cannot."

    def _faults_of_utility(self) -> Iterator[str]:
        if self.utility and self.utility.fleet and not any(chain(self._faults_of_groups(), self._faults_of_levels())):
            yield from self.utility.fleet.faults(self.released_levels if self.input.features else {}, self.unlisted)

    def _faults_of_views(self) -> Iterator[str]:
        views, split = self.views, self.privacy.split
        yield from faults_of_derived(self.derived, self.released_levels, self.flat_features)
        if not (isinstance(self.release.views, str) or self.release.grid):
            yield from faults_of_views(views, self.released_levels, list(self.derived))
        weights = split.minimise if isinstance(split, Minimise) else weights_of_views(split)
        key = "privacy.split.minimise" if isinstance(split, Minimise) else "privacy.split"
        if weights and not views:
            yield f"{key} must be left out without release.views: it names views."
        elif weights:
            yield from faults_of_weights(weights, [*views, LEAVES, TREE], key)

    @property
    def _published_columns(self) -> dict[str, list[str]]:
        """The columns of published tables that have the codes of each axis, coarse to fine."""
        flat = self.flat_features
        return {axis: [column_name(axis, level, flat) for level in self.levels(axis)] for axis in self.axes}

    @property
    def views(self) -> dict[str, dict[str, str]]:
        """The views that are measured beside the tree: by name, the level of each axis that is not left out."""
        if self.release.grid:
            return tables_beside_levels(self.release.grid, self.released_levels, self.flat_features)
        if self.release.views == MARGINS:
            return margin_views(self.released_levels, self.flat_features)
        if self.release.views == ONE_WAY:
            return one_way_views(self.released_levels, self.flat_features)
        if self.release.views == ATTRIBUTES:
            return attribute_views(self.released_levels, self.flat_features, ENDS if self.has_ends else ())
        return dict(self.release.views or {}) if not isinstance(self.release.views, str) else {}

    @property
    def released_levels(self) -> dict[str, list[str]]:
        """The levels of each axis that are released, coarse to fine."""
        return {axis: self.levels(axis)[: self.levels(axis).index(self.finest(axis)) + 1] for axis in self.axes}

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes, in the order in which tables show them: the ends of trips, and the features; or regions, attributes and sizes."""
        if self.release.group_sizes:
            return (REGION, *(self.input.features or ()), SIZE)
        return (*(ENDS if self.has_ends else ()), *(self.input.features or ()))

    @property
    def has_ends(self) -> bool:
        """Whether the release holds trips."""
        return self.input.origin is not None or self.input.matrix is not None

    def role_of(self, axis: str) -> Role | None:
        """Return the role of an axis; None for a feature."""
        roles: tuple[Role, ...] = (REGION, SIZE) if self.release.group_sizes else ENDS if self.has_ends else ()
        return next((role for role in roles if role == axis), None)

    @property
    def flat_features(self) -> frozenset[str]:
        """The features that have one level, and the beginnings of the levels' names of ordered ones, as in `column_name`."""
        features = [axis for axis in self.axes if self.role_of(axis) not in ENDS]
        ordered = {axis for axis in features if isinstance(self.hierarchy_of(axis)[1], Ordered)}
        return frozenset(
            f"{axis}_" if axis in ordered else axis
            for axis in features
            if axis in ordered or len(self.levels(axis)) == 1
        )

    def columns(self, axis: str) -> list[str]:
        """Return the columns of an axis in the confidential table; that of a feature or of an end of a matrix has its name, unless it is taken from another.

        Sizes have none, and neither have regions and attributes where the list of groups says which group has which.
        """
        if self.release.group_sizes and (axis == SIZE or self.input.groups is not None):
            return []
        if taken := self.taken(axis):
            return [taken.column]
        if axis == REGION and self.release.group_sizes:
            return [str(self.input.region or self.levels(REGION)[-1])]
        if self.role_of(axis) is None or self.input.matrix is not None:
            return [axis]
        columns: list[str] = getattr(self.input, axis)
        return columns

    def taken(self, axis: str) -> Taken | None:
        """Return the column from which the codes of an axis are taken, and how; None where its columns hold its codes."""
        given = getattr(self.input, axis, None) if self.role_of(axis) else getattr(self.hierarchy_of(axis)[1], "from")
        return given if isinstance(given, Taken) else None

    def hierarchy_of(self, axis: str) -> tuple[str, Hierarchy | Values | Ordered]:
        """Return the spec's key that describes an axis, and the codebook or the codes that it holds."""
        if axis == SIZE and self.release.group_sizes:
            return "release.group_sizes.largest", sizes_of(self.release.group_sizes, self.input.groups)
        if isinstance(self.hierarchy, Hierarchy):
            return "hierarchy", self.hierarchy
        return f"hierarchy.{axis}", self.hierarchy[axis]

    def levels(self, axis: str) -> list[str]:
        """Return the levels of an axis, coarse to fine. Listed codes have one level, with the name of their feature."""
        hierarchy = self.hierarchy_of(axis)[1]
        if isinstance(hierarchy, Ordered):
            return hierarchy.levels(axis)
        return hierarchy.levels if isinstance(hierarchy, Hierarchy) else [axis]

    @property
    def refinements(self) -> list[tuple[str, int]]:
        """What each entry of `release.order` refines: an axis, and down to which of its levels, from 1 on."""
        levels = {axis: self.levels(axis) for axis in self.axes}
        return [refined for entry in self.order if (refined := refinement(entry, levels))]

    @property
    def order(self) -> list[str]:
        """What `release.order` lists; for group sizes without it, the coarsest regions, then attributes, which have few values, and finer regions."""
        if self.release.order or not self.release.group_sizes:
            return self.release.order or []
        levels = self.released_levels
        first, *finer = (entry_of(REGION, level, levels) for level in range(1, len(levels[REGION]) + 1))
        return [first, *(self.input.features or ()), *finer]

    @property
    def unlisted(self) -> list[str]:
        """The axes without a codebook."""
        domains = {axis: self.hierarchy_of(axis)[1] for axis in self.axes}
        return [axis for axis, of in domains.items() if isinstance(of, Hierarchy) and of.table is None]

    def has_own_areas(self, axis: str) -> bool:
        """Return whether a blank code in the codebook of an axis is an area of its own."""
        hierarchy = self.hierarchy_of(axis)[1]
        return isinstance(hierarchy, Hierarchy) and hierarchy.blank == "own_area"

    def finest(self, axis: str) -> str:
        """Return the finest released level of an axis."""
        if self.release.group_sizes and axis == REGION:
            return self.release.group_sizes.region
        finest = self.release.finest
        if isinstance(finest, str):
            return finest if self.role_of(axis) else self.levels(axis)[-1]
        return (finest or {}).get(axis, self.levels(axis)[-1])
