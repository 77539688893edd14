"""Bills as FOCUS rows: days whose bills are final, by what was billed, what is effective, and what was counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus

import click

from exporters.focus import billed as rows
from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient
from gateway.cli.output import JsonObject
from spool.ledger.queries import BILLED_TYPES

_ALL = "1000"  # of a list of the operator API: a page
_INVOICED, _CLOSED = "invoiced", "closed"
_BESIDE = ("other",)  # charges of what is beside the tokens
_BY_METER = [("per", "hourly"), ("lines", "meters")]
_Named = dict[tuple[str, str], list[str]]  # by provider and month


def of_bills(
    client: OperatorClient, span: tuple[date, date], tags: Sequence[str], *, account: str, version: str
) -> Iterator[bytes]:
    """Yield the head and the lines of each day. Says on stderr which days of which bills are left out."""
    yield rows.header(version)
    invoices = _by_month(client, "/billed-invoices", "billed_invoices", "number")
    closed = _by_month(client, "/closed-months", "closed_months", "month")
    by = tuple(dict.fromkeys((*rows.BY, *tags)))
    first, last = span
    for each in range((last - first).days + 1):
        day = first + timedelta(days=each)
        billed = _report(
            client,
            day,
            rows.BILLED,
            (*by, *rows.OWN),
        )
        effective = _report(
            client,
            day,
            rows.EFFECTIVE,
            (*by, *rows.OWN),
        )
        final = {
            row["provider"]
            for row in _report(
                client,
                day,
                rows.INVOICED,
                ("provider",),
            )
        }
        month = f"{day:%Y-%m}"

        def state_of(
            provider: str,
            month: str = month,
            final: set[str] = final,
        ) -> str:
            if (provider, month) in closed:
                return _INVOICED
            return _CLOSED if provider in final else ""

        def invoice_of(provider: str, month: str = month) -> str:
            known = invoices.get((provider, month), [])
            return known[0] if len(known) == 1 else ""

        told = {str(row["provider"]) for row in billed if row["charge"] != "restated"}
        waiting = sorted(name for name in told if not state_of(name))
        if waiting:
            click.echo(f"{day} is not final and left out: {', '.join(waiting)}", err=True)
        counted = (
            _report(
                client,
                day,
                "real_cost",
                by,
            )
            if billed or effective
            else []
        )
        has_more = any(row["charge"] in _BESIDE for row in billed)
        metered = _metered(client, day, by) if has_more else []
        of_day = rows.ExportedDay(
            start=datetime(
                day.year,
                day.month,
                day.day,
                tzinfo=UTC,
            ),
            by=by,
            billed=billed,
            effective=effective,
            counted=counted,
            invoice_of=invoice_of,
            state_of=state_of,
            metered=metered,
        )
        yield rows.lines(rows.rows_of(of_day, account=account), version=version)


def _by_month(
    client: OperatorClient,
    path: str,
    root: str,
    name: str,
) -> _Named:
    found: _Named = {}
    cursor: list[tuple[str, str]] = []
    while True:
        page = client.request("GET", path, query=[("limit", _ALL), *cursor])
        for row in page[root]:
            found.setdefault((row["provider"], row["month"]), []).append(str(row[name]))
        following = page["pagination"]["cursor"]["next_cursor"]
        if following is None:
            return found
        cursor = [("cursor", following)]


def _report(client: OperatorClient, day: date, cost_type: str, by: Sequence[str]) -> Sequence[JsonObject]:
    """Return the rows of a day. What rows of billing connections tell is not exported: it is in their own bill."""
    span = [("from", day.isoformat()), ("to", day.isoformat()), ("cost_type", cost_type)]
    of_calls = [("where", "origin=calls")] if cost_type in BILLED_TYPES else []
    answer = client.request(
        "GET",
        "/report",
        query=[*span, *of_calls, *(("by", name) for name in by)],
    )
    if answer["report"]["truncated"]:
        fail(f"{day} has {answer['report']['row_count']} rows: raise answers.max_rows")
    found: Sequence[JsonObject] = answer["rows"]
    return found


def _metered(client: OperatorClient, day: date, by: Sequence[str]) -> Sequence[JsonObject]:
    """Return the hours of a day with price lines; none where they are not kept any more, or too many."""
    span = [("from", day.isoformat()), ("to", day.isoformat()), *_BY_METER]
    status, payload = client.answer("GET", "/report", query=[*span, *(("by", name) for name in by)])
    if status != HTTPStatus.OK or payload["report"]["truncated"]:
        return []
    found: Sequence[JsonObject] = payload["rows"]
    return found
