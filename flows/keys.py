"""The keys of a spec: what a person may write, each with its rule."""

import math
from datetime import date
from typing import Annotated, Literal
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from flows.schedule import checked_cron, parse_until
from tasks.noise.sensitivity import MOST_RECORDS, SUBSTITUTION

AXES = ("origin", "destination")


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {str(value).lower()}.")  # noqa: TRY004 (pydantic wants a ValueError)
    return value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _differ(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("must name each column once.")
    return names


def _one_or_both(value: object) -> str:
    """Return whether a key holds one value for both ends of a trip, or one for each."""
    both = isinstance(value, HierarchyPerEnd | FinestPerEnd) or (
        isinstance(value, dict) and not set(AXES).isdisjoint(value)
    )
    return _PER_END if both else _ONE


def _kind_of_split(value: object) -> str:
    """Return whether a split is named, a ratio, the weight of the finest level, or a list."""
    if isinstance(value, Finest) or (isinstance(value, dict) and "finest" in value):
        return _BY_FINEST
    if isinstance(value, dict | Geometric):
        return _BY_RATIO
    return _BY_LIST if isinstance(value, list) else _BY_NAME


def _positive(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"must be a finite number > 0, got {value:g}.")
    return value


def _known_timezone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError(f"must be a time zone such as Europe/Rome, got {name}.")
    return name


def _as_text(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value  # as YAML reads a day


def _end_of_series(until: str) -> str:
    parse_until(until)
    return until


def _between(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"must be > 0 and < 1, got {value:g}.")
    return value


LEAST_MEMORY = 256_000_000  # bytes

# pydantic puts these among the keys of an error
_ONE, _PER_END = "<one for both ends>", "<one per end>"
_BY_NAME, _BY_RATIO, _BY_FINEST, _BY_LIST = "<by name>", "<by ratio>", "<by finest>", "<by list>"
TAGS = {_ONE, _PER_END, _BY_NAME, _BY_RATIO, _BY_FINEST, _BY_LIST}

Number = Annotated[float, BeforeValidator(_no_boolean)]
Positive = Annotated[Number, AfterValidator(_positive)]
Delta = Annotated[Number, AfterValidator(_between)]
Confidence = Annotated[Number, AfterValidator(_between)]
Name = Annotated[str, Field(min_length=1)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Columns = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1), AfterValidator(_differ)]


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(_Keys):
    """The confidential table and its columns."""

    table: str
    origin: Columns
    destination: Columns
    count: Name | None = None
    unit: Name | None = None


class Hierarchy(_Keys):
    """A public codebook and its columns, coarse to fine."""

    table: str
    levels: Annotated[list[str], Field(min_length=1), AfterValidator(_differ)]


class HierarchyPerEnd(_Keys):
    """A codebook for each end of a trip."""

    origin: Hierarchy
    destination: Hierarchy


class FinestPerEnd(_Keys):
    """The finest released level for each end of a trip."""

    origin: str
    destination: str


class ReleaseKeys(_Keys):
    """Which tree, and how deep.

    Attributes:
        csv: whether the finest level is published as CSV too; if left out, up to five million rows.
    """

    tree: Literal["destination", "origin"]
    finest: Annotated[Annotated[str, Tag(_ONE)] | Annotated[FinestPerEnd, Tag(_PER_END)], Discriminator(_one_or_both)]
    csv: Annotated[bool, Field(strict=True)] | None = None


class Target(_Keys):
    """An error bound that is asked for, in place of a budget."""

    level: str
    max_error: Positive
    confidence: Confidence


class Geometric(_Keys):
    """Shares of ρ each of which is so many times that of the level above."""

    geometric: Positive


class Finest(_Keys):
    """Equal shares of ρ for all levels but the finest, which has so many times as much."""

    finest: Positive


class PrivacyKeys(_Keys):
    """Who is protected, from what change, and how strongly."""

    unit: str = Field(min_length=1)
    neighbours: Literal["substitution", "add_remove"]
    max_records_per_unit: Annotated[int, BeforeValidator(_no_boolean), Field(ge=1, le=MOST_RECORDS, strict=True)]
    exact_records_per_unit: bool | None = None
    distinct: Name | None = None
    epsilon: Positive | None = None
    rho: Positive | None = None
    target: Target | None = None
    delta: Delta
    accountant: Literal["pld", "zcdp", "lemma"] | None = None
    split: Annotated[
        Annotated[Literal["uniform"], Tag(_BY_NAME)]
        | Annotated[Geometric, Tag(_BY_RATIO)]
        | Annotated[Finest, Tag(_BY_FINEST)]
        | Annotated[list[Positive], Field(min_length=1), Tag(_BY_LIST)],
        Discriminator(_kind_of_split),
    ] = "uniform"
    invariants: Annotated[list[str], BeforeValidator(_as_list)] = []
    i_accept_unprotected: bool = False

    @property
    def total_is_public(self) -> bool:
        """Whether every unit has the same number of records, so that no substitution moves the total."""
        exact = self.max_records_per_unit == 1 if self.exact_records_per_unit is None else self.exact_records_per_unit
        return self.neighbours == SUBSTITUTION and exact

    @model_validator(mode="after")
    def _fits_together(self) -> "PrivacyKeys":
        given = [key for key in ("epsilon", "rho", "target") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"epsilon, rho or target must be given, one of them; got {' and '.join(given) or 'none'}.")
        if self.exact_records_per_unit and self.neighbours != SUBSTITUTION:
            raise ValueError(
                "exact_records_per_unit says nothing under add_remove, where units come and go; leave it out."
            )
        if self.invariants and self.neighbours != SUBSTITUTION:
            raise ValueError("invariants cannot be kept under add_remove: one unit more would change them.")
        if self.invariants and not self.i_accept_unprotected:
            raise ValueError(
                "invariants are published exactly and not protected: say i_accept_unprotected: true if that must be."
            )
        return self


class BudgetKeys(_Keys):
    """The cap on all releases of a dataset together."""

    epsilon: Positive
    delta: Delta


class NoiseKeys(_Keys):
    """Who draws the noise, and nothing else about it: `opendp`, or the table sampler, which is faster."""

    sampler: Literal["opendp", "table"] = "opendp"


class RunKeys(_Keys):
    """How a release is run; what it publishes does not depend on it.

    Attributes:
        max_memory: for the arrays of all branches that are walked at once; a quarter of the machine if left out.
    """

    workers: Literal["threads", "processes"] = "threads"
    max_memory: Annotated[ByteSize, BeforeValidator(_no_boolean), Field(ge=LEAST_MEMORY)] | None = None


class ScheduleKeys(_Keys):
    """When releases are made, and how many or until which day; without an end each is reserved on its own day."""

    cron: Annotated[str, AfterValidator(checked_cron)]
    timezone: Annotated[str, AfterValidator(_known_timezone)] = "UTC"
    until: Annotated[str, BeforeValidator(_as_text), AfterValidator(_end_of_series)] | None = None


class Spec(_Keys):
    """A release spec. Unknown keys are refused.

    Attributes:
        priority: which of equally good counts are taken: those with few false positives (if left out) or few false negatives,
            or those nearest in the Euclidean norm.
        public_data: whether anybody may see the table, so that errors against the truth may be shown.
    """

    name: Slug
    dataset: Slug
    same_people_as: Slug | None = None
    input: Input
    hierarchy: Annotated[
        Annotated[Hierarchy, Tag(_ONE)] | Annotated[HierarchyPerEnd, Tag(_PER_END)], Discriminator(_one_or_both)
    ]
    release: ReleaseKeys
    mechanism: str
    priority: Literal["false_positives", "false_negatives", "least_squares"] | None = None
    privacy: PrivacyKeys
    budget: BudgetKeys | None = None
    noise: NoiseKeys = NoiseKeys()
    run: RunKeys = RunKeys()
    schedule: ScheduleKeys | None = None
    keep_noisy_counts: bool = True
    keep_vault: bool = False
    expected_total: Annotated[int, BeforeValidator(_no_boolean), Field(ge=1, strict=True)] | None = None
    public_data: Annotated[bool, Field(strict=True)] = False
    output: str = "out"

    @model_validator(mode="after")
    def _people_fit(self) -> "Spec":
        if self.same_people_as == self.dataset:
            raise ValueError("same_people_as must be another dataset.")
        return self

    @model_validator(mode="after")
    def _levels_fit(self) -> "Spec":
        if self.input.origin == self.input.destination:
            raise ValueError("input.destination must not be the column of input.origin.")
        if self.input.count in {*self.input.origin, *self.input.destination}:
            raise ValueError("input.count must not be a column of codes.")
        if self.input.unit and self.input.unit in {*self.input.origin, *self.input.destination, self.input.count}:
            raise ValueError("input.unit must not be a column of codes or counts.")
        distinct = self.privacy.distinct
        if distinct and not any(distinct in self.levels(axis) for axis in AXES):
            raise ValueError(f"privacy.distinct must be a level of the hierarchy, got {distinct}.")
        for axis in AXES:
            levels, columns, finest = self.levels(axis), getattr(self.input, axis), self.finest(axis)
            if len(columns) not in {1, len(levels)}:
                raise ValueError(
                    f"input.{axis} must name one column, or one for each of the levels {', '.join(levels)};"
                    f" got {len(columns)}."
                )
            if finest not in levels:
                raise ValueError(f"release.finest must be one of the levels {', '.join(levels)}, got {finest}.")
        return self

    def hierarchy_of(self, axis: str) -> tuple[str, Hierarchy]:
        """Return the codebook of an axis, behind the key that names it."""
        if isinstance(self.hierarchy, Hierarchy):
            return "hierarchy", self.hierarchy
        return f"hierarchy.{axis}", getattr(self.hierarchy, axis)

    def levels(self, axis: str) -> list[str]:
        """Return the codebook's levels of an axis, coarse to fine."""
        return self.hierarchy_of(axis)[1].levels

    def finest(self, axis: str) -> str:
        """Return the finest released level of an axis."""
        finest = self.release.finest
        return finest if isinstance(finest, str) else getattr(finest, axis)
