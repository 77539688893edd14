"""`tollhouse export`: the ledger's sums in formats that other tools read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from exporters.focus import charges as focus_rows
from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, refuse, with_client
from gateway.cli.operator.money.report import warn_of_lacking
from gateway.errors import ASKED_TOO_MUCH


@click.group()
def export() -> None:
    """Write cost and usage for other tools."""


@export.command()
@click.option("--from", "since", required=True, metavar="DAY", help="First day (UTC).")
@click.option("--to", "until", required=True, metavar="DAY", help="Last day, which is part of it.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file; default: standard output."
)
@click.option(
    "--account", default=focus_rows.ACCOUNT, show_default=True, help="The BillingAccountId of every row."
)
@click.option(
    "--focus-version",
    "version",
    type=click.Choice(tuple(focus_rows.VERSIONS)),
    default=focus_rows.VERSION,
    show_default=True,
    help="Whose columns the rows have; 1.5 is a draft and has those of 1.4.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="DIMENSION",
    help="Another dimension of costs as a tag of each row, such as tag:service or User:Defined:Team; may repeat.",
)
@with_client
def focus(
    client: OperatorClient,
    since: str,
    until: str,
    output: Path | None,
    account: str,
    version: str,
    tags: tuple[str, ...],
) -> None:
    """Hourly cost and usage as FOCUS rows (CSV)."""
    first, last = _day("from", since), _day("to", until)
    if last < first:
        fail("--to is before --from", 2)
    parts = [focus_rows.header(version)]
    by = [("by", name) for name in dict.fromkeys((*focus_rows.DIMENSIONS, *tags))]
    for day in _days(client, first, last):  # one at a time: a month of hours is too much for one answer
        for rows in _rows(client, day, by):
            parts.append(focus_rows.lines(focus_rows.of_report(rows, tags), account=account, version=version))
    try:
        if output is None:
            sys.stdout.buffer.write(b"".join(parts))
        else:
            output.write_bytes(b"".join(parts))
    except OSError as error:
        fail(f"{output or 'standard output'}: {error.strerror}")


def _days(client: OperatorClient, first: date, last: date) -> list[str]:
    """
    The days of the span on which anything happened, in order. Says on stderr if sums of them may lack
    records.
    """
    span = [("from", first.isoformat()), ("to", last.isoformat()), ("per", "daily"), ("by", "source")]
    payload = client.request("GET", "/report", query=span)
    warn_of_lacking(payload["report"]["whole_since"])
    return sorted({str(row["period"])[:10] for row in payload["rows"]})


def _rows(client: OperatorClient, day: str, by: list[tuple[str, str]]) -> Iterator[Any]:
    """The rows of a day; of one that is too much for one answer, an hour at a time."""
    status, payload = client.answer(
        "GET", "/report", query=[("from", day), ("to", day), ("per", "hourly"), *by]
    )
    if status == 200 and not payload["report"]["truncated"]:
        yield payload["rows"]
        return
    if status != 200 and payload["error"]["type"] != ASKED_TOO_MUCH:
        refuse(status, payload)
    for hour in range(24):
        start = datetime.fromisoformat(day) + timedelta(hours=hour)
        span = [
            ("from", start.isoformat()),
            ("to", (start + timedelta(hours=1)).isoformat()),
            ("per", "hourly"),
        ]
        payload = client.request("GET", "/report", query=[*span, *by])
        if payload["report"]["truncated"]:
            fail(f"an hour of {day} has {payload['report']['row_count']} rows: raise answers.max_rows")
        yield payload["rows"]


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        fail(f"--{name} must be a day such as 2026-11-20", 2)
