"""Specs with other keys than those of a valid one, and a valid one of features."""

import copy
import re
from typing import Any

import yaml

from flows.planning.plan import make_plan
from flows.specification.file import parse_spec
from flows.specification.undecided import FILL_IN
from flows.specification.yaml import keys_in, line_of
from tests.support.spec import SPEC

Keys = dict[str, Any]

ABSENT = "(absent)"  # stands for no key
EDUCATION = "stage,grade\nlow,0\nlow,1\nhigh,2\nhigh,10\n"
ONE_PERSON = {"unit": "one person", "neighbours": "add_remove", "max_records_per_unit": 1}
PRIVACY = ONE_PERSON | {"epsilon": 1.0, "delta": 1e-8}
ADULT = SPEC | {
    "name": "adult",
    "input": {"table": "adult.csv", "features": ["sex", "race", "education"]},
    "hierarchy": {
        "sex": {"values": 2},
        "race": ["white", "black", 7],
        "education": {"table": "education.csv", "levels": ["stage", "grade"]},
    },
    "release": {"order": ["race", "sex", "education"]},
}


def changed(keys, changes):
    """Return the keys of a spec with some of them, by dotted names, set to other values or taken out."""
    keys = copy.deepcopy(keys)
    for name, value in changes.items():
        *above, last = name.split(".")
        part = keys
        for key in above:
            part = part.setdefault(key, {})
        if value is ABSENT:
            part.pop(last, None)
        else:
            part[last] = copy.deepcopy(value)
    return keys


def decided(starter, decisions=None):
    """Return a starter spec with every FILL IN replaced, by a decision of its own or else by what its comment gives as an example."""
    lines = starter.splitlines()

    def decide(value, path):
        if isinstance(value, dict):
            return {key: decide(of, f"{path}.{key}" if path else str(key)) for key, of in value.items()}
        if value != FILL_IN:
            return value
        if decisions and path in decisions:
            return decisions[path]
        line = lines[(line_of(starter, path) or 1) - 1]
        example = re.search(rf"{FILL_IN} # .*For example: (.+?)(?: or .+)?$", line)
        return yaml.safe_load(example[1]) if example else 2

    return yaml.safe_dump(decide(keys_in(starter), ""), sort_keys=False, allow_unicode=True)


def paths_of(keys, above=""):
    """Yield the dotted name of every key of a spec."""
    for key, value in keys.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from paths_of(value, f"{above}{key}.")


def features_of(codes, **keys):
    """Return the keys of a release of features with so many codes, or a whole domain, each, in this order."""
    domains = {name: {"values": of} if isinstance(of, int) else of for name, of in codes.items()}
    return {
        "name": "planned", "dataset": "made-up", "input": {"table": "people.csv", "features": [*codes]},
        "hierarchy": domains, "release": {"order": [*codes]}, "privacy": PRIVACY,
        "budget": {"epsilon": 10.0, "delta": 1e-7}, "mechanism": "inftda", **keys,
    }  # fmt: skip


def planned_of(folder, keys, changes=None):
    """Return the plan of a spec in a folder, with changes of its keys, over an empty table of people unless there is one."""
    (folder / "people.csv").touch()
    return make_plan(parse_spec(yaml.safe_dump(changed(keys, changes or {})), folder / "spec.yaml"))
