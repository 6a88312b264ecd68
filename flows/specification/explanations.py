"""Explanations of the keys of a spec, read from the docstrings of its classes.

The starter spec, the reference and `trellis check` explain a key with its line in the *Attributes* section.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Model = type[BaseModel]


def summary(model: Model) -> str:
    """Return the first paragraph of a class's docstring, in one line."""
    return " ".join(cleandoc(model.__doc__ or "").split("\n\n")[0].split())


def explanation(model: Model, key: str) -> str:
    """Return a key's line in the docstring of its class or of one above, or else the summary of the section below it, or else empty text."""
    for own in model.__mro__:  # an inherited key is explained where it stands
        section = re.search(r"^Attributes:\n((?:[ ]+.*\n?|\n)+)", cleandoc(own.__doc__ or ""), re.MULTILINE)
        of_key = (
            re.search(rf"^    {re.escape(key)}: (.*(?:\n {{8,}}.*)*)", section[1], re.MULTILINE) if section else None
        )
        if of_key:
            return " ".join(of_key[1].split())
    below = sections_in(model.model_fields[key])
    return summary(below[0]) if len(below) == 1 else ""


def next_step(model: Model, path: str) -> str:
    """Return the explanation of the key at a dotted path, or of the known key with the closest name.

    Empty where the path leads to a name from the spec itself, such as a feature.
    """
    key, _, rest = path.partition(".")
    if key not in model.model_fields:
        closest = get_close_matches(key, model.model_fields, 1)
        return f"Did you mean {closest[0]}? {closest[0]}: {explanation(model, closest[0])}" if closest else ""
    below = section_of(model.model_fields[key])
    if rest and below:
        return next_step(below, rest)
    return f"{key}: {explanation(model, key)}"


def section_of(key: FieldInfo) -> Model | None:
    """Return the class of the section that a key holds; None where it may hold anything else."""
    there = options(key.annotation)
    only = there[0] if len(there) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def sections_in(key: FieldInfo) -> list[Model]:
    """Return the classes of all sections that a key may hold, at any depth, each once."""
    return list(dict.fromkeys(_models(key.annotation)))


def describe_default(key: FieldInfo) -> str:
    """Return the default of a key as YAML; empty where there is none, or where the default is None or a section."""
    if key.is_required():
        return ""
    default = key.get_default(call_default_factory=True, validated_data={})
    if default is None or isinstance(default, BaseModel):
        return ""
    return {True: "true", False: "false"}[default] if isinstance(default, bool) else str(default)


def options(annotation: Any) -> list[Any]:
    """Return the alternative types of a value, without annotations and without None."""
    if get_origin(annotation) is Annotated:
        return options(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return [option for part in get_args(annotation) for option in options(part)]
    return [] if annotation is NoneType else [annotation]


def _models(annotation: Any) -> Iterator[Model]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _models(part)
