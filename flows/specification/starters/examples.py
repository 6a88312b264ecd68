"""How a starter spec writes YAML: values in one line, comments, and an example for each key that has no default to show."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.specification.explanations import describe_default, options

_WIDTH = 110  # columns

# Examples for optional keys that have no default to show.
_EXAMPLES = {
    "same_people_as": "another-dataset",
    "supersedes": "earlier-release-20260101T000000Z",
    "input.features": "[sex, age]",
    "input.count": "count",
    "input.unit": "person_id",
    "input.matrix": "od.omx::trips",
    "input.csv.separator": '";"',
    "input.csv.encoding": "windows-1252",
    "input.csv.decimal": '","',
    "input.zones": "zones",
    "input.origin": "home",
    "input.destination": "work",
    "release.order": "[sex, age]",
    "release.grid": "[hour, day]",
    "priority": "false_positives",
    "measure": "auto",
    "privacy.exact_records_per_unit": "true",
    "privacy.rho": "0.02",
    "privacy.target.max_error": "50",
    "privacy.target.confidence": "0.95",
    "privacy.invariants": "[]",
    "utility.fleet.period": "hour",
    "utility.fleet.minutes": "60",
    "utility.fleet.capacity": "8",
    "utility.fleet.durations": "minutes.csv",
    "utility.fleet.origin": "from",
    "utility.fleet.destination": "to",
    "utility.fleet.zone": "district",
    "run.max_memory": "4GB",
    "schedule.cron": '"0 3 1 * *"',
    "schedule.until": "12 releases",
    "expected_total": "100000",
}


def example(path: str, info: FieldInfo, levels: Sequence[str] = ("area",)) -> str:
    """Return the default of a key, or an example for it, as YAML; `levels` are those of the areas, or the features."""
    if default := describe_default(info):
        return default
    if path in _EXAMPLES:
        return _EXAMPLES[path]
    if path in {"privacy.distinct", "privacy.target.level"}:
        return as_yaml(levels[-1])
    if path == "release.finest":
        return "{" + f"{as_yaml(levels[-1])}: {as_yaml(levels[-1])}" + "}"
    return _of_type(info)


def _of_type(info: FieldInfo) -> str:
    """Return an example value of a key's type."""
    types = options(info.annotation)
    named = [value for option in types if get_origin(option) is Literal for value in get_args(option)]
    if named:
        texts = [value for value in named if isinstance(value, str)]
        return as_yaml(texts[0] if texts else named[0])
    first = types[0]
    if isinstance(first, type) and issubclass(first, BaseModel):
        return "{" + ", ".join(f"{key}: {example('', of_key)}" for key, of_key in first.model_fields.items()) + "}"
    return {bool: "true", int: "1", float: "1.0"}.get(first, "…")


def comment(text: str, indent: str) -> list[str]:
    """Return the lines of a comment, which ends with a full stop."""
    ended = text if not text or text.endswith(".") else f"{text}."
    return textwrap.wrap(
        ended, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
    )


def as_yaml(value: str | Sequence[str] | Mapping[str, str]) -> str:
    """Return a text, or texts in a list or by key, as YAML in one line."""
    written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6, sort_keys=False)
    return written.removesuffix("...\n").strip()
