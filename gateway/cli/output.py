"""Output of commands: JSON, tables and single objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import orjson

from spool.printable import json_for_people, printable

JsonObject = dict[str, Any]  # a request or a response of the operator API

as_json = click.option("--json", "as_json", is_flag=True, help="Print the operator API's response as JSON.")


def show_json(payload: object) -> None:
    click.echo(json_for_people(payload, option=orjson.OPT_INDENT_2))


def show_fields(fields: Mapping[str, Any]) -> None:
    rows = [{"field": name.replace("_", " "), "value": value} for name, value in fields.items()]
    show_table(rows, ("field", "value"))


def show_table(
    rows: Sequence[JsonObject], columns: Sequence[str], titles: Mapping[str, str] | None = None
) -> None:
    """Print a table. `titles` maps columns to headings that differ from the column name."""
    known = titles or {}
    heads = [known.get(name, name.replace("_", " ")) for name in columns]
    lines = [[printable(head).upper() for head in heads]]
    lines += [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    elif isinstance(value, dict):
        text = ", ".join(f"{name}={'-' if item is None else item}" for name, item in value.items())
    else:
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return printable(text) or "-"
