"""Operator API of the totals: rebuild them, recalculate estimates, and freeze exchange rates."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.requests import Result
from gateway.money.costs.groups import divide_part_again
from gateway.money.costs.times import parse_moment
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_BILLING

if TYPE_CHECKING:
    from gateway.bills.months import CalendarMonth


class Rebuild(RequestBody):
    """The request body, an empty JSON object."""


class Reprice(RequestBody):
    """A request to recalculate estimates. Estimates from before `since` stay unchanged."""

    since: Annotated[str, words("The first day (UTC) or time whose estimates are calculated again.")]


class FreezeRates(RequestBody):
    """A request to freeze exchange rates."""

    month: Annotated[str, words("The finished month whose exchange rates are frozen, such as `2026-10`.")]


class DivideGroups(RequestBody):
    """A request to divide the groups of people of a part of a month again."""

    day: Annotated[str, words("The first day of the part of the month, such as `2026-11-01`.")]


class GroupsResult(msgspec.Struct, kw_only=True):
    day: Annotated[str, words("The first day of the part of the month."), example("2026-11-01")]
    groups: Annotated[int, words("The number of groups."), example(12)]


class RebuildResult(msgspec.Struct, kw_only=True):
    periods: Annotated[int, words("The number of recounted hours."), example(721)]
    kept: Annotated[
        int,
        words("The number of hours that are not recounted because their records are deleted."),
        example(0),
    ]
    first: Annotated[int, words("The number of the first record that is recounted."), example(1)]
    border: Annotated[
        str | None, words("The end of the hours that are not recounted, or null."), example(None)
    ]


class OneFrozenRates(msgspec.Struct, kw_only=True):
    frozen_rates: Annotated[
        dict[str, Any],
        words("The month, when and by whom it was frozen, and its currencies."),
        example(
            {
                "month": "2026-10",
                "frozen_at": "2026-11-27T01:45:20.425Z",
                "frozen_by": "ada@example.com",
                "digest": "08c373073d2ad4bce327a3d4af657cb632e89e19afe9124508d780d41acf7a5c",
                "currencies": [],
            }
        ),
    ]


class RepriceResult(msgspec.Struct, kw_only=True):
    since: Annotated[str, words("The start of the recalculated time."), example("2026-11-20T00:00:00+00:00")]
    price_book: Annotated[str, words("The name of the price list."), example("genai-prices-0.2.3-2026-11-27")]
    rows: Annotated[int, words("The number of recalculated totals."), example(0)]
    unpriced: Annotated[int, words("The number of totals without a price in this price book."), example(119)]
    kept_units: Annotated[
        int,
        words(
            "The number of totals that keep their cost: some of their calls are deleted, and their units have meters."
        ),
        example(0),
    ]
    kept_sizes: Annotated[
        int,
        words(
            "The number of totals that keep their cost: some of their calls are deleted, and their size class has two "
            "prices."
        ),
        example(0),
    ]
    before: Annotated[str, words("The earlier estimate of the recalculated totals."), example("0")]
    after: Annotated[str, words("The new estimate of the recalculated totals."), example("0")]


@operator_call(
    "POST",
    "/ledger/rebuild",
    MODIFY_BILLING,
    "Count the totals again from stored records",
    answers=one_field_answer(
        "OneRebuild", rebuild=Annotated[RebuildResult, words("The result of the recount.")]
    ),
)
async def rebuild(request: OperatorRequest[MoneyServices, Rebuild]) -> Result:
    """
    Rebuild the totals before answering. Otherwise a command without a server would exit before the rebuild
    finishes.
    """
    services = request.services
    ledger = request.services.ledger
    async with request.audited_change("ledger.rebuild", "ledger", {}):
        done = await ledger.rebuild(services.log)
    await ledger.catch_up(services.log)
    services.request_budget_evaluation()
    return {
        "rebuild": {
            "periods": done.periods,
            "kept": done.kept,
            "first": done.first,
            "border": done.border and utc_iso(done.border.timestamp()),
        }
    }


def _parse_month(name: str) -> CalendarMonth:
    from gateway.bills.months import CalendarMonth

    try:
        return CalendarMonth.of(name)
    except ValueError:
        raise Invalid(f"month must be YYYY-MM, such as 2026-10, but is {name[:20]}") from None


@operator_call(
    "POST", "/ledger/rates", MODIFY_BILLING, "Freeze the exchange rates of a month", answers=OneFrozenRates
)
async def freeze_rates(request: OperatorRequest[MoneyServices, FreezeRates]) -> Result:
    """
    Freeze the exchange rates of a month. Afterwards, changes of the rates file or of settings do not
    change its amounts.
    """
    from gateway.money.currencies import ExchangeRates, collect_rates_by_day, rates_digest

    services = request.services
    now = request.now()
    month = _parse_month(request.body.month)
    if month.end > now:
        raise Invalid(f"{month.name} is not over; its exchange rates can be frozen from {utc_iso(month.end)}")
    rates = ExchangeRates(services.currency())
    table = await asyncio.to_thread(rates.current_table)
    if rates.problem is not None:
        raise Invalid(f"currency.rates_file: {rates.problem}")
    days = await asyncio.to_thread(collect_rates_by_day, table, month.days)
    shown = {"frozen_at": utc_iso(now), "frozen_by": request.actor.name, "digest": rates_digest(days)}
    await request.registry.frozen_rates.add(
        month.name, {**shown, "days": days}, actor=request.actor, action="ledger.freeze_rates"
    )
    currencies = sorted({currency for known in days.values() for currency in known})
    return {"frozen_rates": {"month": month.name, **shown, "currencies": currencies}}


@operator_call("DELETE", "/ledger/rates/{month}", MODIFY_BILLING, "Unfreeze the exchange rates of a month")
async def thaw_rates(request: OperatorRequest[MoneyServices, None]) -> Result:
    """Unfreeze the exchange rates of a month, so that the configuration and its rates file apply again."""
    month = _parse_month(request.http.match_info["month"])
    await request.registry.frozen_rates.remove(month.name, actor=request.actor, action="ledger.thaw_rates")
    request.services.request_budget_evaluation()
    return {}


@operator_call(
    "POST",
    "/ledger/groups",
    MODIFY_BILLING,
    "Divide a part of a month into groups of people again",
    answers=one_field_answer(
        "OneGroupsResult", divided=Annotated[GroupsResult, words("The groups of the part.")]
    ),
)
async def divide_groups(request: OperatorRequest[MoneyServices, DivideGroups]) -> Result:
    """
    Divide a part of a month into groups of people again, because its groups were made from wrong totals. Earlier
    answers and the new groups together may show the figures of fewer people, so do this only if necessary.
    """
    services = request.services
    try:
        day = date.fromisoformat(request.body.day)
    except ValueError:
        raise Invalid(f"day must be YYYY-MM-DD, such as 2026-11-01, but is {request.body.day[:20]}") from None
    await services.ledger.require_complete_totals(services.log)
    divided = await divide_part_again(services.ledger, request.registry, day, request.actor)
    return {"divided": {"day": day.isoformat(), "groups": len(divided.cells)}}


@operator_call(
    "POST",
    "/ledger/reprice",
    MODIFY_BILLING,
    "Recalculate estimated costs",
    answers=one_field_answer(
        "OneReprice", reprice=Annotated[RepriceResult, words("The result of the recalculation.")]
    ),
)
async def reprice(request: OperatorRequest[MoneyServices, Reprice]) -> Result:
    body = request.body
    services = request.services
    ledger = request.services.ledger
    since = parse_moment("since", body.since)
    began = (
        request.now()
    )  # before the prices are read: a later change of a price waits for the next recalculation
    book = services.prices()
    await ledger.require_complete_totals(services.log)
    basis = {"since": since.isoformat(), "price_book": book.version}
    async with request.audited_change("ledger.reprice", "ledger", basis):
        done = await ledger.reprice(services.log, book, since=since, began=began)
    services.request_budget_evaluation()
    return {"reprice": {**basis, **asdict(done)}}
