"""`tollhouse export`: totals in formats that other tools read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from pathlib import Path

import click

from exporters.focus import charges as focus_rows
from exporters.focus import rows as billed_rows
from exporters.focus import rows as plan_rows
from exporters.focus.charges import HOUR
from exporters.focus.rows import report_charges
from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, refuse, with_client
from gateway.cli.operator.files import write_files
from gateway.cli.operator.money.report import warn_of_lacking
from gateway.cli.output import JsonObject
from gateway.core.errors import ASKED_TOO_MUCH
from spool import providers
from spool.ledger.days.spans import PER_DAY
from spool.ledger.money import unconverted_words
from spool.ledger.queries import BILLED_TYPES, COVERED_COST, METERED_COST
from spool.ledger.work import UNITS
from spool.record import CURRENCY

_ALL = "1000"  # maximum rows per page of a list
_INVOICED, _CLOSED = "invoiced", "closed"
_BESIDE = ("other",)  # values of the column `charge` for costs that are not costs of tokens
_BY_METER = [("per", "hourly"), ("lines", "meters")]
_Named = dict[tuple[str, str], list[str]]  # by provider and month: values of invoices or closed months


@click.group()
def export() -> None:
    """Export cost and usage in formats that other tools read, and settings as files."""


@export.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@with_client
def config(client: OperatorClient, directory: Path) -> None:
    """
    Export all settings as files that `tollhouse apply` reads.

    Secrets are not exported. DIR must be empty, or have only the files of an earlier export.
    """
    write_files(directory, client.request("GET", "/files")["files"])


@export.command()
@click.option("--from", "since", required=True, metavar="DAY", help="First day to export (UTC).")
@click.option("--to", "until", required=True, metavar="DAY", help="Last day to export (UTC, inclusive).")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; default: standard output.",
)
@click.option(
    "--account",
    default=focus_rows.ACCOUNT,
    show_default=True,
    help="Value of the column BillingAccountId in every row.",
)
@click.option(
    "--focus-version",
    "version",
    type=click.Choice(tuple(focus_rows.VERSIONS)),
    default=focus_rows.VERSION,
    show_default=True,
    help="FOCUS version that defines the columns. 1.5 is a draft with the columns of 1.4.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="DIMENSION",
    help=(
        "Additional dimension to write into each row's tags, such as tag:service or User:Defined:Team. "
        "May repeat."
    ),
)
@click.option(
    "--plans",
    is_flag=True,
    help=(
        "Also export plan seats as purchases, and covered calls with a billed cost of 0. Needs whole months."
    ),
)
@click.option(
    "--lines",
    type=click.Choice(("meters",)),
    help=(
        "Split estimated costs into one row per price line, such as input audio, instead of one row for "
        "all lines."
    ),
)
@click.option(
    "--billed",
    is_flag=True,
    help="Export what providers billed, by day, instead of counted costs. Only final bills are exported.",
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
    plans: bool,
    lines: str | None,
    billed: bool,
) -> None:
    """
    Export cost and usage as FOCUS rows (CSV), by hour.

    Rows are by day with --billed, and for days whose hours are no longer stored (after 62 days).
    """
    first = _day("from", since)
    last = _day("to", until)
    if last < first:
        fail("--to must not be before --from", 2)
    for tag in tags:
        if tag in UNITS:
            fail(
                f"FOCUS files have no units of work such as {tag}. Add a tag to [ledger] tags, and use it, such as "
                "--tag tag:repository",
                2,
            )
    if billed:
        if plans or lines is not None:
            fail("--plans and --lines apply to counted costs; they cannot be used with --billed", 2)
        with client.staying_open() as opened:
            of_days = b"".join(of_bills(opened, (first, last), tags, account=account, version=version))
        _write(output, of_days)
        return
    with client.staying_open() as opened:
        counted = _counted(
            opened, first, last, tags, account=account, version=version, plans=plans, lines=lines
        )
    _write(output, counted)


def _counted(
    client: OperatorClient,
    first: date,
    last: date,
    tags: tuple[str, ...],
    *,
    account: str,
    version: str,
    plans: bool,
    lines: str | None,
) -> bytes:
    """Return the header and the rows of counted costs."""
    columns, invoice_of = focus_rows.EXPORTED[version], _invoices_of_closed_months(client)
    parts = [focus_rows.header(columns)]
    by = [("by", name) for name in dict.fromkeys((*focus_rows.DIMENSIONS, *tags))]
    counted = [*by, ("cost_type", METERED_COST)] if plans else by
    if lines is not None:
        counted = [*counted, ("lines", lines)]
    # Each request is for one day, because the hours of a month are too large for one response.
    for day in _days(client, first, last):
        for rows, length in _rows(client, day, counted):
            charges = [
                replace(charge, invoice=invoice_of(charge.provider or "", day[:7]))
                for charge in report_charges(rows, tags, length=length)
            ]
            parts.append(focus_rows.charge_lines(charges, account=account, columns=columns))
    if plans:
        covered = [*by, ("cost_type", COVERED_COST)]
        for month in _months(first, last):
            shown = _of_plans(client, month, covered, account, tags)
            parts.append(focus_rows.row_lines(shown, columns=columns))
    return b"".join(parts)


@export.command("seat-fees")
@click.option("--month", required=True, metavar="YYYY-MM", help="Calendar month (UTC), such as 2026-10.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; default: standard output.",
)
@click.option(
    "--operation",
    type=click.Choice(("replace_drop", "sum")),
    default="replace_drop",
    show_default=True,
    help="How the billing connection treats rows that it already has for the month.",
)
@with_client
def seat_fees(client: OperatorClient, month: str, output: Path | None, operation: str) -> None:
    """
    Export the plan seats' fees of a month as a billing file (JSON).

    Each fee is a row of type Purchase. Nothing is sent: upload the file to a separate billing connection.
    Calls that plans cover are not included.
    """
    from exporters.service.cbf import (
        MAX_BYTES,  # imported only where a billing file is written
        encode_seat_drop,
    )

    answer = client.request("GET", "/plan-costs", query=[("month", month)])
    if answer["plan_costs"]["truncated"]:
        fail(
            f"{month} has {answer['plan_costs']['row_count']} seats, which is too many; raise the setting "
            "answers.max_rows"
        )
    lacking = answer["total"]["unconverted"]
    if lacking:
        click.echo(unconverted_words(lacking, CURRENCY), err=True)
    drop = encode_seat_drop(answer["plan_costs"], answer["rows"], operation)
    if not drop:
        fail(f"no seat has a fee in {month}")
    if len(drop) > MAX_BYTES:
        fail(f"the file has {len(drop)} bytes, but a connection accepts at most {MAX_BYTES} at once")
    _write(output, drop)


def _write(output: Path | None, content: bytes) -> None:
    try:
        if output is None:
            sys.stdout.buffer.write(content)
        else:
            output.write_bytes(content)
    except OSError as error:
        fail(f"{output or 'standard output'}: {error.strerror}")


def _days(client: OperatorClient, first: date, last: date) -> list[str]:
    """Return the days of the span that have records, in order. Warns if their totals may be incomplete."""
    span = [("from", first.isoformat()), ("to", last.isoformat()), ("per", "daily"), ("by", "source")]
    payload = client.request("GET", "/report", query=span)
    warn_of_lacking(payload["report"]["whole_since"])
    return sorted({str(row["period"])[:10] for row in payload["rows"]})


def _months(first: date, last: date) -> list[date]:
    """Return the first day of each month in the span. Exits unless the span consists of whole months."""
    behind = last + timedelta(days=1)
    if first.day != 1 or behind.day != 1:
        fail(
            (
                "--plans needs whole months: --from must be the first day of a month and --to the last day "
                "of a month"
            ),
            2,
        )
    days = [first + timedelta(days=day_number) for day_number in range((behind - first).days)]
    return [day for day in days if day.day == 1]


def _of_plans(
    client: OperatorClient, month: date, by: list[tuple[str, str]], account: str, tags: tuple[str, ...]
) -> Iterator[dict[str, str]]:
    """Yield the rows of covered calls and of seats in a month."""
    name = f"{month:%Y-%m}"
    answer = client.request("GET", "/plan-costs", query=[("month", name)])
    if answer["plan_costs"]["truncated"]:
        fail(
            f"{name} has {answer['plan_costs']['row_count']} seats, which is too many; raise the setting "
            "answers.max_rows"
        )
    lacking = answer["total"]["unconverted"]
    if lacking:
        click.echo(unconverted_words(lacking, CURRENCY), err=True)
    last = (month + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    span = [("from", month.isoformat()), ("to", last.isoformat())]
    values = client.request(
        "GET", "/report", query=[*span, ("by", "user"), ("show", "cost"), ("cost_type", COVERED_COST)]
    )
    if values["report"]["truncated"]:
        fail(
            f"{name} has {values['report']['row_count']} users, which is too many; raise the setting "
            "answers.max_rows"
        )
    shares = plan_rows.FeeShares.from_seats(answer["rows"], values["rows"])
    for day in _days(client, month, last):
        for rows, length in _rows(client, day, by):
            yield from plan_rows.covered_rows(rows, shares, account=account, tags=tags, length=length)
    start = datetime(month.year, month.month, 1, tzinfo=UTC)
    yield from plan_rows.seat_rows(start, answer["rows"], shares, account=account)


def _rows(
    client: OperatorClient, day: str, by: list[tuple[str, str]]
) -> Iterator[tuple[Sequence[JsonObject], timedelta]]:
    """
    Yield the rows of a day with the length of their periods: hours, or a day whose hours are no longer stored, which
    has no price lines. If the day is too large for one response, fetch it hour by hour.
    """
    span = [("from", day), ("to", day)]
    status, payload = client.answer("GET", "/report", query=[*span, ("per", "hourly"), *by])
    if status == HTTPStatus.BAD_REQUEST and PER_DAY in payload["error"]["message"]:
        without_lines = [pair for pair in by if pair[0] != "lines"]
        payload = client.request("GET", "/report", query=[*span, ("per", "daily"), *without_lines])
        yield _whole(payload, day), timedelta(days=1)
        return
    if status == HTTPStatus.OK and not payload["report"]["truncated"]:
        yield payload["rows"], HOUR
        return
    if status != HTTPStatus.OK and payload["error"]["type"] != ASKED_TOO_MUCH:
        refuse(status, payload)
    for hour in range(24):
        start = datetime.fromisoformat(day) + timedelta(hours=hour)
        of_hour = [("from", start.isoformat()), ("to", (start + HOUR).isoformat()), ("per", "hourly")]
        payload = client.request("GET", "/report", query=[*of_hour, *by])
        yield _whole(payload, f"an hour of {day}"), HOUR


def _whole(payload: JsonObject, span: str) -> Sequence[JsonObject]:
    """Return the rows of a report. Exits if some of them are missing."""
    if payload["report"]["truncated"]:
        fail(
            f"{span} has {payload['report']['row_count']} rows, which is too many; raise the setting "
            "answers.max_rows"
        )
    rows: Sequence[JsonObject] = payload["rows"]
    return rows


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        fail(f"--{name} must be a day such as 2026-11-20", 2)


def of_bills(
    client: OperatorClient, span: tuple[date, date], tags: Sequence[str], *, account: str, version: str
) -> Iterator[bytes]:
    """
    Yield the header and the lines of each day. Days without a final bill are left out and named on standard error.
    """
    yield billed_rows.header(version)
    invoices = _by_month(client, "/billed-invoices", "billed_invoices", "number")
    closed = _by_month(client, "/closed-months", "closed_months", "month")
    by = tuple(dict.fromkeys((*billed_rows.BY, *tags)))
    first, last = span
    for day_number in range((last - first).days + 1):
        of_day = _billed_day(client, first + timedelta(days=day_number), by, invoices, closed)
        yield billed_rows.row_lines(billed_rows.day_rows(of_day, account=account), version=version)


def _invoices_of_closed_months(client: OperatorClient) -> Callable[[str, str], str]:
    """Return a function that returns the only invoice of a provider's closed month, or ""."""
    closed = _by_month(client, "/closed-months", "closed_months", "month")
    invoices = _by_month(client, "/billed-invoices", "billed_invoices", "number") if closed else {}

    def invoice_of(provider: str, month: str) -> str:
        place = providers.canonical(provider), month
        return _only(invoices.get(place, ())) if place in closed else ""

    return invoice_of


