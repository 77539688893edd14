"""
Operator API for the effect of a price before it is set: the calls of the last thirty days that it fits, and their
cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec.structs import replace

from gateway.configuration.prices import PriceOverride
from gateway.core.fields import one_field_answer
from gateway.http.requests import Result
from gateway.intake.prices import PriceBook
from gateway.money.recommendations.facts import DAY_S, DAYS
from gateway.money.recommendations.what_if import days_within
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.own_prices import NewPrice, check_price, to_price_override
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool import money
from spool.cost_kinds import KIND_OF_SOURCE, UNPRICED
from spool.ledger.days.usage import UsageSum
from spool.processing import STANDARD_TIER
from spool.record import NS, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_BILLING

REPORTED = "reported"


@dataclass
class _PriceChangeEffect:
    """
    The effect of new prices: numbers of calls, and amounts in units of money before and after the change.
    """

    calls: int = 0
    reported: int = 0  # number of calls whose source reports a cost, which stays unchanged
    unpriced: int = 0  # number of calls without a price after the change
    before: int = 0
    after: int = 0

    def add_usage(self, usage_sum: UsageSum, price_book: PriceBook) -> None:
        calls = usage_sum.tokens.calls
        self.calls += calls
        self.before += usage_sum.cost
        estimate = None
        if usage_sum.dimensions.cost_source == REPORTED:
            self.reported += calls
        else:
            # do not use a price that changes within the day, such as one at night, for the sum of a day
            whole_day = replace(usage_sum.tokens, until=(usage_sum.day + DAY_S) * NS)
            estimate = price_book.estimate_sum(whole_day)
            is_unpriced = KIND_OF_SOURCE[usage_sum.dimensions.cost_source] == UNPRICED
            self.unpriced += calls if estimate is None and is_unpriced else 0
        self.after += usage_sum.cost if estimate is None else money.text_to_units(estimate)


class PricePreview(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[str, words("The start of the period."), example("2026-10-29T00:00:00.000Z")]
    to: Annotated[str, words("The end of the period."), example("2026-11-27T01:45:14.016Z")]
    calls: Annotated[int, words("The number of calls that the price fits."), example(2311)]
    reported_calls: Annotated[
        int,
        words("The number of calls that the price fits and whose source reported a cost, which stays."),
        example(0),
    ]
    unpriced_calls: Annotated[int, words("The number of calls without a price after the change."), example(0)]
    before: Annotated[
        str, words("The cost of the calls that the price fits, before the change."), example("0")
    ]
    after: Annotated[
        str, words("The cost of the calls that the price fits, after the change."), example("12.4816")
    ]


@operator_call(
    "POST",
    "/prices/preview",
    MODIFY_BILLING,
    "Preview a price",
    answers=one_field_answer(
        "PricePreviewAnswer",
        preview=Annotated[PricePreview, words("The effect of the price on the calls of the last 30 days.")],
    ),
)
async def preview_price(request: OperatorRequest[MoneyServices, NewPrice]) -> Result:
    """
    Show the calls of the last 30 days that a price fits, and their cost before and after. Nothing is changed.
    A cost that the source reports stays.
    """
    services = request.services
    price = check_price(request.body)
    book = await asyncio.to_thread(services.prices)
    await services.ledger.require_complete_totals(services.log)
    now = request.now()
    days = days_within(now - (DAYS - 1) * DAY_S, now)
    override = to_price_override(price)
    only = PriceBook(book.card, (override,))
    effect = _PriceChangeEffect()
    after = book.with_override(override)
    for day in days:
        for one in await services.ledger.usage_of_day(day):
            if one.dimensions.kind == "call" and _is_priced_by_override(override, only, one):
                effect.add_usage(one, after)
    shown = {"from": utc_iso(days[0]), "to": utc_iso(now), **_describe_price_effect(effect)}
    return {"preview": shown}


def _describe_price_effect(effect: _PriceChangeEffect) -> Mapping[str, object]:
    return {
        "calls": effect.calls,
        "reported_calls": effect.reported,
        "unpriced_calls": effect.unpriced,
        "before": money.units_to_text(effect.before),
        "after": money.units_to_text(effect.after),
    }


def _is_priced_by_override(override: PriceOverride, only: PriceBook, usage_sum: UsageSum) -> bool:
    tokens = usage_sum.tokens
    if override.tier not in ("", usage_sum.dimensions.mode or STANDARD_TIER):
        return False
    models = filter(None, (tokens.response_model, tokens.request_model))
    return any(only.has_operator_prices(tokens.provider, model) for model in models)
