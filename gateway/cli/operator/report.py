"""`tollhouse report`: what AI cost, by whatever is asked, as a table, JSON or CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, localcontext
from typing import Any

import click

from exporters.csv_cells import safe_cell
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import show_json, show_table
from gateway.operator.ledger import LATENCY, MEASURES, PERCENTILES, TOTAL
from spool.ledger.queries import DIMENSIONS, GRANULARITIES
from spool.ledger.sums import LATENCY_EDGES_MS

_BY = f"Dimensions, separated by commas: {', '.join(DIMENSIONS)}, and tag:NAME for the tags of [ledger] tags."
SHOWN = ("calls", "errors", "cached", "input_tokens", "output_tokens", "cost", "saved", "unpriced")
_MONEY = ("cost", "reported", "estimated", "saved")


@click.command()
@click.option("--by", multiple=True, default=("model",), show_default=True, help=_BY)
@click.option("--from", "since", metavar="DAY", help="First day, or a time; default: the first of this month.")
@click.option("--to", "until", metavar="DAY", help="Last day, which is part of it, or a time; default: now.")
@click.option("--per", type=click.Choice(GRANULARITIES), help="A line for each period; default: one for all.")
@click.option("--tz", metavar="ZONE", help="Where days begin, such as Europe/Berlin; default: UTC.")
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Only these, such as team=search; may repeat.")
@click.option("--latency", is_flag=True, help="Show how long calls took: bounds of percentiles, in milliseconds.")
@click.option("--json", "form", flag_value="json", help="Print what the operator API answers.")
@click.option("--csv", "form", flag_value="csv", help="Print every measure as CSV.")
@with_client
def report(
    client: OperatorClient,
    by: tuple[str, ...],
    since: str | None,
    until: str | None,
    per: str | None,
    tz: str | None,
    where: tuple[str, ...],
    latency: bool,
    form: str | None,
) -> None:
    """What AI cost, by model unless asked otherwise. In dollars: reported where known, else estimated."""
    once = {"from": since, "to": until, "per": per, "tz": tz}
    query = [(name, value) for name, value in once.items() if value is not None]
    query += [("by", name) for name in by] + [("where", term) for term in where]
    payload = client.request("GET", "/report", query=query)
    if form == "json":
        show_json(payload)
    elif form == "csv":
        warn_of_lacking(payload["report"])
        _show_csv(payload)
    else:
        _show(payload, (*SHOWN, *LATENCY) if latency else SHOWN)


def _show(payload: Mapping[str, Any], shown: Sequence[str]) -> None:
    rows = payload["rows"]
    asked = payload["report"]
    warn_of_lacking(asked)
    names = _columns(asked)
    ordered = rows if "period" in names else sorted(rows, key=lambda row: Decimal(row["cost"]), reverse=True)
    lines = [_line(row, names) for row in ordered]
    if len(rows) > 1:
        total = _line({**_sum(rows), **payload["latency"]}, names)
        lines.append(total | {names[0]: "total"} if names else total)
    show_table(lines, (*names, *shown))


def warn_of_lacking(asked: Mapping[str, Any]) -> None:
    if asked["whole_since"]:
        lacking = f"sums of before {asked['whole_since']} may lack records: these were gone when the ledger was counted"
        click.echo(lacking, err=True)


def _columns(asked: Mapping[str, Any]) -> list[str]:
    """What tells the rows of a report apart."""
    return [*(["period"] if asked["per"] != TOTAL else []), *asked["by"]]


def _line(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, object]:
    """Money to the cent where it is large and to what can be seen where it is small, and percentiles as bounds."""
    line: dict[str, object] = {name: row.get(name) for name in names}
    for name in SHOWN:
        line[name] = f"{Decimal(row[name]):,.4f}" if name in _MONEY else f"{row[name]:,}"
    line["timed"] = f"{row['timed']:,}"
    for name in PERCENTILES:
        line[name] = _bound(row[name], timed=row["timed"])
    return line


def _bound(edge: int | None, *, timed: int) -> str | None:
    if edge is None:
        return f">{LATENCY_EDGES_MS[-1]:,}" if timed else None
    return f"{edge:,}"


def _sum(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    with localcontext(Context(prec=60)):
        return {
            name: sum((Decimal(row[name]) for row in rows), Decimal(0))
            if name in _MONEY
            else sum(row[name] for row in rows)
            for name in SHOWN
        }


def _show_csv(payload: Mapping[str, Any]) -> None:
    rows = payload["rows"]
    names = list(rows[0]) if rows else [*_columns(payload["report"]), *MEASURES, *LATENCY]
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: safe_cell(value) for name, value in row.items()})
