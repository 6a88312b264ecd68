"""The faults of a spec in words: what pydantic refuses becomes errors that name the key and the rule."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from flows.specification.keys import TAGS
from flows.specification.rules import Faults
from storage.errors import SpecError
from tasks.ingest.sources.locations import may_hold_credentials
from tasks.words.spelling import did_you_mean

_NO_DEFAULT = "default_factory_not_called"  # of a key that depends on others: their errors say what to mend


def spec_errors_of(fault: ValidationError) -> Iterator[SpecError]:
    """Yield what pydantic found wrong with the keys of a spec, in words: a fault for each key, and for each rule between keys."""
    for error in fault.errors():
        if error["type"] == _NO_DEFAULT:
            continue
        raised = error.get("ctx", {}).get("error")
        for message in raised.messages if isinstance(raised, Faults) else (str(raised),):
            yield _as_spec_error(error, message)


def _as_spec_error(error: Any, message: str) -> SpecError:  # one entry of pydantic's list, and the message of our rule
    field = ".".join(str(part) for part in error["loc"] if part not in TAGS)
    if error["type"] == "extra_forbidden":
        return SpecError(f"{field} is not a key of the spec.", field=field)
    if error["type"] == "missing":
        return SpecError(f"{field} must be given.", field=field)
    if error["type"] == "value_error":
        if field and isinstance(error.get("ctx", {}).get("error"), Faults):  # a rule about several keys of the section
            key = re.match(r"\w*", message)
            return SpecError(f"{field}.{message}", field=f"{field}.{key[0] if key else ''}")
        if field:
            return SpecError(f"{field} {message}", field=field)
        first, *_ = re.split(" (?:must|needs|would) ", message, maxsplit=1)  # a key, in which names may have spaces
        return SpecError(message, field=first)
    if error["type"] == "string_pattern_mismatch":
        return SpecError(f"{field} must be lower-case letters, digits and hyphens, at most 64.", field=field)
    return _of_another_kind(error, field)


# pydantic's name of an error, the name under which that error holds the bound, and its sign.
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
    """Return the error for a value that pydantic refuses before our rules see it."""
    kind, value, got = error["type"], error["input"], _as_yaml(error["input"])
    if error["loc"][-1] == "[key]":  # pydantic's mark for a key that is not text
        named = field.removesuffix(".[key]")
        return SpecError(f"{named}: a name must be text, got {got}; put it in quotes.", field=named)
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        return SpecError(f"{field} must be {sign} {error['ctx'][name]:,}, got {got}.", field=field)
    if kind in {"too_short", "string_too_short"}:
        return SpecError(f"{field} must not be empty.", field=field)
    if kind == "literal_error":
        expected = error["ctx"]["expected"].replace("'", "")
        return SpecError(
            f"{field} must be {expected}, got {got}.",
            field=field,
            hint=did_you_mean(str(value), re.split(r", | or ", expected)) if isinstance(value, str) else "",
        )
    wanted = _KINDS.get(kind.partition("_")[0])
    if wanted is None:
        return SpecError(f"{field}: {error['msg']}, got {got}.", field=field)
    as_text = "; put it in quotes" if wanted == "text" and not isinstance(value, dict | list | None) else ""
    return SpecError(f"{field} must be {wanted}, got {got}{as_text}.", field=field)


def _as_yaml(value: object) -> str:
    """Return a wrong value of a spec in words."""
    if isinstance(value, bool):
        return (
            f"{str(value).lower()} (YAML reads {'yes and on' if value else 'no and off'} as {str(value).lower()} too)"
        )
    if isinstance(value, dict | list):
        return "keys with values" if isinstance(value, dict) else "a list"
    if isinstance(value, str) and may_hold_credentials(value):
        return "a location"
    return "nothing" if value is None else f"“{value}”" if isinstance(value, str) else str(value)
