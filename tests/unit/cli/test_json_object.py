"""What `--json` prints of the values that commands return."""

import json
from dataclasses import dataclass

from flows.cli.json_object import json_object


@dataclass(frozen=True, slots=True)
class Inner:
    """A value in a value, with a key that Python keeps for itself."""

    from_: str
    low: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """A value with an optional key in front of the others."""

    release: str | None = None
    found: bool
    parts: tuple[Inner, ...]
    by_name: dict[str, Inner | None]


def test_keys_are_the_fields_in_their_order() -> None:
    """Values in lists, tuples and mappings become objects too, and the underscore of `from_` is no part of the key."""
    value = Outer(release="a", found=True, parts=(Inner("x", 1),), by_name={"some": Inner("y", 2), "none": None})
    assert json.dumps(json_object(value)) == (
        '{"release": "a", "found": true, "parts": [{"from": "x", "low": 1}],'
        ' "by_name": {"some": {"from": "y", "low": 2}, "none": null}}'
    )


def test_only_an_optional_key_is_left_out() -> None:
    """A field whose default is None is absent while it is None; one without a default is null."""
    value = Outer(found=False, parts=(Inner("x", None),), by_name={})
    assert json_object(value) == {"found": False, "parts": [{"from": "x", "low": None}], "by_name": {}}
