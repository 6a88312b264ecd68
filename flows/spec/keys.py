"""The keys of a spec: what a person may write, each with its rule."""

from collections.abc import Iterator
from datetime import date
from itertools import chain
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from flows.spec.hierarchy import DOMAIN_TAGS, Domain, Hierarchy, HierarchyPerEnd, Values
from flows.spec.privacy import SPLIT_TAGS, BudgetKeys, PrivacyKeys
from flows.spec.rules import Columns, Keys, Name, Slug, as_list, no_boolean, refuse
from flows.spec.schedule import checked_cron, parse_until
from storage.counts.columns import NOISY, NUMBERS, VARIANCE, column_name
from tasks.validate.intervals import CONFIDENCE

AXES = ("origin", "destination")
MOST_FEATURES = 60

DEFAULT_MECHANISM = "inftda_reconciled"  # on no set that was tried worse than inftda: docs/mechanisms.md

_OF_TRIPS = ("input.origin", "input.destination", "release.tree")
_OF_FEATURES = ("input.features", "release.order")

# Of the keys that may be left out of some specs, which must be given, and for what.
MUST_BE_GIVEN = {
    **dict.fromkeys(_OF_TRIPS, "must be given for trips, left out for features"),
    **dict.fromkeys(_OF_FEATURES, "must be given for features, left out for trips"),
    "release.finest": "must be given for trips, may be left out for features",
}


class _PerFeature(dict[str, Any]):
    """What a key holds where it is asked for each feature, whatever they are called."""


def _one_or_each(value: object) -> str:
    """Return whether a key holds one value for both ends of a trip, or one for each, or one for each feature."""
    if isinstance(value, _PerFeature):
        return _PER_FEATURE
    both = isinstance(value, HierarchyPerEnd | FinestPerEnd) or (
        isinstance(value, dict) and not set(AXES).isdisjoint(value)
    )
    return _PER_END if both else _ONE


def _fit_for_tables(features: list[str]) -> list[str]:
    """Refuse features that tables, whose names DuckDB tells apart whatever the case, could not have beside each other."""
    if len(features) > MOST_FEATURES:
        raise ValueError(f"must name 1 to {MOST_FEATURES} columns, got {len(features)}.")
    if len({name.casefold() for name in features}) < len(features):
        raise ValueError("must name each column once, whatever the case of its letters.")
    for name in features:
        if "/" in name or not name.strip() or not name.isprintable() or len(name.encode()) > _NAME_BYTES:
            raise ValueError(
                f"must name columns by at most {_NAME_BYTES} bytes without slashes or line breaks, got {name!r}."
            )
    return features


def _known_timezone(name: str) -> str:
    """Refuse what is no time zone."""
    if name not in available_timezones():
        raise ValueError(f"must be a time zone such as Europe/Rome, got {name}.")
    return name