def _only(numbers: Sequence[str]) -> str:
    return numbers[0] if len(numbers) == 1 else ""


def _billed_day(
    client: OperatorClient, day: date, by: tuple[str, ...], invoices: _Named, closed: _Named
) -> billed_rows.ExportedDay:
    """Fetch the billed costs of a day. Bills that are not final are left out and named on standard error."""
    billed = _report(client, day, billed_rows.BILLED, (*by, *billed_rows.OWN))
    effective = _report(client, day, billed_rows.EFFECTIVE, (*by, *billed_rows.OWN))
    final = {row["provider"] for row in _report(client, day, billed_rows.INVOICED, ("provider",))}
    month = f"{day:%Y-%m}"

    def state_of(provider: str) -> str:
        if (provider, month) in closed:
            return _INVOICED
        return _CLOSED if provider in final else ""

    def invoice_of(provider: str) -> str:
        return _only(invoices.get((provider, month), ()))

    sellers = {str(row["provider"]) for row in billed if row["charge"] != "restated"}
    waiting = sorted(name for name in sellers if not state_of(name))
    if waiting:
        click.echo(f"{day} is not final and was left out for: {', '.join(waiting)}", err=True)
    has_more = any(row["charge"] in _BESIDE for row in billed)
    return billed_rows.ExportedDay(
        start=datetime(day.year, day.month, day.day, tzinfo=UTC),
        by=by,
        billed=billed,
        effective=effective,
        counted=_report(client, day, "real_cost", by) if billed or effective else [],
        invoice_of=invoice_of,
        state_of=state_of,
        metered=_metered(client, day, by) if has_more else [],
    )


