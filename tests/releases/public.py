"""
The public names of this build, one per line as KIND NAME: what docs/promises/versioning.md promises.

A release has its names in `tests/releases/VERSION/public.txt`. A later build must have them all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import click

from docs.generate.configuration import tables
from exporters.lake.columns import COLUMNS
from gateway.cli import main
from gateway.http.openapi import openapi_document
from gateway.monitoring.metrics import ProcessMetrics
from gateway.monitoring.snapshot import FIGURES
from gateway.operations.files.kinds import file_kinds
from gateway.service.addresses.table import ADDRESSES
from spool.registry.scopes import SCOPES
from tests.processes.copied import ROOT

EXIT_CODE = re.compile(r"(?:[Ee]xit codes?(?: is)?(?: then)?|\bwith) (\d)\b")
WIRE_NAME = re.compile(r"tollhouse(?:\.\w+)+")


@cache
def names() -> frozenset[str]:
    found = (*_api(), *_commands(), *_metrics(), *_settings(), *_log_lines(), *_stored())
    return frozenset(found)


def describe_removed(version: str, before: Collection[str], now: Collection[str]) -> list[str]:
    """Return a line for each name that a release has and this build lacks."""
    return [f"{name}: public since {version}" for name in sorted(set(before) - set(now))]


def _api() -> Iterator[str]:
    described = openapi_document(ADDRESSES, version="")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            if isinstance(operation, dict) and "responses" in operation:
                yield f"operation {method.upper()} {path}"
                yield from (
                    f"parameter {method.upper()} {path} {each['name']}"
                    for each in operation.get("parameters", [])
                    if "name" in each
                )
    for name, schema in described["components"]["schemas"].items():
        yield from (f"field {name}.{field}" for field in _fields(schema))
    yield from (f"scope {name}" for name in SCOPES)


def _fields(schema: Any) -> Iterator[str]:
    """Yield the fields of a schema and of the schemas in it, as paths."""
    if isinstance(schema, list):
        for each in schema:
            yield from _fields(each)
    if isinstance(schema, dict):
        for name, inner in schema.get("properties", {}).items():
            yield name
            yield from (f"{name}.{each}" for each in _fields(inner))
        for word in ("items", "anyOf", "oneOf", "allOf", "additionalProperties"):
            yield from _fields(schema.get(word))


def _commands() -> Iterator[str]:
    pending: list[tuple[str, click.Command]] = [("tollhouse", main)]
    while pending:
        path, command = pending.pop()
        yield f"command {path}"
        for option in command.params:
            yield from (f"option {path} {name}" for name in option.opts)
        yield from (f"exit-code {path} {code}" for code in EXIT_CODE.findall(_help(command)))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner and not inner.hidden:
                    pending.append((f"{path} {name}", inner))


def _help(command: click.Command) -> str:
    options = (each.help or "" for each in command.params if isinstance(each, click.Option))
    return " ".join(" ".join([command.help or "", *options]).split())


def _metrics() -> Iterator[str]:
    for figure in FIGURES:
        yield f"metric tollhouse_{figure.name}"
        yield from (f"label tollhouse_{figure.name} {label}" for label in figure.labels)
    for family in ProcessMetrics().registry.collect():
        yield f"metric {family.name}"
        for sample in family.samples:
            yield from (f"label {family.name} {label}" for label in sample.labels)


def _settings() -> Iterator[str]:
    for table in tables():
        section = table.header.strip("[]")
        yield from (f"setting {section}.{key.name}".replace(" .", " ") for key in table.keys)
    for name, kind in file_kinds().items():
        yield from (f"file-field {name} {field}" for field in kind.field_names)


def _log_lines() -> Iterator[str]:
    for package in ("exporters", "gateway", "spool"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if "extra=" in text:
                yield from _extras(ast.parse(text))


def _extras(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield "log-field " + str(key.value)
                    if key.value == "action" and isinstance(value, ast.Constant):
                        yield "log-action " + str(value.value)


def _stored() -> Iterator[str]:
    """Yield the columns of the lake, and the names on the wire to another Tollhouse."""
    yield from (f"lake-column {name}" for name in COLUMNS)
    for path in (ROOT / "exporters/otlp").rglob("*.py"):
        yield from (f"wire {name}" for name in WIRE_NAME.findall(path.read_text()))