def _as_text(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value  # as YAML reads a day


def _which_csv(value: object) -> object:
    if not (value is None or isinstance(value, bool) or value == "every_level"):
        raise ValueError(f"must be true, false or every_level, got {value}.")
    return value


def _end_of_series(until: str) -> str:
    """Refuse what is neither a number of releases nor a day."""
    parse_until(until)
    return until


LEAST_MEMORY = 256_000_000  # bytes

_NAME_BYTES = 128  # of a feature, after which files are named

# pydantic puts these among the keys of an error
_ONE, _PER_END, _PER_FEATURE = "<one for both ends>", "<one per end>", "<one per feature>"
TAGS = SPLIT_TAGS | DOMAIN_TAGS | {_ONE, _PER_END, _PER_FEATURE}


class Input(Keys):
    """The confidential table and its columns: of the ends of trips, or of any features, each with its finest codes.

    Attributes:
        table: .csv, .csv.gz, .parquet or file.duckdb::table; relative to the spec; ${NAME} comes from the environment.
        origin: the column of codes where a trip begins: of the finest areas, or a column per level, coarse to fine. Must be
            given for trips.
        destination: the same for where it ends. Must be given for trips.
        features: columns of codes, in place of origin and destination.
        count: the column of counts; if left out, a row is a record.
        unit: the column that tells units apart, so that ingest bounds the records of each.
    """

    table: str
    origin: Columns | None = None
    destination: Columns | None = None
    features: Annotated[Columns, AfterValidator(_fit_for_tables)] | None = None
    count: Name | None = None
    unit: Name | None = None


class FinestPerEnd(Keys):
    """The finest released level for each end of a trip.

    Attributes:
        origin: of where trips begin.
        destination: of where they end.
    """

    origin: str
    destination: str


class IntervalKeys(Keys):
    """The intervals around released counts.

    Attributes:
        confidence: with at least this probability, over all noise, the interval of any one cell covers its true count.
        simultaneous: whether to publish those as well that cover the true counts of all cells at once.
    """

    confidence: Annotated[float, BeforeValidator(no_boolean), Field(gt=0, lt=1)] = CONFIDENCE
    simultaneous: Annotated[bool, Field(strict=True)] = False


class ReleaseKeys(Keys):
    """Which tree, how deep, and what is published besides its levels.

    Attributes:
        tree: of trips, for which it must be given: the end that is refined first.
        order: of features, for which it must be given: which is refined first, which next; each with all its levels.
        finest: the finest released level, of both ends or of each, which must be given for trips; of features those that
            stop above their finest.
        csv: whether the finest level is published as CSV too, or every level is; if left out, the finest up to five million
            rows.
        records: whether it is published as synthetic records too, a row for each.
        intervals: how sure the intervals around counts are.
        noisy_counts: whether the sealed noisy counts are published too; if left out, up to twenty million cells.
    """

    tree: Literal["destination", "origin"] | None = None
    order: Columns | None = None
    finest: (
        Annotated[
            Annotated[str, Tag(_ONE)]
            | Annotated[FinestPerEnd, Tag(_PER_END)]
            | Annotated[dict[str, str], Tag(_PER_FEATURE)],
            Discriminator(_one_or_each),
        ]
        | None
    ) = None
    csv: Annotated[Literal[True, False, "every_level"] | None, BeforeValidator(_which_csv)] = None
    records: Annotated[bool, Field(strict=True)] = False
    intervals: IntervalKeys = IntervalKeys()
    noisy_counts: Annotated[bool, Field(strict=True)] | None = None


class NoiseKeys(Keys):
    """Who draws the noise, and nothing else about it.

    Attributes:
        sampler: opendp, or the table sampler, which is much faster and takes a little off delta.
    """

    sampler: Literal["opendp", "table"] = "opendp"


class RunKeys(Keys):
    """How a release is run; what it publishes does not depend on it.

    Attributes:
        workers: what branches are walked in.
        max_memory: for the arrays of all branches that are walked at once; a quarter of the machine if left out.
    """

    workers: Literal["threads", "processes"] = "threads"
    max_memory: Annotated[ByteSize, BeforeValidator(no_boolean), Field(ge=LEAST_MEMORY)] | None = None


class ScheduleKeys(Keys):
    """When releases are made, and how many or until which day; without an end each is reserved on its own day.

    Attributes:
        cron: minute, hour, day of the month, month and day of the week.
        timezone: in which they are meant.
        until: so many releases, or the last day: a series, reserved as a whole; without an end if left out.
    """

    cron: Annotated[str, AfterValidator(checked_cron)]
    timezone: Annotated[str, AfterValidator(_known_timezone)] = "UTC"
    until: Annotated[str, BeforeValidator(_as_text), AfterValidator(_end_of_series)] | None = None


class Spec(Keys):
    """A release spec. Unknown keys are refused.

    Attributes:
        name: of the series; a release's id is <name>-<UTC time>, or <name>-<day> where there is a schedule.
        dataset: whose people; unit, neighbours and budget belong to it, and are fixed by its first release.
        same_people_as: a dataset whose budget this one shares: versions, corrections, subsets of the same people.
        hierarchy: the public areas or codes: one codebook for both ends of trips, or {origin: …, destination: …}, or for each
            feature a codebook, or {values: …}.
        mechanism: which recipe of docs/mechanisms.md: inftda_reconciled, inftda, inftda_lenient, tda_l2 or tda_linf, which go
            down the tree; gaussian or stability_histogram, which measure leaves, so that other levels are sums.
        priority: which of equally good counts are taken: those with few false positives (if left out) or few false negatives,
            or those nearest in the Euclidean norm.
        keep_noisy_counts: whether the sealed measurements are kept after publication.
        keep_vault: whether the true counts are kept after publication.
        expected_total: a public guess of the number of records, for the plan.
        public_data: whether anybody may see the table, so that errors against the truth may be shown.
        supersedes: the published release whose place this one takes.
        output: the folder below which releases are published; relative to the spec; --output overrides it.
    """

    name: Slug
    dataset: Slug
    same_people_as: Slug | None = None
    input: Input
    hierarchy: Annotated[
        Annotated[Hierarchy, Tag(_ONE)]
        | Annotated[HierarchyPerEnd, Tag(_PER_END)]
        | Annotated[dict[str, Domain], Tag(_PER_FEATURE)],
        Discriminator(_one_or_each),
    ]
    release: ReleaseKeys
    mechanism: str = DEFAULT_MECHANISM
    priority: Literal["false_positives", "false_negatives", "least_squares"] | None = None
    privacy: PrivacyKeys
    budget: BudgetKeys | None = None
    noise: NoiseKeys = NoiseKeys()
    run: RunKeys = RunKeys()
    schedule: ScheduleKeys | None = None
    keep_noisy_counts: bool = True
    keep_vault: bool = False
    expected_total: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, strict=True)] | None = None
    public_data: Annotated[bool, Field(strict=True)] = False
    supersedes: Name | None = None
    output: str = "out"

    @model_validator(mode="before")
    @classmethod
    def _is_of_one_kind(cls, keys: object) -> object:
        """Refuse a mixture of trips and features, and let what is said by feature be read so."""
        if not isinstance(keys, dict) or not all(isinstance(keys.get(part), dict) for part in ("input", "release")):
            return keys
        refuse(_faults_of_kind(keys))
        return by_feature(keys)

    @model_validator(mode="after")
    def _fits_together(self) -> "Spec":
        refuse(chain(self._faults_of_people(), self._faults_of_levels(), self._faults_of_features()))
        return self

    def _faults_of_people(self) -> Iterator[str]:
        if self.release.noisy_counts and not self.keep_noisy_counts:
            yield "release.noisy_counts must not be true where keep_noisy_counts is false."
        if self.same_people_as == self.dataset:
            yield "same_people_as must be another dataset."
        if self.supersedes and self.schedule:
            yield "supersedes must be left out with a schedule: of all its releases one alone could take that place."

    def _faults_of_levels(self) -> Iterator[str]:
        codes = {column for axis in self.axes for column in self.columns(axis)}
        if self.input.origin and self.input.origin == self.input.destination:
            yield "input.destination must not be the column of input.origin."
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
            if len(columns) not in {1, len(levels)}:
                yield (
                    f"input.{axis} must name one column, or one for each of the levels {', '.join(levels)};"
                    f" got {len(columns)}."
                )
            elif isinstance(hierarchy, Hierarchy) and hierarchy.table is None and len(columns) != len(levels):
                which = "a feature has" if self.input.features else f"input.{axis} names"
                yield (
                    f"{key}.table must be given: {which} one column, and without a codebook each of the levels"
                    f" {', '.join(levels)} takes one."
                )
            if finest not in levels:
                yield f"release.finest must be one of the levels {', '.join(levels)}, got {finest}."

    def _faults_of_features(self) -> Iterator[str]:
        features, order = self.input.features, self.release.order
        if features is None or order is None:
            return
        if set(order) != set(features):
            odd = next(iter({*order} ^ {*features}))
            wrong = f"it lacks {odd}" if odd in features else f"{odd} is none of them"
            yield f"release.order must list each of input.features once: {wrong}."
        for name in self.release.finest if isinstance(self.release.finest, dict) else ():
            if name not in features:
                yield f"release.finest must name features, got {name}."
        columns = [column_name(name, level, self.flat_features) for name in features for level in self.levels(name)]
        seen = {*NUMBERS, NOISY, VARIANCE}
        for column in columns:
            if column.casefold() in seen:
                yield f"input.features would make two columns of the published tables be called {column}."
            seen.add(column.casefold())

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes, in the order in which tables show them: the ends of trips, or the features."""
        return AXES if self.input.features is None else tuple(self.input.features)

    @property
    def flat_features(self) -> frozenset[str]:
        """Those features that have one level."""
        return frozenset(axis for axis in self.input.features or () if len(self.levels(axis)) == 1)

    def columns(self, axis: str) -> list[str]:
        """Return the columns of an axis in the confidential table; a feature's is named as it is."""
        return [axis] if self.input.features is not None else getattr(self.input, axis)

    def hierarchy_of(self, axis: str) -> tuple[str, Hierarchy | Values]:
        """Return the codebook of an axis, or its codes, behind the key that names it."""
        if isinstance(self.hierarchy, Hierarchy):
            return "hierarchy", self.hierarchy
        of_axis = self.hierarchy[axis] if isinstance(self.hierarchy, dict) else getattr(self.hierarchy, axis)
        return f"hierarchy.{axis}", of_axis

    def levels(self, axis: str) -> list[str]:
        """Return the codebook's levels of an axis, coarse to fine; the one level of listed codes is called as their feature."""
        hierarchy = self.hierarchy_of(axis)[1]
        return hierarchy.levels if isinstance(hierarchy, Hierarchy) else [axis]

    def finest(self, axis: str) -> str:
        """Return the finest released level of an axis."""
        finest = self.release.finest
        if finest is None or isinstance(finest, dict):
            return (finest or {}).get(axis, self.levels(axis)[-1])
        return finest if isinstance(finest, str) else getattr(finest, axis)


