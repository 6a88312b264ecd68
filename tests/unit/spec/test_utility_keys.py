"""The section `utility` of a spec: what it says of `fleet`, what is refused, and that no release depends on it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.spec.file import is_same_spec, parse_spec
from storage.errors import SpecError
from tests.support.spec import SPEC

FLEET = {"period": "hour", "minutes": 60, "capacity": 8, "durations": "data/minutes.csv"}
STOPS = {"table": "stops.csv", "levels": ["zone", "district", "stop"]}
FEATURES = {
    "input": {"table": "trips.csv", "features": ["from", "hour", "to"]},
    "hierarchy": {"from": STOPS, "to": STOPS, "hour": {"values": 24}},
    "release": {"order": ["hour", "from", "to"], "finest": {"from": "district"}},
}
PURPOSE = {
    "input": {"table": "trips.csv", "features": ["from", "hour", "to", "purpose"]},
    "hierarchy": FEATURES["hierarchy"] | {"purpose": {"values": 3}},
    "release": {"order": ["hour", "from", "to", "purpose"]},
}
UNLISTED = {
    "hierarchy": FEATURES["hierarchy"] | {"from": {"levels": ["zone"]}},
    "release": {"order": ["hour", "from", "to"]},
}


def spec_of(fleet: dict[str, Any], **keys: Any) -> Any:
    """Return the spec of features with a section for `fleet`."""
    given = {key: value for key, value in fleet.items() if value is not None}
    text = yaml.safe_dump(SPEC | FEATURES | {"utility": {"fleet": given}} | keys)
    return parse_spec(text, Path("spec.yaml")).spec


def terms(fleet: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Return what the measure is given of origin, destination and zone."""
    spec = spec_of(fleet, **keys)
    found = spec.utility.fleet.terms(spec.released_levels)
    return {key: found[key] for key in ("origin", "destination", "zone")}


def test_what_is_left_out_is_filled_in() -> None:
    """The other two features are the ends, in their order, and the coarsest level is the zone."""
    assert terms(FLEET) == {"origin": "from", "destination": "to", "zone": ("zone", "zone")}
    turned = terms(FLEET | {"origin": "to", "zone": "district"})
    assert turned == {"origin": "to", "destination": "from", "zone": ("district", "district")}
    each = terms(FLEET | {"zone": ["district", "zone"]})
    assert each["zone"] == ("district", "zone")
    named = terms(FLEET | {"origin": "from", "destination": "to"}, **PURPOSE)
    assert (named["origin"], named["destination"]) == ("from", "to")


@pytest.mark.parametrize(
    ("changed", "keys", "field", "told"),
    [
        ({"period": "hours"}, {}, "utility.fleet.period", "must be one of input.features (from, hour, to), got hours. Did you mean hour?"),
        ({"origin": "fro"}, {}, "utility.fleet.origin", "Did you mean from?"),
        ({"origin": "hour"}, {}, "utility.fleet", "another feature for period, origin and destination each"),
        ({}, PURPOSE, "utility.fleet.origin", "must be given: besides the named ones there are 3 features"),
        ({"origin": "from"}, PURPOSE, "utility.fleet.destination", "must be given: besides the named ones there are 2 features"),
        ({"zone": "zones"}, {}, "utility.fleet.zone", "released levels of from (zone, district), got zones. Did you mean zone?"),
        ({"zone": "stop"}, {}, "utility.fleet.zone", "released levels of from (zone, district), got stop."),
        ({"zone": ["zone"] * 3}, {}, "utility.fleet.zone", "one level for both ends, or one for each; got 3"),
        ({"zone": []}, {}, "utility.fleet.zone", "got 0"),
        ({"minutes": 0}, {}, "utility.fleet.minutes", "must be a finite number > 0, got 0"),
        ({"minutes": float("inf")}, {}, "utility.fleet.minutes", "must be a finite number > 0, got inf"),
        ({"capacity": 0}, {}, "utility.fleet.capacity", "must be >= 1, got 0"),
        ({"capacity": 2.5}, {}, "utility.fleet.capacity", "must be a whole number"),
        ({"seats": 2}, {}, "utility.fleet.seats", "is not a key of the spec"),
        ({}, UNLISTED, "utility.fleet", "needs hierarchy.from.table"),
        ({}, {key: SPEC[key] for key in FEATURES}, "utility.fleet", "needs input.features"),
        *(({key: None}, {}, f"utility.fleet.{key}", "must be given") for key in FLEET),
        ({}, {"utility": {"flet": FLEET}}, "utility", "got flet. Did you mean fleet?"),
        ({}, {"utility": {"fleet": 3}}, "utility.fleet", "must be keys with values"),
        ({}, {"utility": 3}, "utility", "utility"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changed: dict[str, Any], keys: dict[str, Any], field: str, told: str) -> None:
    """Features and levels that do not exist, numbers out of range, and codes without a codebook are refused by their key."""
    with pytest.raises(SpecError) as refused:
        spec_of(FLEET | changed, **keys)
    assert refused.value.field == field
    assert told in str(refused.value)


def test_no_release_depends_on_it() -> None:
    """A spec with the section asks for the same release as without, and the manifest does not have it."""
    bare = yaml.safe_dump(SPEC | FEATURES)
    text = yaml.safe_dump(SPEC | FEATURES | {"utility": {"fleet": FLEET}})
    assert is_same_spec(bare, text)
    assert parse_spec(text, Path("spec.yaml")).published() == parse_spec(bare, Path("spec.yaml")).published()
