"""What `--json` prints: the values that commands return, as JSON has them."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def json_object(value: Any) -> Any:
    """Return a value in the types of JSON: a dataclass becomes an object whose keys are its fields, in their order.

    A field whose default is None is an optional key: it is left out while it is None. Any other field is always there.
    An underscore at the end of a field's name, which Python needs for `for_` and `from_`, is no part of the key.
    """
    if is_dataclass(value) and not isinstance(value, type):
        kept = ((field, getattr(value, field.name)) for field in fields(value))
        return {
            field.name.removesuffix("_"): json_object(item)
            for field, item in kept
            if item is not None or field.default is not None
        }
    if isinstance(value, Mapping):
        return {key: json_object(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_object(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity: no ε holds at that δ
    return value
