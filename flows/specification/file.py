"""Reads a spec file and checks its keys, before a table is read or budget is spent."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError, create_model

from flows.specification.explanations import next_step
from flows.specification.faults import NO_KEY, spec_errors_of
from flows.specification.keys import Spec
from flows.specification.kinds import by_axis
from flows.specification.rules import Keys, wrong_key
from flows.specification.sections.hierarchy import Csv, Hierarchy, Ordered
from flows.specification.sections.privacy import Target
from flows.specification.sections.schedule import second_run_of_a_day
from flows.specification.undecided import all_undecided, left_in, undecided, value_at
from flows.specification.yaml import keys_in, line_of
from storage.errors import SpecError, TrellisError, UsageError
from tasks.ingest.areas import ANY_LEVEL, CODE, Boundaries, Labels
from tasks.ingest.codebook import ListedCodes, Recode, Unlisted
from tasks.ingest.derived import DerivedSource
from tasks.ingest.groups import GroupSource, ListedGroups
from tasks.ingest.sources.files import FileTable
from tasks.ingest.sources.locations import is_url, matrix_at, published_location, shapes_at, table_at
from tasks.ingest.sources.matrices import COUNT
from tasks.ingest.tables import Table
from tasks.ingest.takes import Take
from tasks.ingest.task import TableSource
from tasks.ingest.trips import AxisSource
from tasks.tree.ordered import OrderedAxis, with_unlisted
from tasks.words.spelling import refinement

T = TypeVar("T", bound=TrellisError)

# A guess of the total may tell what the counts hide; the others say nothing of a release.
_NOT_PUBLISHED = ("output", "run", "expected_total", "utility")

_OF_NO_RELEASE = ("run", "utility")


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec with the file that holds it.

    Attributes:
        spec: the checked keys.
        text: as written.
        path: of the file. Paths in the spec are relative to its folder.
        is_closed: whether the confidential table is not opened and need not be there; an empty file stands for one that is not.
    """

    spec: Spec
    text: str
    path: Path
    is_closed: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the file, to which paths in the spec are relative."""
        return self.path.parent

    def source(self) -> TableSource:
        """Return where the tables are; refuse a table that does not exist."""
        spec = self.spec
        axes = tuple(
            AxisSource(
                name=axis,
                field=f"input.{axis}" if spec.role_of(axis) else "input.features",
                columns=tuple(spec.columns(axis)),
                take=self._take(axis),
                unlisted=spec.hierarchy_of(axis)[1].unlisted,
                recode=self._recode(axis),
                codebook=self._codebook(axis),
                levels=tuple(spec.levels(axis)),
                finest=spec.finest(axis),
                own_area=spec.has_own_areas(axis),
                labels=self._labels(axis),
                boundaries=self._boundaries(axis),
            )
            for axis in spec.axes
        )
        count = COUNT if spec.input.matrix else spec.input.count
        source = TableSource(self._confidential(), count, axes, self._groups(), tuple(self._derived()))
        return replace(source, hashes={key: table.sha256() for key, table in source.public_tables.items()})

    def _confidential(self) -> Table:
        try:
            return self._place_of_confidential()
        except TrellisError:
            if not self.is_closed:
                raise
            return FileTable("input.table", Path(os.devnull))

    def _place_of_confidential(self) -> Table:
        keys = self.spec.input
        if keys.matrix is not None:
            location = expand_variables("input.matrix", keys.matrix)
            return matrix_at("input.matrix", location, self.folder, keys.zones, keys.csv.dialect if keys.csv else None)
        return self.table("input.table", keys.table or "", keys.csv)

    def _groups(self) -> GroupSource | None:
        keys, sizes = self.spec.input, self.spec.release.group_sizes
        if sizes is None or keys.group is None:
            return None
        listed = None
        if keys.groups is not None:
            table = self.table("input.groups.table", keys.groups.table)
            columns = tuple(keys.groups.group or keys.group)
            listed = ListedGroups(table, columns, (keys.groups.levels[0], *(keys.features or ())))
        return GroupSource(tuple(keys.group), sizes.largest, listed)

    def with_records(self) -> "SpecFile":
        """Return the spec with `release.records` set to true."""
        release = self.spec.release.model_copy(update={"records": True})
        return replace(self, spec=self.spec.model_copy(update={"release": release}))

    def table(self, field: str, location: str | list[str], csv: Csv | None = None) -> Table:
        """Return a table that the spec names, relative to its folder; refuse one that does not exist."""
        return table_at(field, expand_each(field, location), self.folder, csv.dialect if csv else None)

    def output(self) -> Path:
        """Return the folder in which releases are published."""
        return output_below(self.folder, self.spec.output)

    def published(self) -> dict[str, Any]:
        """Return the spec as written, unexpanded, with file names in place of paths and table names in place of databases, and without what says nothing of the counts."""
        kept = {key: value for key, value in keys_in(self.text).items() if key not in _NOT_PUBLISHED}
        return without_paths(kept)

    def _codebook(self, axis: str) -> Table | ListedCodes | OrderedAxis | Unlisted:
        key, hierarchy = self.spec.hierarchy_of(axis)
        if isinstance(hierarchy, Ordered):
            return hierarchy.axis(axis)
        if not isinstance(hierarchy, Hierarchy):
            return ListedCodes(axis, with_unlisted(hierarchy.values, hierarchy.unlisted))
        if hierarchy.table is None:
            return Unlisted(tuple(hierarchy.levels))
        return self.table(f"{key}.table", hierarchy.table, hierarchy.csv)

    def _take(self, axis: str) -> Take | None:
        taken = self.spec.taken(axis)
        return Take(taken.take or "", taken.zone or "", taken.edges, taken.first or 0) if taken else None

    def _recode(self, axis: str) -> Recode | None:
        key, hierarchy = self.spec.hierarchy_of(axis)
        of = hierarchy.recode
        return Recode(self.table(f"{key}.recode.table", of.table), getattr(of, "from"), of.to) if of else None

    def _derived(self) -> Iterator[DerivedSource]:
        for name, keys in self.spec.derived.items():
            of = tuple(place for one in keys.of if (place := refinement(one, self.spec.released_levels)))
            yield DerivedSource(name, self.table(f"derived.{name}.table", keys.table), of)

    def _labels(self, axis: str) -> Labels | None:
        key, hierarchy = self.spec.hierarchy_of(axis)
        if hierarchy.labels is None:
            return None
        field = f"{key}.labels"
        if isinstance(hierarchy.labels, str):
            codes_of = axis if isinstance(hierarchy, Ordered) else ""
            return Labels(field, {}, self.table(field, hierarchy.labels), codes_of)
        return Labels(field, hierarchy.labels)

    def _boundaries(self, axis: str) -> Boundaries | None:
        key, hierarchy = self.spec.hierarchy_of(axis)
        if not isinstance(hierarchy, Hierarchy) or hierarchy.boundaries is None:
            return None
        field, given = f"{key}.boundaries", hierarchy.boundaries
        by_level = {ANY_LEVEL: given} if isinstance(given, str) else given
        fields = {level: f"{field}.{level}" if level else field for level in by_level}
        files = {
            level: shapes_at(fields[level], expand_variables(fields[level], file), self.folder)
            for level, file in by_level.items()
        }
        return Boundaries(field, files, hierarchy.code or CODE)


def load_spec(path: Path) -> SpecFile:
    """Return the spec in a YAML file.

    Raises:
        SpecError: the file cannot be read, is not YAML, a key breaks a rule, or its schedule runs more than once a day. The
            error names the key.
    """
    file = parse_spec(text_of(path), path)
    check_daily(file.spec)
    return file


def check_daily(spec: Spec) -> None:
    """Refuse a schedule that runs more than once a day; a spec in the store is not asked, since its days are reserved.

    Raises:
        SpecError: the schedule runs twice on one day of its time zone.
    """
    schedule = spec.schedule
    twice = second_run_of_a_day(schedule.cron, schedule.timezone) if schedule else None
    if schedule and twice:
        first, second = (f"{moment:%H:%M}" for moment in twice)
        raise wrong_key(
            "schedule.cron",
            f"must run at most once a day, because the id of a release holds the day; {schedule.cron} runs at"
            f" {first} and at {second} on {twice[0]:%Y-%m-%d} ({schedule.timezone}).",
            hint="Name one minute and one hour, such as 0 3 * * *. For several releases a day, run `trellis release`, which"
            " names a release after the time.",
        )


def text_of(path: Path) -> str:
    """Return the text of a spec file.

    Raises:
        SpecError: there is no such file, or it is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"SPEC: {path} must be a text file that can be read.", field="SPEC") from None


