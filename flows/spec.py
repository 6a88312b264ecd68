"""The spec: what a person writes, checked before anything is read or spent."""

import math
import os
import re
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from storage.errors import SpecError
from storage.shards import sha256_of
from tasks.ingest.tables import Table, table_at
from tasks.ingest.task import AxisSource, Source

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


_ONE, _PER_END = "<one for both ends>", "<one per end>"  # pydantic puts these among the keys of an error
Number = Annotated[float, BeforeValidator(_no_boolean)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Columns = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1), AfterValidator(_differ)]


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(_Keys):
    """The confidential table and its columns."""

    table: str
    origin: Columns
    destination: Columns
    count: str | None = None


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
    """Which tree, and how deep."""

    tree: Literal["destination", "origin"]
    finest: Annotated[Annotated[str, Tag(_ONE)] | Annotated[FinestPerEnd, Tag(_PER_END)], Discriminator(_one_or_both)]


class _EpsilonDelta(_Keys):
    epsilon: Number
    delta: Number

    @field_validator("epsilon")
    @classmethod
    def _positive(cls, epsilon: float) -> float:
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"must be a finite number > 0, got {epsilon:g}.")
        return epsilon

    @field_validator("delta")
    @classmethod
    def _between(cls, delta: float) -> float:
        if not 0 < delta < 1:
            raise ValueError(f"must be > 0 and < 1, got {delta:g}.")
        return delta


class PrivacyKeys(_EpsilonDelta):
    """Who is protected, from what change, and how strongly."""

    unit: str = Field(min_length=1)
    neighbours: Literal["substitution"]
    max_records_per_unit: Annotated[Literal[1], BeforeValidator(_no_boolean)]


class BudgetKeys(_EpsilonDelta):
    """The cap on all releases of a dataset together."""


class Spec(_Keys):
    """A release spec. Unknown keys are refused."""

    name: Slug
    dataset: Slug
    input: Input
    hierarchy: Annotated[
        Annotated[Hierarchy, Tag(_ONE)] | Annotated[HierarchyPerEnd, Tag(_PER_END)], Discriminator(_one_or_both)
    ]
    release: ReleaseKeys
    mechanism: str
    privacy: PrivacyKeys
    budget: BudgetKeys | None = None
    keep_vault: bool = False
    output: str = "out"

    @model_validator(mode="after")
    def _levels_fit(self) -> "Spec":
        if self.input.origin == self.input.destination:
            raise ValueError("input.destination must not be the column of input.origin.")
        if self.input.count in {*self.input.origin, *self.input.destination}:
            raise ValueError("input.count must not be a column of codes.")
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


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec with the file that holds it.

    Attributes:
        spec: the checked keys.
        text: as written.
        folder: what paths in it are relative to.
    """

    spec: Spec
    text: str
    folder: Path

    def source(self) -> Source:
        """Return where the tables are; refuse those that do not exist."""
        axes = []
        for axis in AXES:
            key, hierarchy = self.spec.hierarchy_of(axis)
            codebook = self._table(f"{key}.table", hierarchy.table)
            columns = tuple(getattr(self.spec.input, axis))
            sha256 = sha256_of(codebook.path)
            axes.append(AxisSource(axis, columns, codebook, sha256, tuple(hierarchy.levels), self.spec.finest(axis)))
        return Source(self._table("input.table", self.spec.input.table), self.spec.input.count, tuple(axes))

    def output(self) -> Path:
        """Return the folder below which releases are published."""
        return (self.folder / Path(expand_variables("output", self.spec.output)).expanduser()).absolute()

    def published(self) -> dict[str, Any]:
        """Return the spec as written, unexpanded, with file names in place of paths."""
        return _without_paths({key: value for key, value in _parse(self.text).items() if key != "output"})

    def _table(self, field: str, location: str) -> Table:
        return table_at(field, expand_variables(field, location), self.folder)


def load_spec(path: Path) -> SpecFile:
    """Return the spec in a YAML file.

    Raises:
        SpecError: there is no such file, it is not YAML, or a key breaks a rule; names the key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"There is no spec that can be read at {path}.", field="SPEC") from None
    try:
        return SpecFile(Spec.model_validate(_parse(text)), text, path.absolute().parent)
    except ValidationError as fault:
        first = fault.errors()[0]
    raise _as_spec_error(first)


def expand_variables(field: str, text: str) -> str:
    """Return a path with `${NAME}` replaced from the environment.

    A path that begins with a variable is relative to the working directory, where the variable was set, and not to
    the spec.

    Raises:
        SpecError: a variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise SpecError(f"{field}: the environment has no {match[1]}.", field=field, hint=f"Set {match[1]}.")
        given = os.environ[match[1]]
        return given if match.start() else str(Path(given).expanduser().absolute())

    return re.sub(r"\$\{(\w+)\}", value, text)


class _NoRepeats(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, where YAML's own reader would let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise SpecError(f"{key} stands twice in one place of the spec.", field=str(key))
        return super().construct_mapping(node, deep)


def _parse(text: str) -> dict[str, Any]:
    try:
        keys = yaml.load(text, Loader=_NoRepeats)  # noqa: S506 (a safe loader)
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise SpecError(f"The spec is not YAML{line}.", field="SPEC") from None
    if not isinstance(keys, dict):
        raise SpecError("The spec must be a YAML mapping of keys to values.", field="SPEC")
    return keys


def _as_spec_error(error: Any) -> SpecError:  # one entry of pydantic's list
    field = ".".join(str(part) for part in error["loc"] if part not in {_ONE, _PER_END})
    if error["type"] == "extra_forbidden":
        return SpecError(f"{field} is not a key of the spec.", field=field)
    if error["type"] == "missing":
        return SpecError(f"{field} must be given.", field=field)
    if error["type"] == "value_error":
        message = str(error["ctx"]["error"])
        return SpecError(f"{field} {message}" if field else message, field=field or message.split(" ", 1)[0])
    if error["type"] == "string_pattern_mismatch":
        return SpecError(f"{field} must be lower-case letters, digits and hyphens, at most 64.", field=field)
    return SpecError(f"{field}: {error['msg']}, got {error['input']!r}.", field=field)


def _without_paths(keys: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_paths(value) if isinstance(value, dict) else Path(value).name if key == "table" else value
        for key, value in keys.items()
    }
