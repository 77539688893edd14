"""The calls of the operator API on the ledger: its state, and counting or pricing again."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from gateway.api.times import parse_moment
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from gateway.rate_cards.card import CardUnreadable
from spool.errors import Invalid
from spool.record import AI_TELEMETRY, moment

if TYPE_CHECKING:
    from gateway.reconciliation.gathering import CalendarMonth

_BORDERS = ("hourly_since", "whole_since")


class Rebuild(RequestBody):
    """An empty object."""


class Reprice(RequestBody):
    """`since` is a day (UTC) or an RFC 3339 time: what happened before it keeps its estimates."""

    since: str


class FreezeRates(RequestBody):
    """`month` is one that is over, such as 2026-10."""

    month: str


async def freeze_rates(request: OperatorRequest[MoneyServices, FreezeRates]) -> Result:
    """Keep the rates of a month for ever: from now on no file and no setting changes what its amounts come to."""
    from gateway.currencies.frozen import days_of, digest_of
    from gateway.currencies.rates import ExchangeRates

    services = request.services
    now = request.now()
    month = _month(request.body.month)
    if month.end > now:
        raise Invalid(f"{month.name} is not over: its rates can be frozen on {moment(month.end)}")
    rates = ExchangeRates(services.currency())
    table = await asyncio.to_thread(rates.table)
    if rates.problem is not None:
        raise Invalid(f"currency.rates_file: {rates.problem}")
    days = await asyncio.to_thread(days_of, table, month.days)
    shown = {"frozen_at": moment(now), "frozen_by": request.actor.name, "digest": digest_of(days)}
    await request.registry.frozen_rates.add(
        month.name, {**shown, "days": days}, actor=request.actor, action="ledger.freeze_rates", shown=shown
    )
    currencies = sorted({currency for known in days.values() for currency in known})
    return {"frozen_rates": {"month": month.name, **shown, "currencies": currencies}}


async def thaw_rates(request: OperatorRequest[MoneyServices, None]) -> Result:
    """Take back that the rates of a month are frozen: the configuration and its file decide again."""
    month = _month(request.http.match_info["month"])
    await request.registry.frozen_rates.remove(month.name, actor=request.actor, action="ledger.thaw_rates")
    request.services.sums_changed()
    return {}


def _month(name: str) -> CalendarMonth:
    from gateway.reconciliation.gathering import CalendarMonth

    try:
        return CalendarMonth.of(name)
    except ValueError:
        raise Invalid(f"month must be one such as 2026-10, and this is {name[:20]}") from None


async def state(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Describe how far the sums reach; `behind` is how many closed records are not in them yet.

    Who may see a part of the calls alone is not told how many there are.
    """
    return await described(request, counts_rows=True)


async def described(request: OperatorRequest[MoneyServices, None], *, counts_rows: bool) -> Result:
    """Return what `state` does; `rows` is null if they are not counted."""
    services = request.services
    found = asdict(await services.ledger.state(counts_rows=counts_rows))
    found["rows"] = found["rows"] if counts_rows else None
    found["behind"] = max(0, services.log.closed_below(AI_TELEMETRY) - found["reach"])
    if request.is_limited:
        found = {name: value if name in _BORDERS else None for name, value in found.items()}
    borders = {name: found[name] and moment(found[name].timestamp()) for name in _BORDERS}
    registry = services.registry
    frozen = {} if registry is None else registry.frozen_rates.all()
    months = {
        name: {field: value for field, value in body.items() if field != "days"}
        for name, body in sorted(frozen.items())
    }
    return {"ledger": {**found, **borders}, "frozen_rates": months}


async def rebuild(request: OperatorRequest[MoneyServices, Rebuild]) -> Result:
    """Count anew before answering, so that it is done when a command without a server ends."""
    services = request.services
    ledger = request.services.ledger
    async with request.audited("ledger.rebuild", "ledger", {}):
        done = await ledger.rebuild(services.log)
    await ledger.catch_up(services.log)
    services.sums_changed()
    return {
        "rebuild": {
            "periods": done.periods,
            "kept": done.kept,
            "first": done.first,
            "border": done.border and moment(done.border.timestamp()),
        }
    }


async def reprice(request: OperatorRequest[MoneyServices, Reprice]) -> Result:
    given = request.body
    services = request.services
    ledger = request.services.ledger
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