def parse_spec(text: str, path: Path) -> SpecFile:
    """Return the spec in the text of a file, which may have changed since.

    Raises:
        Undecided: keys are still FILL IN, or have no value where they need one. The error lists them all.
        SpecError: the text is not YAML, or a key breaks a rule. The error names the key.
    """
    keys, first = keys_in(text), SpecError("")
    left = left_in(keys)
    try:
        if not left:
            return SpecFile(Spec.model_validate(keys), text, path.absolute())
    except ValidationError as fault:
        first = next(spec_errors_of(fault))
    left, _ = _left_and_wrong(text)
    raise located(all_undecided(text, left) if left else first, text)


def faults_of(text: str) -> list[SpecError]:
    """Return all faults of the keys of a spec, first what is undecided.

    Raises:
        SpecError: the text is not YAML.
    """
    left, wrong = _left_and_wrong(text)
    return [*map(undecided, left), *wrong]


def _left_and_wrong(text: str) -> tuple[list[str], list[SpecError]]:
    """Return the keys that are undecided, and all faults of the others; `load_spec` raises the first of them.

    Rules between keys are checked only where each key is valid, and a broken rule between keys hides faults of single keys.
    So this function also checks each section alone.
    """
    keys = keys_in(text)
    written, left, faults = keys, left_in(keys), list[SpecError]()

    def in_order(fields: list[str]) -> list[str]:
        return sorted(dict.fromkeys(fields), key=lambda field: line_of(text, field) or 0)

    def add(fault: ValidationError) -> None:
        found = [*spec_errors_of(fault)]
        faults.extend(found)
        left.extend(of.field for of in found if value_at(written, of.field, of) is None and NO_KEY not in str(of))

    try:
        check_daily(Spec.model_validate(keys))
    except ValidationError as fault:
        add(fault)
    except SpecError as fault:
        return in_order(left), [fault]
    else:
        return in_order(left), []
    if all(isinstance(keys.get(part), dict) for part in ("input", "release")):
        keys = by_axis(keys)
    for name in Spec.model_fields:
        try:
            _alone(name).model_validate({name: keys[name]} if name in keys else {})
        except ValidationError as fault:
            add(fault)
    faults += [SpecError(f"{name} {NO_KEY}", field=str(name)) for name in keys if name not in Spec.model_fields]
    open_keys = tuple(f"{field}." for field in left)
    wrong = {(of.field, str(of)): of for of in faults if not f"{of.field}.".startswith(open_keys)}
    return in_order(left), list(wrong.values())


