"""What a spec leaves undecided: values that are still FILL IN, and keys that stand there without the value that they need."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from flows.specification.explanations import explanation, next_step, sections_in
from flows.specification.keys import Spec
from flows.specification.yaml import keys_in, line_of
from storage.errors import SpecError

FILL_IN = "FILL IN"  # the value of a key that the data owner has not decided
UNDECIDED = "undecided"
# a value alone, however it is written; and the value with a remark behind it, as in FILL IN (ask the owner)
_MARK = re.compile(r"\W*(?i:fill[\s_-]+in)\W*|\s*FILL IN\s*[(:,;].*", re.DOTALL)
_AMOUNTS = ("privacy.epsilon", "privacy.rho", "privacy.target")
_OF_THE_OWNER = (
    *("dataset", "input.count", "input.unit", "hierarchy.table", "hierarchy.levels", "release.finest", "privacy.unit"),
    *("privacy.neighbours", "privacy.max_records_per_unit", *_AMOUNTS, "privacy.delta"),
    *("budget.epsilon", "budget.delta"),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """A key that the data owner decides, the line of the spec that it stands in, its value as YAML or `undecided`, and what it is for."""

    field: str
    line: int | None
    value: str
    purpose: str


class Undecided(SpecError):
    """A spec leaves something undecided.

    Attributes:
        decisions: those that its author has made, and those that are left, in the order of the spec.
    """

    decisions: Sequence[Decision] = ()


def left_in(keys: Mapping[str, Any]) -> list[str]:
    """Return the keys that are still FILL IN, and those of the owner's decisions that stand there without a value.

    ε, ρ, a target and targets of levels are one decision: where one of them is made, the others may stand there without a value.
    """
    is_costed = any(value_at(keys, field) is not None for field in (*_AMOUNTS, "privacy.split.targets"))
    empty = [field for field in (*_OF_THE_OWNER, "budget") if value_at(keys, field, field) is None]
    return [*dict.fromkeys([*marked_in(keys), *(field for field in empty if not (is_costed and field in _AMOUNTS))])]


def marked_in(value: Any, path: str = "", within: tuple[int, ...] = ()) -> Iterator[str]:
    """Yield the keys whose value is still FILL IN, or a list that has it, by their dotted paths."""
    if isinstance(value, str) and _MARK.fullmatch(value):
        yield path
    if id(value) in within:  # an alias may form a cycle
        return
    below = (*within, id(value))
    if isinstance(value, Mapping):
        for key, item in value.items():
            place = f"{path}.{key}" if path else str(key)
            yield from [place] if key == FILL_IN else marked_in(item, place, below)
    elif isinstance(value, list):
        entries = (
            item for item in value if not isinstance(item, str) or item.strip() == FILL_IN
        )  # `fill in` may be a code
        yield from dict.fromkeys(key for item in entries for key in marked_in(item, path, below))


def value_at(keys: Mapping[str, Any], field: str, absent: Any = None) -> Any:
    """Return what stands at a dotted path, or something else where nothing does."""
    value: Any = keys
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return absent
        value = value[part]
    return value


def undecided(field: str) -> Undecided:
    """Return the fault of one key of a spec that is undecided."""
    return Undecided(f"{field} is undecided.", field=field, hint=purpose(field))


def all_undecided(text: str, fields: Sequence[str]) -> Undecided:
    """Return the refusal of a spec with all keys that are undecided, their lines, and the decisions beside them."""
    fault = undecided(fields[0])
    if fields[1:]:
        listed = ", ".join(f"{field} (line {line_of(text, field)})" for field in fields)
        message = f"The spec leaves {len(fields)} keys undecided: {listed}."
        hint = f"Write your decision in place of each {FILL_IN}. `trellis check SPEC` says what each key is for."
        fault = Undecided(message, field=fields[0], hint=hint)
    decisions, keys = list[Decision](), keys_in(text)
    for field in dict.fromkeys([*_OF_THE_OWNER, *fields]):
        value = value_at(keys, field)
        if value is not None or field in fields:
            written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6, sort_keys=False)
            shown = UNDECIDED if field in fields else written.removesuffix("...\n").strip()
            decisions.append(Decision(field, line_of(text, field), shown, purpose(field)))
    fault.decisions = sorted(decisions, key=lambda of: of.line or 0)
    return fault


def purpose(field: str) -> str:
    """Return what the key at a dotted path is for, as one sentence; empty for a name that the spec does not know."""
    top, last = field.partition(".")[0], field.rpartition(".")[2]
    below = sections_in(Spec.model_fields[top]) if top != field and top in Spec.model_fields else [Spec]
    said = next((explanation(of, last) for of in below if last in of.model_fields), "")
    first = (said or next_step(Spec, field).partition(": ")[2]).split(". ")[0].rstrip(".")
    return f"{first}." if first else ""