def _by_month(client: OperatorClient, path: str, root: str, name: str) -> _Named:
    names_by_month: _Named = {}
    cursor: list[tuple[str, str]] = []
    while True:
        page = client.request("GET", path, query=[("limit", _ALL), *cursor])
        for row in page[root]:
            names_by_month.setdefault((row["provider"], row["month"]), []).append(str(row[name]))
        following = page["pagination"]["cursor"]["next_cursor"]
        if following is None:
            return names_by_month
        cursor = [("cursor", following)]


def _report(client: OperatorClient, day: date, cost_type: str, by: Sequence[str]) -> Sequence[JsonObject]:
    """
    Return the rows of a day. Rows that came from billing connections are excluded, because the bill behind a
    connection already lists them.
    """
    span = [("from", day.isoformat()), ("to", day.isoformat()), ("cost_type", cost_type)]
    of_calls = [("where", "origin=calls")] if cost_type in BILLED_TYPES else []
    query = [*span, *of_calls, *(("by", name) for name in by)]
    return _whole(client.request("GET", "/report", query=query), day.isoformat())


def _metered(client: OperatorClient, day: date, by: Sequence[str]) -> Sequence[JsonObject]:
    """Return the day's hours with price lines, or [] if they have expired or are too many."""
    span = [("from", day.isoformat()), ("to", day.isoformat()), *_BY_METER]
    status, payload = client.answer("GET", "/report", query=[*span, *(("by", name) for name in by)])
    if status != HTTPStatus.OK or payload["report"]["truncated"]:
        return []
    rows: Sequence[JsonObject] = payload["rows"]
    return rows