@cache
def _alone(name: str) -> type[Keys]:
    """Return a spec that has one key of the first level, and no rules between keys."""
    key = Spec.model_fields[name]
    return create_model("Spec", __base__=Keys, **{name: (key.annotation, key)})  # type: ignore[call-overload, no-any-return]


def located(fault: T, text: str) -> T:
    """Return a fault of a spec whose hint names the line of its key, and says what the key is for, if it said nothing."""
    if fault.field in {"", "SPEC"} or "(line " in str(fault) or re.match(r"Line \d+\.", fault.hint):
        return fault
    line = line_of(text, fault.field)
    advice = fault.hint or (next_step(Spec, fault.field) if isinstance(fault, SpecError) else "")
    fault.hint = " ".join(part for part in (f"Line {line}." if line else "", advice) if part)
    return fault


def is_same_spec(text: str, other: str) -> bool:
    """Return whether two specs ask for the same release. Layout and the sections `run` and `utility` may differ."""
    try:
        one, two = keys_in(text), keys_in(other)
    except SpecError:
        return False
    left_out = dict.fromkeys(_OF_NO_RELEASE)
    return one | left_out == two | left_out


def keys_of_release(file: SpecFile) -> dict[str, Any]:
    """Return the keys of a spec on which its release depends, as written; where it is published is not among them."""
    kept = {key: value for key, value in keys_in(file.text).items() if key not in _NOT_PUBLISHED}
    if isinstance(kept.get("release"), dict):
        if file.spec.release.records:
            kept["release"] = kept["release"] | {"records": True}  # `--records` sets it, whatever the file says
        if file.spec.release.order:
            kept["release"] = {"order": file.spec.release.order} | kept["release"]  # which the file may leave out
    return kept


