"""The YAML of a spec, read strictly: no repeated key, and plain values as they are written."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from storage.errors import SpecError


def keys_in(text: str) -> dict[str, Any]:
    """Return the keys of a spec as they are written, whatever is wrong with them.

    Raises:
        SpecError: it is not YAML, or no mapping.
    """
    try:
        keys = yaml.load(text, Loader=_NoRepeats)  # noqa: S506 (a safe loader)
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        hint = (
            "A text with brackets, braces, “: ” or “ #” in it stands in quotes; keys of one section are indented alike."
        )
        raise SpecError(f"The spec is not YAML{line}.", field="SPEC", hint=hint) from None
    if not isinstance(keys, dict):
        raise SpecError("The spec must be a YAML mapping of keys to values.", field="SPEC")
    return keys


# YAML takes the braces of `${NAME}` for those of a mapping where it stands inside one: while a text is read, these stand
# in their place, from the range that Unicode leaves to everybody.
_OPEN, _CLOSE = "\ue000", "\ue001"

# A whole number that reads as it is written: 01, 0x1f and 1_000 do not, and 1:30 would be ninety.
_PLAIN_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


class _NoRepeats(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, where YAML's own reader would let the last one win.

    `${NAME}` may stand anywhere without quotes, and codes and names of a hierarchy that look like numbers are as written.
    """

    def __init__(self, text: str) -> None:
        super().__init__(re.sub(r"\$\{(\w+)\}", rf"${_OPEN}\1{_CLOSE}", text))

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value == "hierarchy":
                _keep_as_written(value)
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        return re.sub(rf"\${_OPEN}(\w+){_CLOSE}", r"${\1}", super().construct_scalar(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise SpecError(f"{key} stands twice in one place of the spec.", field=str(key))
        return super().construct_mapping(node, deep)


def _keep_as_written(node: yaml.Node) -> None:
    """Make text of the whole numbers in a part of a spec that YAML would read as others than are written."""
    seen: set[int] = set()  # an alias may lead back
    left = [node]
    while left:
        if id(part := left.pop()) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, yaml.ScalarNode):
            if part.tag == "tag:yaml.org,2002:int" and not _PLAIN_NUMBER.fullmatch(part.value):
                part.tag = "tag:yaml.org,2002:str"
        elif isinstance(part, yaml.MappingNode):
            left += [of_pair for pair in part.value for of_pair in pair]
        else:
            left += part.value
