"""The spec: a file of keys, checked before anything is read or spent."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import ValidationError, create_model

from flows.spec.hierarchy import Hierarchy
from flows.spec.keys import TAGS, Spec, by_feature
from flows.spec.privacy import PrivacyKeys, Target
from flows.spec.rules import Faults, Keys
from flows.spec.yaml import keys_in
from storage.errors import SpecError, UsageError
from storage.machine.files import sha256_of
from storage.releases.terms import RELEASED_CODES
from tasks.ingest.codebook import Unlisted, Values
from tasks.ingest.tables import Table, table_at
from tasks.ingest.task import AxisSource, Source


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec with the file that holds it.

    Attributes:
        spec: the checked keys.
        text: as written.
        path: where it is; paths in it are relative to its folder.
    """

    spec: Spec
    text: str
    path: Path

    @property
    def folder(self) -> Path:
        """What paths in it are relative to."""
        return self.path.parent

    def source(self) -> Source:
        """Return where the tables are; refuse those that do not exist."""
        spec = self.spec
        axes = tuple(
            AxisSource(
                name=axis,
                field="input.features" if spec.input.features else f"input.{axis}",
                columns=tuple(spec.columns(axis)),
                codebook=(codebook := self._codebook(axis)),
                sha256=_known_by(codebook),
                levels=tuple(spec.levels(axis)),
                finest=spec.finest(axis),
            )
            for axis in spec.axes
        )
        return Source(self._table("input.table", spec.input.table), spec.input.count, axes)

    def with_records(self) -> "SpecFile":
        """Return the same spec, which asks for synthetic records, whether it did or not."""
        release = self.spec.release.model_copy(update={"records": True})
        return replace(self, spec=self.spec.model_copy(update={"release": release}))

    def output(self) -> Path:
        """Return the folder below which releases are published."""
        return output_below(self.folder, self.spec.output)

    def published(self) -> dict[str, Any]:
        """Return the spec as written, unexpanded, with file names in place of paths."""
        return _without_paths({key: value for key, value in keys_in(self.text).items() if key != "output"})

    def _codebook(self, axis: str) -> Table | Values | Unlisted:
        key, hierarchy = self.spec.hierarchy_of(axis)
        if not isinstance(hierarchy, Hierarchy):
            return Values(axis, hierarchy.values)
        if hierarchy.table is None:
            return Unlisted(tuple(hierarchy.levels))
        return self._table(f"{key}.table", hierarchy.table)

    def _table(self, field: str, location: str) -> Table:
        return table_at(field, expand_variables(field, location), self.folder)


def load_spec(path: Path) -> SpecFile:
    """Return the spec in a YAML file.

    Raises:
        SpecError: there is no such file, it is not YAML, or a key breaks a rule; names the key.
    """
    return parse_spec(text_of(path), path)


