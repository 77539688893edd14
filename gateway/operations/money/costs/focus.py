"""Operator API of FOCUS exports: a file of the costs that a person may see, sent while it is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import date

from aiohttp import web

from exporters.focus.charges import ACCOUNT, VERSION, VERSIONS
from exporters.focus.rows import BILLED
from gateway.core.paths import WARNINGS, WHOLE_SINCE
from gateway.core.schemas import TEXT
from gateway.http.answers import CSV, SLICE_BYTES, UNCACHED, open_piece_sender
from gateway.http.requests import Result
from gateway.http.turns import RunQuery
from gateway.money.costs.times import parse_moment
from gateway.money.focus.billed import FocusRowsOfBills
from gateway.money.focus.counted import FocusRowsOfCountedCosts
from gateway.money.focus.reports import FocusReports, FocusSpan
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs.questions import LINES
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.errors import Invalid
from spool.ledger.work import UNITS
from spool.record import utc_iso
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.texts import check_day, check_one_of, unknown_dimension_error
from spool.viewed_people import save_viewings

_WARNINGS_BYTES = 2000  # maximum bytes of the header, because proxies reject long headers


@operator_call(
    "GET",
    "/focus",
    VIEW_COSTS,
    "Export costs as FOCUS rows",
    required=("from", "to"),
    optional=("account", "version", "plans", "lines", "billed"),
    repeated=("tag",),
    gives={"text/csv": TEXT},
    shows=SLICED,
    asks_cost_type=True,
)
async def focus(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Export the days `from` to `to` (UTC) as `tollhouse export focus` does, with only the calls that the person
    may see. The header Tollhouse-Warnings names what is left out.
    """
    await request.ledger.require_complete_totals(request.services.log)
    span = await _parse_span(request)
    async with request.shared.questions.open_export(f"person {request.actor.name}") as run:
        export = await _make_export(request, span, run)
        response = web.StreamResponse(
            headers={**await _focus_export_headers(request, span), **_warnings_header(export.warnings)}
        )
        async with open_piece_sender(request.http, response) as send, aclosing(export.csv_pieces()) as pieces:
            # read the first rows before the response begins, so that an error gets its own status
            head = await anext(pieces) + await anext(pieces, b"")
            await save_viewings()
            await send(head)
            async for piece in pieces:
                for start in range(0, len(piece), SLICE_BYTES):
                    await send(piece[start : start + SLICE_BYTES])
    return response


async def _parse_span(request: OperatorRequest[MoneyServices, None]) -> FocusSpan:
    query = request.http.query
    version = query.get("version", VERSION)
    check_one_of("version", version, tuple(VERSIONS))
    first, last = _parse_day(query, "from"), _parse_day(query, "to")
    if last < first:
        raise Invalid("to must not be before from")
    tags = query.getall("tag", [])
    known = await request.cost_reader.visible_dimensions(BILLED if _flag_parameter(query, "billed") else "")
    for tag in tags:
        if tag in UNITS:
            raise Invalid(
                f"FOCUS files have no units of work such as {tag}. Add a tag to [ledger] tags, and use it, such as "
                "tag:repository"
            )
        if tag not in known:
            raise unknown_dimension_error(tag, known)
    return FocusSpan(
        first=first, last=last, tags=tags, account=query.get("account", ACCOUNT), version=version
    )


def _parse_day(query: Mapping[str, str], name: str) -> date:
    day = check_day(name, query.get(name, ""))
    return parse_moment(name, day.isoformat()).date()


def _flag_parameter(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "false")
    check_one_of(name, value, ("true", "false"))
    return value == "true"


async def _make_export(
    request: OperatorRequest[MoneyServices, None], span: FocusSpan, run: RunQuery
) -> FocusRowsOfBills | FocusRowsOfCountedCosts:
    query, prices = request.http.query, request.services.prices
    has_plans, has_lines = _flag_parameter(query, "plans"), "lines" in query
    check_one_of("lines", query.get("lines", LINES[0]), LINES)
    reports = FocusReports(reader=request.cost_reader, prices=prices, now=request.now(), run=run)
    if not _flag_parameter(query, "billed"):
        return await FocusRowsOfCountedCosts.prepare(
            reports, span, has_price_lines=has_lines, has_plans=has_plans
        )
    if has_plans or has_lines:
        raise Invalid("plans and lines apply to counted costs; they cannot be used with billed")
    return await FocusRowsOfBills.prepare(reports, span)


async def _focus_export_headers(
    request: OperatorRequest[MoneyServices, None], span: FocusSpan
) -> dict[str, str]:
    name = f"tollhouse-focus-{span.first}-{span.last}.csv"
    headers = {**UNCACHED, "Content-Type": CSV, "Content-Disposition": f'attachment; filename="{name}"'}
    # whole: the start of the hourly sums, which says nothing about a call
    whole_since = await request.whole_ledger.start_of_complete_hours()
    if span.since.timestamp() < whole_since:
        headers[WHOLE_SINCE] = utc_iso(whole_since) or ""
    return headers


def _warnings_header(warnings: Sequence[str]) -> dict[str, str]:
    """Return the header with as many warnings as fit, escaped to ASCII."""
    if not warnings:
        return {}
    text = json.dumps(warnings)
    count = len(warnings)
    while len(text) > _WARNINGS_BYTES:
        count -= 1
        text = json.dumps(
            [*warnings[:count], f"{len(warnings) - count} more sentences such as these are left out"]
        )
    return {WARNINGS: text}
