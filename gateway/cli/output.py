"""Output of commands: JSON, CSV, tables and single objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import click
import orjson

from gateway.cli.amounts import rows_with_amount_texts
from spool.printable import CONFIDENCE_WORDS, csv_lines, printable_json, replace_unprintable
from spool.record import CURRENCY, utc_iso

JsonObject = dict[str, Any]  # a request or a response of the operator API
OutputForm = Literal["json", "csv"]

JSON_HELP = "Print the operator API's response as JSON."
as_json = click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
_as_json_form = click.option("--json", "form", flag_value="json", help=JSON_HELP)
_as_csv_form = click.option(
    "--csv", "form", flag_value="csv", help="Print the rows as CSV, with every field."
)

# Words of the glossary for names of fields, and for values of these fields. JSON and CSV keep the API's names.
HEADS: Mapping[str, str] = {
    "sender": "Tollhouse key",
    "api_key": "gateway's own key",
    "model_family": "model",
    "provider_family": "provider",
    "real_cost": "all costs",
    "metered_cost": "pay-as-you-go",
    "covered_cost": "covered by seats",
    "included_value": "included usage",
    "beyond": "extra usage",
    "unknown": "sent, no answer",
    "ambiguous": "sent again",
    "dead": "rejected records",
    "silent": "offline",
    "upstream_id": "id at your cost service",
    "upstream_connection_id": "id at your cost service",
    "drops": "hourly files",
    "told": "notified",
}
_VALUES: Mapping[str, str] = {
    "parked": "paused",
    "refusing": "rejected",
    "orphaned": "without a destination",
    "silent": "offline",
    "losing": "loses calls",
    "delayed": "calls wait",
    "unseen": "cannot be judged",
    "missing": "never seen",
    "copied": "copied disk",
    "replaced": "installed again",
    "dead": "rejected",
    "unconfirmed": "sent, no answer",
    **CONFIDENCE_WORDS,
}
_FIELDS_IN_WORDS = ("state", "status", "confidence", "sure")

# A column is aligned to the right if it has only such cells: 1,234 or 12.5% or -$0.10 or <$0.01 or EUR 3.00
_NUMBER = re.compile(r"[-+]?[<>]?(?:\$|[A-Z]{3} )?\d[\d,]*(?:\.\d+)?%?(?: [A-Z]{3})?")
_NO_VALUE = "-"
# Fields with a time, which some answers state in epoch seconds.
_TIME_FIELD = re.compile(r"created|creation_date|submitted|\w+_(at|updated)")
_EPOCH = re.compile(r"\d{10}(\.\d+)?")


def add_output_form_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --json and --csv to a command that prints a list. Its parameter `form` is None for a table."""
    return _as_json_form(_as_csv_form(command))


def show_json(payload: object) -> None:
    click.echo(printable_json(payload, option=orjson.OPT_INDENT_2))


def show_list(
    form: OutputForm | None,
    payload: JsonObject,
    rows: Sequence[JsonObject],
    columns: Sequence[str],
    shown: Callable[[JsonObject], JsonObject] = dict,
    titles: Mapping[str, str] | None = None,
    *,
    money: Collection[str] = (),
    currency: str = CURRENCY,
) -> None:
    """
    Print the response as JSON, or its rows as CSV or a table. `shown` formats a row for the table, and `money` are
    columns with amounts in `currency`.
    """
    if form == "json":
        show_json(payload)
    elif form == "csv":
        show_csv(rows, columns)
    else:
        show_table([shown(row) for row in rows_with_amount_texts(rows, money, currency)], columns, titles)


def show_csv(rows: Sequence[JsonObject], columns: Sequence[str]) -> None:
    """
    Print rows as CSV with every field. The fields that the table shows come first.

    Without a row, the header names the columns of the table.
    """
    fields = dict.fromkeys(name for row in rows for name in row)
    names = dict.fromkeys(name for name in columns if name in fields or not rows) | fields
    lines = ([row.get(name) for name in names] for row in rows)
    click.echo(csv_lines([list(names), *lines]), nl=False)


def column_title(name: str) -> str:
    return HEADS.get(name, name.replace("_", " "))


def readable_value(field: str, value: object) -> object:
    """Return the word that people read for a state or a confidence of the API. Return other values unchanged."""
    return _VALUES.get(value, value) if field in _FIELDS_IN_WORDS and isinstance(value, str) else value


def show_fields(fields: Mapping[str, Any]) -> None:
    rows = [
        {"field": column_title(name), "value": _format_cell(name, value)} for name, value in fields.items()
    ]
    show_table(rows, ("field", "value"))


def show_table(
    rows: Sequence[JsonObject], columns: Sequence[str], titles: Mapping[str, str] | None = None
) -> None:
    """
    Print a table. `titles` maps columns to headings that differ from the column name. Columns of numbers are
    aligned to the right.
    """
    known = titles or {}
    heads = [replace_unprintable(known.get(name) or column_title(name)).upper() for name in columns]
    cells = [[_format_cell(name, row.get(name)) for row in rows] for name in columns]
    aligned = [_pad_column(head, column) for head, column in zip(heads, cells, strict=True)]
    for line in zip(*aligned, strict=True):
        click.echo("  ".join(line).rstrip())


def _pad_column(head: str, cells: Sequence[str]) -> Sequence[str]:
    width = max(map(len, (head, *cells)))
    values = [cell for cell in cells if cell != _NO_VALUE]
    if values and all(map(_NUMBER.fullmatch, values)):
        return [text.rjust(width) for text in (head, *cells)]
    return [text.ljust(width) for text in (head, *cells)]


def _format_cell(field: str, value: object) -> str:
    if isinstance(value, str) and _TIME_FIELD.fullmatch(field) and _EPOCH.fullmatch(value):
        return utc_iso(float(value))
    return replace_unprintable(_format_value(readable_value(field, value))) or _NO_VALUE


def _format_value(value: object) -> str:
    match value:
        case None:
            return _NO_VALUE
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(_format_value, value))
        case dict():
            return ", ".join(f"{name}={_format_value(item)}" for name, item in value.items())
        case float():
            return f"{value:.1f}"
    return str(value)
