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

NO_KEY = "is not a key of the spec."
_NO_DEFAULT = "default_factory_not_called"  # of a key that depends on others: their errors say what to mend


def spec_errors_of(fault: ValidationError) -> Iterator[SpecError]:
    """Yield what pydantic found wrong with the keys of a spec, in words: a fault for each key, and for each rule between keys."""
    for error in fault.errors():
        if error["type"] == _NO_DEFAULT:
            continue
        raised = error.get("ctx", {}).get("error")
        for message in raised.messages if isinstance(raised, Faults) else (str(raised),):
            yield _as_spec_error(error, message)


def _field_of(error: Any) -> str:  # one entry of pydantic's list
    return ".".join(str(part) for part in error["loc"] if part not in TAGS)


def _as_spec_error(error: Any, message: str) -> SpecError:  # one entry of pydantic's list, and the message of our rule
    field = _field_of(error)
    if error["type"] == "value_error":
        if field and isinstance(error.get("ctx", {}).get("error"), Faults):  # a rule about several keys of the section
            key = re.match(r"\w*", message)
            return SpecError(f"{field}.{message}", field=f"{field}.{key[0] if key else ''}")
        if field:
            return SpecError(f"{field} {message}", field=field)
        first, *_ = re.split(" (?:must|needs|would) ", message, maxsplit=1)  # a key, in which names may have spaces
        return SpecError(message, field=first)
    if error["loc"][-1] == "[key]":  # pydantic's mark for a key that is not text
        field = field.removesuffix(".[key]")
        return SpecError(
            f"{field}: a name must be text, got {_as_yaml(error['input'])}; put it in quotes.", field=field
        )
    rule, hint = _rule(error)
    return SpecError(f"{field}{rule}", field=field, hint=hint)


# pydantic's name of an error, the name under which that error holds the bound, and its sign.
_BOUNDS = {"greater_than_equal": ("ge", ">="), "greater_than": ("gt", ">")}
_BOUNDS |= {"less_than_equal": ("le", "<="), "less_than": ("lt", "<")}
_RULES = {
    "extra_forbidden": f" {NO_KEY}",
    "missing": " must be given.",
    "string_pattern_mismatch": " must be lower-case letters, digits and hyphens, at most 64.",
    "too_short": " must not be empty.",
    "string_too_short": " must not be empty.",
}
_PER_AXIS = "With release.grid each axis may have a rule: split: {AXIS: {workload: prefix}, OTHER: wavelet}."
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


def _rule(error: Any) -> tuple[str, str]:
    """Return what pydantic refuses of a value before our rules see it, to follow its key, and what to do next."""
    kind, value, got = error["type"], error["input"], _as_yaml(error["input"])
    if kind in _RULES:
        return _RULES[kind], ""
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        return f" must be {sign} {error['ctx'][name]:,}, got {got}.", ""
    if kind == "literal_error":
        expected = error["ctx"]["expected"].replace("'", "")
        hint = did_you_mean(value, re.split(r", | or ", expected)) if isinstance(value, str) else ""
        return f" must be {expected}, got {got}.", hint
    if kind == "union_tag_invalid":
        ways = re.findall(r"<by ([^>]*)>", error["ctx"]["expected_tags"])
        return f" must be given by {' or '.join(ways)}, got {got}.", _PER_AXIS if "split" in error["loc"] else ""
    wanted = _KINDS.get(kind.partition("_")[0])
    if wanted is None:
        return f": {error['msg']}, got {got}.", ""
    as_text = "; put it in quotes" if wanted == "text" and not isinstance(value, dict | list | None) else ""
    return f" must be {wanted}, got {got}{as_text}.", ""


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
