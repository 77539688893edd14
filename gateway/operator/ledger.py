"""The calls of the operator API on the ledger: its state, reports, and counting or pricing again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from gateway.api import costs
from gateway.http.requests import Result
from gateway.operator.body import RequestBody, moment
from gateway.operator.requests import OperatorRequest
from gateway.rate_cards.card import CardUnreadable
from spool.errors import Invalid
from spool.ledger.latency import percentile_ms
from spool.ledger.queries import GRANULARITIES, CostQuery, CostRow, end_of_hour

MEASURES = (
    "cost", "reported", "estimated", "saved", "calls", "errors", "cached", "unpriced", "input_tokens",
    "output_tokens",
    "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cache_write_1h_tokens",
    "cached_input_tokens", "cached_output_tokens", "latency_ms",
)  # fmt: skip
PERCENTILES = {"latency_p50_ms": 50, "latency_p95_ms": 95, "latency_p99_ms": 99}
LATENCY = ("timed", *PERCENTILES)
TOTAL = "total"
REPEATED = ("by", "where")
ONCE = ("from", "to", "tz", "per")


class Rebuild(RequestBody):
    """An empty object."""


class Reprice(RequestBody):
    """`since` is a day (UTC) or an RFC 3339 time: what happened before it keeps its estimates."""

    since: str


async def state(request: OperatorRequest[None]) -> Result:
    found = asdict(await request.services.ledger.state())
    borders = {name: found[name] and moment(found[name].timestamp()) for name in ("hourly_since", "whole_since")}
    return {"ledger": {**found, **borders}}


async def report(request: OperatorRequest[None]) -> Result:
    """
    The costs of everything closed by now: the ledger catches up first.

    `whole_since` is given where sums of the report may lack records that were gone before they were counted.
    """
    ledger = request.services.ledger
    await ledger.catch_up(request.services.log)
    query = _query(request, ledger.dimensions())
    rows = await ledger.costs(query)
    whole = await ledger.whole_since()
    return {
        "report": {
            "from": query.since.isoformat(), "to": query.until.isoformat(), "by": list(query.group_by),
            "per": query.granularity, "whole_since": moment(whole) if query.since.timestamp() < whole else None,
        },
        "rows": [_shown(query, row) for row in rows],
        "latency": _latency([sum(counts) for counts in zip(*(row.latency for row in rows), strict=True)]),
    }  # fmt: skip


async def rebuild(request: OperatorRequest[Rebuild]) -> Result:
    """Count anew before answering, so that it is done when a command without a server ends."""
    services, ledger = request.services, request.services.ledger
    async with request.audited("ledger.rebuild", "ledger", {}):
        done = await ledger.rebuild(services.log)
    await ledger.catch_up(services.log)
    return {
        "rebuild": {
            "periods": done.periods, "kept": done.kept, "first": done.first,
            "border": done.border and moment(done.border.timestamp()),
        }
    }  # fmt: skip


async def reprice(request: OperatorRequest[Reprice]) -> Result:
    given = request.body
    services, ledger = request.services, request.services.ledger
    since = costs.moment("since", given.since)
    try:
        book = services.prices()
    except CardUnreadable as error:
        raise Invalid(f"prices.file: {error}") from error
    await ledger.catch_up(services.log)
    basis = {"since": since.isoformat(), "price_book": book.version}
    async with request.audited("ledger.reprice", "ledger", basis):
        done = await ledger.reprice(book, since=since)
    return {"reprice": {**basis, **asdict(done)}}


def _query(request: OperatorRequest[Any], known: Sequence[str]) -> CostQuery:
    given = request.http.query
    if set(given) - {*REPEATED, *ONCE}:
        raise Invalid(f"a report takes {', '.join((*REPEATED, *ONCE))}")
    for name in set(given) - set(REPEATED):
        if len(given.getall(name)) > 1:
            raise Invalid(f"{name} may be given only once")
    by = [name for text in given.getall("by", []) for name in text.split(",") if name]
    where: dict[str, list[str]] = {}
    for text in given.getall("where", []):
        name, _, value = text.partition("=")
        where.setdefault(name, []).append(value)
    for name in (*by, *where):
        if name not in known:
            raise Invalid(f"costs are known by {', '.join(known)}")
    per = given.get("per", TOTAL)
    if per not in (TOTAL, *GRANULARITIES):
        raise Invalid(f"per must be one of {', '.join((TOTAL, *GRANULARITIES))}")
    zone = _zone(given.get("tz", "UTC"))
    now = datetime.fromtimestamp(request.services.clock.now(), UTC).astimezone(zone)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    query = CostQuery(
        since=costs.moment("from", given["from"], zone=zone) if "from" in given else month,
        until=costs.moment("to", given["to"], zone=zone, end=True) if "to" in given else end_of_hour(now.timestamp()),
        granularity=per,
        group_by=by,
        include=where,
        zone=zone,
    )
    costs.check_span(query)
    return query


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # a bad name, a directory, an unknown zone
        raise Invalid("tz must be the name of a time zone, such as Europe/Berlin") from None


def _shown(query: CostQuery, row: CostRow) -> dict[str, object]:
    period = {} if query.granularity == TOTAL else {"period": row.start.astimezone(query.zone).isoformat()}
    group = dict(zip(query.group_by, row.group, strict=True))
    measures = {name: getattr(row, name) for name in MEASURES}
    return {**period, **group, **measures, **_latency(row.latency)}


def _latency(counts: Sequence[int]) -> dict[str, int | None]:
    """How many calls have a known duration, and bounds of its percentiles; null beyond the last edge (5 minutes)."""
    percentiles = {name: percentile_ms(counts, percent) for name, percent in PERCENTILES.items()}
    return {"timed": sum(counts), **percentiles}
