"""The JSON Schema of specs, made from their classes: editors complete and check a spec by it.

It knows the keys, their types, bounds and explanations. Rules between keys are for `trellis check`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ByteSize
from pydantic.fields import FieldInfo

from flows.spec.explanations import Model, explanation, options, sections_in, summary, takes_one_for_a_list
from flows.spec.keys import Spec
from flows.spec.sections.hierarchy import Ordered, Values
from flows.spec.sections.input import Input

SCHEMA = Path(__file__).with_name("spec.schema.json")  # comes with the package

_CODE = {"type": ["string", "integer"]}  # YAML reads some codes as numbers
_SWITCH = {"enum": ["on", "off", "yes", "no"]}  # which YAML 1.2, that editors read, takes for text


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
            of_key = _lenient(of_model["properties"][key], info)
            of_model["properties"][key] = {"description": explanation(model, key), **of_key}
    schema["properties"]["mechanism"]["enum"] = list(mechanisms)
    values = schema["$defs"][Values.__name__]
    values["properties"]["values"]["anyOf"] = [
        {"type": "integer", "minimum": 1},
        {"type": "array", "items": _CODE, "minItems": 1},
    ]
    schema["$defs"][Values.__name__] = {"anyOf": [values, {"type": "array", "items": _CODE, "minItems": 1}]}
    schema["$defs"][Input.__name__]["anyOf"] = [{"required": ["table"]}, {"required": ["matrix"]}]
    ordered = schema["$defs"][Ordered.__name__]["properties"]["ordered"]["anyOf"]
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


def _default(schema: dict[str, Any]) -> dict[str, Any]:
    return {"default": schema["default"]} if "default" in schema else {}


def _any_of(schema: Any) -> Any:
    """Return a schema that takes a value of which several kinds could be: which one it is, the spec decides."""
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