def places_in(keys: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths that a spec names, as written, by their keys."""
    for key, value in keys.items():
        if isinstance(value, Mapping) and key != "boundaries":
            yield from places_in(value, f"{path}{key}.")
        elif isinstance(value, Mapping):
            yield from ((f"{path}{key}.{level}", file) for level, file in value.items() if isinstance(file, str))
        elif key in _OF_FILES and isinstance(value, str | list):
            yield f"{path}{key}", value if isinstance(value, str) else "\n".join(value)


def declares_public_data(text: str) -> bool:
    """Return whether a spec says that anybody may see its table; false for a spec that cannot be read."""
    try:
        return keys_in(text).get("public_data") is True
    except SpecError:
        return False


def parse_target(text: str) -> Target:
    """Return the target written as `county=50@95%` (or `@0.95`).

    Raises:
        UsageError: the text does not have this form.
    """
    match = re.fullmatch(r"(?P<level>[^=]+)=(?P<error>[^@]+)@(?P<confidence>[0-9.]+)(?P<percent>%?)", text)
    try:
        if match:
            confidence = Fraction(match["confidence"]) / (100 if match["percent"] else 1)
            return Target(level=match["level"], max_error=float(match["error"]), confidence=float(confidence))
    except ValueError:
        pass
    raise UsageError(
        f"--for must have the form LEVEL=ERROR@CONFIDENCE, got {text}.", field="--for", hint="Example: county=50@95%."
    )


def expand_variables(field: str, text: str) -> str:
    """Return a path with `${NAME}` replaced from the environment.

    A path that begins with a variable is relative to the working directory, because the variable was set there. Other
    paths are relative to the spec.

    Raises:
        SpecError: a variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise SpecError(
                f"{field}: the environment variable {match[1]} is not set.", field=field, hint=f"Set {match[1]}."
            )
        given = os.environ[match[1]]
        return given if match.start() or is_url(given) else str(Path(given).expanduser().absolute())

    return re.sub(r"\$\{(\w+)\}", value, text)


def expand_each(field: str, location: str | list[str]) -> str | list[str]:
    """Return a path, or each of several, as `expand_variables` does."""
    if isinstance(location, str):
        return expand_variables(field, location)
    return [expand_variables(field, place) for place in location]


def output_below(folder: Path, output: str) -> Path:
    """Return the folder in which the releases of a spec are published, from its key `output` and its own folder."""
    return (folder / Path(expand_variables("output", output)).expanduser()).resolve()


_OF_FILES = {"table", "matrix", "labels", "boundaries"}


def without_paths(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of a spec with file names in place of paths, and table names in place of databases."""
    return {
        key: {level: published_location(file) if isinstance(file, str) else file for level, file in value.items()}
        if key == "boundaries" and isinstance(value, dict)
        else without_paths(value)
        if isinstance(value, dict)
        else published_location(value)
        if key in _OF_FILES and isinstance(value, str)
        else [published_location(place) for place in value]
        if key in _OF_FILES and isinstance(value, list)
        else value
        for key, value in keys.items()
    }