def by_feature(keys: dict[str, Any]) -> dict[str, Any]:
    """Return a spec's keys with those marked that are said by feature, where there are features."""
    domains, release = keys.get("hierarchy"), keys["release"]
    if keys["input"].get("features") is None:
        return keys
    if isinstance(domains, dict):
        keys = keys | {"hierarchy": _PerFeature(domains)}
    if isinstance(release.get("finest"), dict):
        keys = keys | {"release": release | {"finest": _PerFeature(release["finest"])}}
    return keys


def _faults_of_kind(keys: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a mixture of trips and features, before any key is read by itself."""
    given = {f"{part}.{key}" for part in ("input", "release") for key, value in keys[part].items() if value is not None}
    of_features = "input.features" in given
    for key in _OF_TRIPS if of_features else _OF_FEATURES:
        if key in given:
            others = "input.features is given" if of_features else "input.features is not"
            yield f"{key} must be left out where {others}: a release is of trips or of features."
    for key in _OF_FEATURES if of_features else (*_OF_TRIPS, "release.finest"):
        if key not in given:
            yield f"{key} must be given."
    if not of_features:
        return
    features, domains = as_list(keys["input"]["features"]), keys.get("hierarchy")
    if isinstance(features, list) and all(isinstance(name, str) for name in features) and isinstance(domains, dict):
        for name in features:
            if name not in domains:
                yield f"hierarchy.{name} must be given: the domain of a feature."
        for name in domains if features else ():
            if name not in features:
                yield f"hierarchy.{name} must be left out: it is none of input.features."
    finest = keys["release"].get("finest")
    if finest is not None and not isinstance(finest, dict):
        yield "release.finest must say {feature: level} where there are features."
