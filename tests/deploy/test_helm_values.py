"""The Helm chart's values checked against its schema in Python, without helm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.acceptance.conftest import ROOT

CHART = ROOT / "deploy/kubernetes/helm"
VALUES: Any = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Any = json.loads((CHART / "values.schema.json").read_text())
DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))
SHARED = {"storage": {"engine": "postgres", "maxBytes": "60GiB"}, "replicas": 3}
MONITORED = {"monitoring": {"enabled": True}}


def merged(values: Any, own: Any) -> Any:
    """Merge values like helm with `--set` and `--values`."""
    if not isinstance(values, dict) or not isinstance(own, dict):
        return own
    return {**values, **{name: merged(values.get(name), value) for name, value in own.items()}}


def problems(values: Any) -> list[str]:
    Draft7Validator.check_schema(SCHEMA)
    return [f"{each.json_path}: {each.message}" for each in Draft7Validator(SCHEMA).iter_errors(values)]


@pytest.mark.parametrize("own", [{}, SHARED, MONITORED, {**SHARED, **MONITORED}])
def test_schema_accepts_the_values_of_the_chart(own: Any) -> None:
    """
    The schema accepts the chart's own values, also with PostgreSQL or with monitoring. Otherwise nobody could
    install the chart.
    """
    assert [] == problems(merged(VALUES, own))


@pytest.mark.parametrize("own", [{"replica": 2}, {"storage": {"engine": "mysql"}}, {"storage": {"max": "1"}}])
def test_the_schema_refuses_a_value_that_the_chart_does_not_know(own: Any) -> None:
    assert 1 == len(problems(merged(VALUES, own)))


def test_sqlite_has_one_pod() -> None:
    """Two pods with SQLite would have two ledgers. The schema accepts none while the gateway is stopped."""
    assert [] == problems(merged(VALUES, {"replicas": 0}))
    assert problems(merged(VALUES, {"replicas": 2})) == ["$.replicas: 2 is greater than the maximum of 1"]


def closed_tables(schema: Any, values: Any, name: str = "") -> Iterator[tuple[str, set[str], set[str]]]:
    """
    Yield each table whose names the schema restricts: its name, the schema's names, and the values' names.
    """
    if schema.get("additionalProperties") is False:
        yield name, set(schema["properties"]) - {"global"}, set(values)
        for inner, part in schema["properties"].items():
            yield from closed_tables(part, values.get(inner, {}), f"{name}.{inner}")


def test_values_and_schema_have_the_same_names() -> None:
    """Values and schema have the same names, so a new value must be in both. `global` belongs to Helm."""
    for name, described, given in closed_tables(SCHEMA, VALUES):
        assert described == given, name


def value(name: str) -> Any:
    found = VALUES
    for part in name.split("."):
        found = found[part]
    return found


def named_in(paths: list[Path], pattern: str) -> set[str]:
    return {name for path in paths for name in re.findall(pattern, path.read_text())}


def test_the_templates_and_the_documents_name_values_of_the_chart() -> None:
    """Templates and pages refer only to values of the chart, as `.Values.x` or as `--set x=`."""
    used = named_in(sorted((CHART / "templates").iterdir()), r"\.Values\.([\w.]+)")
    options = named_in(DOCUMENTS, r"--set ([\w.]+)=")
    assert used and options
    for name in used | options:
        value(name)
