"""Reads the YAML of a spec strictly: no key may be repeated, and codes stay as they are written."""

import re
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any

import yaml
from yaml.composer import Composer

from storage.errors import SpecError


def keys_in(text: str) -> dict[str, Any]:
    """Return the keys of a spec as they are written, without checking them.

    Raises:
        SpecError: the text is not YAML, repeats a key, or is not a mapping.
    """
    try:
        keys = yaml.load(text, Loader=_NoRepeats)  # noqa: S506 (a safe loader)
    except RecursionError:
        raise SpecError(
            "The spec is nested too deep.",
            field="SPEC",
            hint="No key of a spec is more than a few levels below the top. Look for brackets that are not closed.",
        ) from None
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        hint = (
            "That line has a tab. YAML accepts only spaces before a key."
            if mark and "\t" in text.splitlines()[min(mark.line, text.count("\n"))]
            else "Put text that contains brackets, braces, “: ” or “ #” in quotes, and indent all keys of a section alike."
        )
        raise SpecError(f"The spec is not YAML{line}.", field="SPEC", hint=hint) from None
    if not isinstance(keys, dict):
        raise SpecError("The spec must be a YAML mapping of keys to values.", field="SPEC")
    return keys


def line_of(text: str, field: str) -> int | None:
    """Return the line of a key, by its dotted path, in a spec, or of the deepest section above it that is there; None for neither."""
    node, line = _root(text), None
    for part in field.split("."):
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        pair = next((pair for pair in pairs if pair[0].value == part), None)
        if pair is None:
            break
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


@lru_cache(maxsize=1)  # many lines of one text are asked for
def _root(text: str) -> yaml.Node | None:
    return _NoRepeats(text).get_single_node()


# Inside a mapping, YAML would read the braces of `${NAME}` as a mapping of its own. While a text is read, these two
# characters, from Unicode's private use area, replace the braces.
_OPEN, _CLOSE = "\ue000", "\ue001"

_CHANGED = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp"}  # what YAML may read as something else

# A whole number that YAML reads as it is written. It would change 01, 0x1f and 1_000, and read 1:30 as ninety.
_PLAIN_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


class _NoRepeats(Composer, yaml.CSafeLoader):
    """YAML in which a repeated key is an error; YAML's own reader would keep the last value.

    `${NAME}` needs no quotes anywhere. Codes and names of a hierarchy that look like numbers or days stay as they are written.
    libyaml scans the text; Python composes the nodes, since libyaml's composer crashes where they are nested too deep.
    """

    def __init__(self, text: str) -> None:
        Composer.__init__(self)
        yaml.CSafeLoader.__init__(self, re.sub(r"\$\{(\w+)\}", rf"${_OPEN}\1{_CLOSE}", text))

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value == "hierarchy":
                _keep_as_written(value)
        for part in _parts_of(node) if node else ():
            for name, value in part.value if isinstance(part, yaml.MappingNode) else ():
                for key, _ in value.value if name.value == "csv" and isinstance(value, yaml.MappingNode) else ():
                    if key.tag == "tag:yaml.org,2002:null":  # the key `null`
                        key.tag = "tag:yaml.org,2002:str"
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        return re.sub(rf"\${_OPEN}(\w+){_CLOSE}", r"${\1}", super().construct_scalar(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise SpecError(f"{key} must appear only once in its section of the spec.", field=str(key))
        return super().construct_mapping(node, deep)


def _keep_as_written(node: yaml.Node) -> None:
    """Turn days in a part of a spec into text, and whole numbers where YAML would change how they are written."""
    for part in _parts_of(node):
        if isinstance(part, yaml.ScalarNode):
            is_number = part.tag == "tag:yaml.org,2002:int" and _PLAIN_NUMBER.fullmatch(part.value)
            if part.tag in _CHANGED and not is_number:
                part.tag = "tag:yaml.org,2002:str"


def _parts_of(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield a node and all below it, each once."""
    seen: set[int] = set()  # an alias may form a cycle
    left = [node]
    while left:
        if id(part := left.pop()) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, yaml.MappingNode):
            left += [of_pair for pair in part.value for of_pair in pair]
        elif isinstance(part, yaml.SequenceNode):
            left += part.value
