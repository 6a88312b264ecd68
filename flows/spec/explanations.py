"""Explanations of the keys of a spec, read from the docstrings of its classes.

The starter spec, the reference and `trellis check` explain a key with its line in the *Attributes* section.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize
from pydantic.fields import FieldInfo

Model = type[BaseModel]

_NAMES: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    ByteSize: "bytes, such as 4GB",
    Any: "anything",
}


def summary(model: Model) -> str:
    """Return the first paragraph of a class's docstring, in one line."""
    return " ".join(cleandoc(model.__doc__ or "").split("\n\n")[0].split())


def explanation(model: Model, key: str) -> str:
    """Return a key's line in the docstring of its class, or else the summary of the section below it, or else empty text."""
    section = re.search(r"^Attributes:\n((?:[ ]+.*\n?|\n)+)", cleandoc(model.__doc__ or ""), re.MULTILINE)
    of_key = re.search(rf"^    {re.escape(key)}: (.*(?:\n {{8,}}.*)*)", section[1], re.MULTILINE) if section else None
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


def takes_one_for_a_list(key: FieldInfo) -> bool:
    """Return whether a key takes one text in place of a list of texts."""
    return _as_list_in(key.metadata) or any(
        _as_list_in([*get_args(part)[1:]]) for part in _parts(key.annotation) if get_origin(part) is Annotated
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield a type and the alternatives that it joins."""
    yield annotation
    if get_origin(annotation) in {Union, UnionType}:
        yield from get_args(annotation)


def _as_list_in(metadata: list[Any]) -> bool:
    return any(getattr(_function(rule), "__name__", "") == "as_list" for rule in metadata)


def sections_in(key: FieldInfo) -> list[Model]:
    """Return the classes of all sections that a key may hold, at any depth, each once."""
    return list(dict.fromkeys(_models(key.annotation)))


def describe_type(key: FieldInfo) -> str:
    """Return the type of a key's value, in words."""
    return _describe_type(key.annotation, key.metadata)


def describe_default(key: FieldInfo) -> str:
    """Return the default of a key as YAML; empty where there is none, or where the default is None or a section."""
    if key.is_required():
        return ""
    default = key.get_default(call_default_factory=True, validated_data={})
    if default is None or isinstance(default, BaseModel):
        return ""
    return {True: "true", False: "false"}[default] if isinstance(default, bool) else str(default)


def rules(key: FieldInfo) -> list[str]:
    """Return the rules of a key's value: its bounds, and what its validators refuse by their docstrings."""
    described = [key.description] if key.description else []
    return list(dict.fromkeys([*described, *_rules(key.annotation, key.metadata)]))


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


def _describe_type(annotation: Any, metadata: list[Any]) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _describe_type(parts[0], [*parts[1:]])
    if origin in {Union, UnionType}:
        return " or ".join(dict.fromkeys(_describe_type(part, []) for part in parts if part is not NoneType))
    if origin is Literal:
        return " or ".join(f"`{str(value).lower() if isinstance(value, bool) else value}`" for value in parts)
    if origin in {list, tuple}:
        of = _describe_type(parts[0], [])
        many = "texts" if of == "text" else "numbers" if of == "number" else of
        return f"text or list of {many}" if _as_list_in(metadata) and of == "text" else f"list of {many}"
    if origin is dict:
        return f"for each name {_describe_type(parts[1], [])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "{" + ", ".join(f"{name}: …" for name in annotation.model_fields) + "}"
    return _NAMES.get(annotation, "text")


def _rules(annotation: Any, metadata: list[Any]) -> Iterator[str]:
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation) if get_origin(annotation) is not Annotated else ():
            yield from _rules(part, [])
    if get_origin(annotation) is Annotated:
        first, *rest = get_args(annotation)
        yield from _rules(first, rest)
    for rule in metadata:
        if isinstance(rule, FieldInfo):
            if rule.description:
                yield rule.description
                continue
            yield from _rules(None, rule.metadata)
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
            if getattr(rule, name, None) is not None:
                yield f"{sign} {getattr(rule, name):,}"
        if getattr(rule, "min_length", None):
            yield "not empty"
        refused = (
            re.search(r"[Rr]efuse ([^.]*)\.", cleandoc(_function(rule).__doc__ or "")) if _function(rule) else None
        )
        if refused:
            yield f"refuses {' '.join(refused[1].split())}"


def _function(rule: Any) -> Any:
    return rule.func if isinstance(rule, AfterValidator | BeforeValidator) else None