def text_of(path: Path) -> str:
    """Return what is written in a spec's file.

    Raises:
        SpecError: there is no such file, or it is no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"There is no spec that can be read at {path}.", field="SPEC") from None


def parse_spec(text: str, path: Path) -> SpecFile:
    """Return the spec in a text that is, or was, in a file.

    Raises:
        SpecError: it is not YAML, or a key breaks a rule; names the key.
    """
    try:
        return SpecFile(Spec.model_validate(keys_in(text)), text, path.absolute())
    except ValidationError as fault:
        first = next(_as_spec_errors(fault))
    raise first


def faults_of(text: str) -> list[SpecError]:
    """Return all that is wrong with the keys of a spec, where `parse_spec` raises the first of it.

    What several keys are to each other can only be said where each is right by itself, and the other way round: where the
    keys do not fit together, each section is read alone too.

    Raises:
        SpecError: it is not YAML.
    """
    keys = keys_in(text)
    found: list[SpecError] = []
    try:
        Spec.model_validate(keys)
    except ValidationError as fault:
        found += _as_spec_errors(fault)
    if not found:
        return []
    if all(isinstance(keys.get(part), dict) for part in ("input", "release")):
        keys = by_feature(keys)
    for name, key in Spec.model_fields.items():
        alone = create_model("Spec", __base__=Keys, **{name: (key.annotation, key)})  # type: ignore[call-overload]
        try:
            alone.model_validate({name: keys[name]} if name in keys else {})
        except ValidationError as fault:
            found += _as_spec_errors(fault)
    found += [
        SpecError(f"{name} is not a key of the spec.", field=str(name))
        for name in keys
        if name not in Spec.model_fields
    ]
    return list({(fault.field, str(fault)): fault for fault in found}.values())


def is_same_spec(text: str, other: str) -> bool:
    """Return whether two specs ask for the same release, however they are laid out and on whatever machine it is run."""
    try:
        one, two = keys_in(text), keys_in(other)
    except SpecError:
        return False
    return one | {"run": None} == two | {"run": None}


def declares_public_data(text: str) -> bool:
    """Return whether a spec says that anybody may see its table; one that cannot be read says nothing."""
    try:
        return keys_in(text).get("public_data") is True
    except SpecError:
        return False


def parse_target(text: str) -> Target:
    """Return the target written as `county=50@95%` (or `@0.95`).

    Raises:
        UsageError: it is not written so.
    """
    match = re.fullmatch(r"(?P<level>[^=]+)=(?P<error>[^@]+)@(?P<confidence>[0-9.]+)(?P<percent>%?)", text)
    try:
        if match:
            confidence = Fraction(match["confidence"]) / (100 if match["percent"] else 1)
            return Target(level=match["level"], max_error=float(match["error"]), confidence=float(confidence))
    except ValueError:
        pass
    raise UsageError(
        f"--for must read LEVEL=ERROR@CONFIDENCE, got {text}.", field="--for", hint="Such as county=50@95%."
    )


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


def output_below(folder: Path, output: str) -> Path:
    """Return the folder below which the releases of a spec are published, from what it says and the folder that it is in."""
    return (folder / Path(expand_variables("output", output)).expanduser()).resolve()


def _known_by(codebook: Table | Values | Unlisted) -> str:
    if isinstance(codebook, Table):
        return sha256_of(codebook.path)
    return codebook.sha256 if isinstance(codebook, Values) else RELEASED_CODES


def _as_spec_errors(fault: ValidationError) -> Iterator[SpecError]:
    for error in fault.errors():
        raised = error.get("ctx", {}).get("error")
        for message in raised.messages if isinstance(raised, Faults) else (str(raised),):
            yield _as_spec_error(error, message)


def _as_spec_error(error: Any, message: str) -> SpecError:  # one entry of pydantic's list, and what a rule of ours says
    field = ".".join(str(part) for part in error["loc"] if part not in TAGS)
    if error["type"] == "extra_forbidden":
        return SpecError(f"{field} is not a key of the spec.", field=field)
    if error["type"] == "missing":
        return SpecError(f"{field} must be given.", field=field)
    if error["type"] == "value_error":
        key = re.match(r"\w*", message)
        if field == "privacy" and key and key[0] in PrivacyKeys.model_fields:  # a rule about several of its keys
            return SpecError(f"privacy.{message}", field=f"privacy.{key[0]}")
        return SpecError(f"{field} {message}" if field else message, field=field or message.split(" ", 1)[0])
    if error["type"] == "string_pattern_mismatch":
        return SpecError(f"{field} must be lower-case letters, digits and hyphens, at most 64.", field=field)
    return _of_another_kind(error, field)


# What pydantic finds, and how a spec is spoken of; where there is a bound, the error has it by this name.
_BOUNDS = {"greater_than_equal": ("ge", ">="), "greater_than": ("gt", ">")}
_BOUNDS |= {"less_than_equal": ("le", "<="), "less_than": ("lt", "<")}
_KINDS = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "list": "a list",
    "dict": "keys with values",
    "model": "keys with values",
    "byte": "bytes, such as 4GB",
}


def _of_another_kind(error: Any, field: str) -> SpecError:
    """Return what is to be said of a value that a key cannot have, and that no rule of ours was asked about."""
    kind, value, said = error["type"], error["input"], _as_yaml(error["input"])
    if error["loc"][-1] == "[key]":  # pydantic's mark for a name that is none
        named = field.removesuffix(".[key]")
        return SpecError(f"{named}: a name must be text, got {said}; put it in quotes.", field=named)
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        return SpecError(f"{field} must be {sign} {error['ctx'][name]:,}, got {said}.", field=field)
    if kind in {"too_short", "string_too_short"}:
        return SpecError(f"{field} must not be empty.", field=field)
    if kind == "literal_error":
        return SpecError(f"{field} must be {error['ctx']['expected'].replace(chr(39), '')}, got {said}.", field=field)
    wanted = _KINDS.get(kind.partition("_")[0])
    if wanted is None:
        return SpecError(f"{field}: {error['msg']}, got {said}.", field=field)
    as_text = "; put it in quotes" if wanted == "text" and not isinstance(value, dict | list | None) else ""
    return SpecError(f"{field} must be {wanted}, got {said}{as_text}.", field=field)


def _as_yaml(value: object) -> str:
    """Return in words what a spec says that is no value of a key."""
    if isinstance(value, bool):
        return f"{str(value).lower()} (so YAML reads {'yes and on' if value else 'no and off'} too)"
    if isinstance(value, dict | list):
        return "keys with values" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else f"“{value}”" if isinstance(value, str) else str(value)


def _without_paths(keys: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_paths(value)
        if isinstance(value, dict)
        else Path(value).name
        if key == "table" and isinstance(value, str)
        else value
        for key, value in keys.items()
    }
