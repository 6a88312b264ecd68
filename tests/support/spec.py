"""The spec of the small made-up country, of which every user begins."""

import yaml

SPEC = {
    "name": "synthetic",
    "dataset": "synthetic-country",
    "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "province", "municipality"]},
    "release": {"tree": "destination", "finest": "municipality"},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one commuter",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 4.0,
        "delta": 1.0e-8,
        "accountant": "zcdp",  # pld takes seconds in every process, and Rhode Island's release has it
    },
    "budget": {"epsilon": 10.0, "delta": 1.0e-7},
    "output": "out",
}


def spec_in(folder, keys, name="spec.yaml"):
    """Write a spec into a folder, and return its path."""
    (folder / name).write_text(yaml.dump(keys, Dumper=yaml.CSafeDumper))
    return folder / name


def of_features(table, hierarchy, **keys):
    """Return the keys of a spec of features, with others of its input."""
    also = {"hierarchy": hierarchy, "release": {"order": [*hierarchy]}}
    of_input = {"table": table, "features": [*hierarchy], "also": also} | keys
    return dict.fromkeys(("origin", "destination", "count")) | of_input
