"""The calls of the operator API on the ledger: its state, and counting or pricing again."""

from __future__ import annotations

from dataclasses import asdict

from gateway.api.times import parse_moment
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from gateway.rate_cards.card import CardUnreadable
from spool.errors import Invalid
from spool.record import AI_TELEMETRY, moment

_BORDERS = ("hourly_since", "whole_since")


class Rebuild(RequestBody):
    """An empty object."""


class Reprice(RequestBody):
    """`since` is a day (UTC) or an RFC 3339 time: what happened before it keeps its estimates."""

    since: str


async def state(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Describe how far the sums reach; `behind` is how many closed records are not in them yet.

    Who may see a part of the calls alone is not told how many there are.
    """
    services = request.services
    found = asdict(await services.ledger.state())
    found["behind"] = max(0, services.log.closed_below(AI_TELEMETRY) - found["reach"])
    if request.is_limited:
        found = {name: value if name in _BORDERS else None for name, value in found.items()}
    borders = {name: found[name] and moment(found[name].timestamp()) for name in _BORDERS}
    return {"ledger": {**found, **borders}}


async def rebuild(request: OperatorRequest[MoneyServices, Rebuild]) -> Result:
    """Count anew before answering, so that it is done when a command without a server ends."""
    services, ledger = request.services, request.services.ledger
    async with request.audited("ledger.rebuild", "ledger", {}):
        done = await ledger.rebuild(services.log)
    await ledger.catch_up(services.log)
    services.sums_changed()
    return {
        "rebuild": {
            "periods": done.periods, "kept": done.kept, "first": done.first,
            "border": done.border and moment(done.border.timestamp()),
        }
    }  # fmt: skip


async def reprice(request: OperatorRequest[MoneyServices, Reprice]) -> Result:
    given = request.body
    services, ledger = request.services, request.services.ledger
    since = parse_moment("since", given.since)
    try:
        book = services.prices()
    except CardUnreadable as error:
        raise Invalid(f"prices.file: {error}") from error
    await ledger.catch_up(services.log)
    basis = {"since": since.isoformat(), "price_book": book.version}
    async with request.audited("ledger.reprice", "ledger", basis):
        done = await ledger.reprice(book, since=since)
    services.sums_changed()
    return {"reprice": {**basis, **asdict(done)}}
