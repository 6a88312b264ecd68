"""What the keys of a spec may hold, read from its classes: in words, and as a JSON Schema.

Editors complete and check a spec by the schema. It knows the keys, their types, bounds and explanations. Rules between keys
are for `trellis check`.
"""

import re
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize
from pydantic.fields import FieldInfo

from flows.specification.explanations import Model, explanation, options, sections_in, summary
from flows.specification.keys import Spec
from flows.specification.sections.hierarchy import Ordered, Values
from flows.specification.sections.input import Input
from flows.specification.undecided import FILL_IN

# Keys that only some specs need, and which specs must give them.
MUST_BE_GIVEN = {
    "input.table": "must be given for trips without input.matrix, and for features and group sizes",
    **dict.fromkeys(
        ("input.origin", "input.destination"),
        "must be given for trips, left out with input.matrix, for features and for group sizes",
    ),
    "release.tree": "must be given for trips without release.grid, left out for features and group sizes",
    "input.features": "must be given for features, left out for trips and group sizes",
    "release.order": "must be given for features without release.grid, left out for trips and group sizes",
    **dict.fromkeys(
        ("input.group", "release.group_sizes"), "must be given for group sizes, left out for trips and features"
    ),
    "release.finest": "must be given for trips, may be left out for features, left out for group sizes",
}

_CODE = {"type": ["string", "integer"]}  # YAML reads some codes as numbers
_SWITCH = {"enum": ["on", "off", "yes", "no"]}  # which YAML 1.2, that editors read, takes for text


_NAMES: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    ByteSize: "bytes, such as 4GB",
    Any: "anything",
}


def describe_type(key: FieldInfo) -> str:
    """Return the type of a key's value, in words."""
    return _describe_type(key.annotation, key.metadata)


def rules(key: FieldInfo) -> list[str]:
    """Return the rules of a key's value: its bounds, and what its validators refuse by their docstrings."""
    described = [key.description] if key.description else []
    return list(dict.fromkeys([*described, *_rules(key.annotation, key.metadata)]))


def spec_schema(mechanisms: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of a spec.

    Args:
        mechanisms: the names that `mechanism` may have.
    """
    schema = Spec.model_json_schema()
    for model in _models(Spec):
        of_model = schema if model is Spec else schema["$defs"][model.__name__]
        of_model["description"] = summary(model)
        for key, info in model.model_fields.items():
            of_key = _may_be_undecided(
                _lenient(of_model["properties"][key], info) if key != "unlisted" else dict(_CODE)
            )
            of_model["properties"][key] = {"description": explanation(model, key), **of_key}
    schema["properties"]["mechanism"]["enum"] = [*mechanisms, FILL_IN]
    values = schema["$defs"][Values.__name__]
    values["properties"]["values"]["anyOf"] = [
        {"type": "integer", "minimum": 1},
        {"type": "array", "items": _CODE, "minItems": 1},
        {"const": FILL_IN},
    ]
    schema["$defs"][Values.__name__] = {"anyOf": [values, {"type": "array", "items": _CODE, "minItems": 1}]}
    schema["$defs"][Input.__name__]["anyOf"] = [{"required": ["table"]}, {"required": ["matrix"]}]
    of_order = schema["$defs"][Ordered.__name__]  # what is taken from a column may have codes of its own
    del of_order["required"]
    of_order["anyOf"] = [{"required": [key]} for key in ("ordered", "from")]
    ordered = of_order["properties"]["ordered"]["anyOf"]
    ordered[:] = [{**kind, "items": _CODE, "minItems": 1} if kind.get("type") == "array" else kind for kind in ordered]
    schema |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A release spec of Trellis"}
    _drop_titles(schema)
    any_of: dict[str, Any] = _any_of(schema)
    return any_of


def _models(model: Model) -> Iterator[Model]:
    """Yield a class and those of all sections below it, each once."""
    seen, left = set[Model](), [model]
    while left:
        found = left.pop()
        if found not in seen:
            seen.add(found)
            yield found
            left += [below for info in found.model_fields.values() for below in sections_in(info)]


def _lenient(schema: dict[str, Any], info: FieldInfo) -> dict[str, Any]:
    """Return the schema of a key that accepts what is read as its type: one text for a list, 4GB for bytes, off for false."""
    kinds, also = options(info.annotation), list[dict[str, Any]]()
    if takes_one_for_a_list(info):
        also.append({"type": "string"})
    if ByteSize in kinds:
        also.append({"type": "string", "pattern": r"^[0-9.]+ *[kKMGTP]?i?B?$"})
    of_literals = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    if bool in kinds or any(isinstance(value, bool) for value in of_literals):
        also.append(_SWITCH)
    return {"anyOf": [*schema.pop("anyOf", [{**schema}]), *also]} | _default(schema) if also else schema


def _may_be_undecided(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a key that also accepts the mark of what is undecided, where it takes no keys of its own and no text."""
    kinds = schema.get("anyOf", [schema])
    if any("$ref" in of or (of.get("type") == "string" and not {"pattern", "enum"} & of.keys()) for of in kinds):
        return schema
    return {"anyOf": [*schema.pop("anyOf", [{**schema}]), {"const": FILL_IN}]} | _default(schema)


def _default(schema: dict[str, Any]) -> dict[str, Any]:
    return {"default": schema["default"]} if "default" in schema else {}


def _any_of(schema: Any) -> Any:
    """Return a schema that takes any of several kinds of value."""
    if isinstance(schema, list):
        return [_any_of(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {"anyOf" if key == "oneOf" else key: _any_of(part) for key, part in schema.items()}


def _drop_titles(schema: Any) -> None:
    """Remove the titles that repeat the names of keys."""
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        if isinstance(part, dict) and isinstance(part.get("title"), str):
            del part["title"]
        _drop_titles(part)


def takes_one_for_a_list(key: FieldInfo) -> bool:
    """Return whether a key takes one text in place of a list of texts."""
    return _as_list_in(key.metadata) or any(
        _as_list_in([*get_args(part)[1:]]) for part in _parts(key.annotation) if get_origin(part) is Annotated
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield a type and the alternatives that it joins, at any depth."""
    yield annotation
    if get_origin(annotation) in {Union, UnionType, Annotated}:
        for part in get_args(annotation)[: 1 if get_origin(annotation) is Annotated else None]:
            yield from _parts(part)


def _as_list_in(metadata: list[Any]) -> bool:
    return any(getattr(_function(rule), "__name__", "") == "as_list" for rule in metadata)


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
