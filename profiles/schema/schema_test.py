#!/usr/bin/python3
"""The schemas are valid, every profile fits the one, and a results file written by xblk fits the other.

Usage: schema_test.py PROFILES_DIRECTORY RESULTS_JSON
"""
import copy
import json
import pathlib
import sys

import jsonschema
import yaml


def load_schema(path):
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def expect_refused(validator, document, what):
    if validator.is_valid(document):
        sys.exit(f"the schema accepts {what}")


def main(profiles, results_file):
    profile_schema = load_schema(profiles / "schema" / "profile.schema.json")
    found = sorted(profiles.glob("*.yaml"))
    if not found:
        sys.exit(f"no profile in {profiles}")
    for path in found:
        try:
            profile_schema.validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        except jsonschema.ValidationError as error:
            sys.exit(f"{path}: {error.message}")
    expect_refused(profile_schema, {"name": "x", "store": "null:1GiB", "matrx": {}}, "an unknown key")
    expect_refused(profile_schema, {"name": "x", "store": "disk:1GiB"}, "an unknown store")

    results_schema = load_schema(profiles / "schema" / "results.schema.json")
    results = json.loads(results_file.read_text(encoding="utf-8"))
    results_schema.validate(results)
    for pointer, value in ((("version",), 2), (("points", 0, "status"), "fine"), (("points", 0, "iops", "median"), "x"),
                           (("points", 0, "repeats", 0, "latency_ns", "sideways"), {})):
        bad = copy.deepcopy(results)
        node = bad
        for step in pointer[:-1]:
            node = node[step]
        node[pointer[-1]] = value
        expect_refused(results_schema, bad, f"{value!r} at {pointer}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
