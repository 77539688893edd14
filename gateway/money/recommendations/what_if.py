"""
The cost that calls would have had with another model. Uses the arithmetic of the recommendation `cheaper_model`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.intake.prices import PriceBook, cost_of_sum
from gateway.intake.rates import Rate
from gateway.money.recommendations.facts import DAY_S, scale_by_paid_share
from gateway.money.recommendations.gathering import MOST_A_DAY, DimensionsTest
from spool import money
from spool.errors import Invalid
from spool.ledger.days.usage import DaySum
from spool.ledger.ledger import Ledger
from spool.ledger.sums import Dimensions
from spool.ledger.token_sums import TokenSum
from spool.record import NS, Inference
from spool.turns.question_limit import limit_of_running_query

ASSUMPTIONS = (
    "The other model needs the same number of tokens.",
    "The other model costs its current list price, scaled by the share of list prices that these calls paid.",
)
Group = tuple[str | None, ...]
# what decides the price of a call: provider, response model, request model, mode, and time in nanoseconds
_Named = tuple[str | None, str | None, str | None, str, int]
# days whose sums are in memory at the same time; other queries wait while they are read
DAYS_AT_ONCE = 6
DAYS_OF_CHOSEN = 2  # days that are in memory at the same time if all sums of a day are read


@dataclass(slots=True)
class ModelReplacementCosts:
    """
    The calls of a group and their costs in units of money. `saves` is the saving with the other model.
    `unchanged` is the cost of calls without a list price, which stays the same.
    """

    calls: int = 0
    cost: int = 0
    saves: int = 0
    unchanged: int = 0

    def add_day(self, day_sum: DaySum, saving: int | None) -> None:
        self.calls += day_sum.tokens.calls
        self.cost += day_sum.cost
        self.saves += saving or 0
        self.unchanged += day_sum.cost if saving is None else 0

    @classmethod
    def sum_of(cls, several: Collection[ModelReplacementCosts]) -> ModelReplacementCosts:
        return cls(
            calls=sum(part.calls for part in several),
            cost=sum(part.cost for part in several),
            saves=sum(part.saves for part in several),
            unchanged=sum(part.unchanged for part in several),
        )

    @property
    def hypothetical_cost(self) -> int:
        return self.cost - self.saves


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    groups: Mapping[Group, ModelReplacementCosts]
    total: ModelReplacementCosts = field(default_factory=ModelReplacementCosts)


def check_model_has_price(price_book: PriceBook, model: str, now: float) -> None:
    """Raise Invalid if no list price is known for the model."""
    sample_call = Inference(
        id=b"", source="", response_model=model, start_time=int(now) * NS, input_tokens=1, output_tokens=1
    )
    if price_book.estimate_record(sample_call) is None:
        raise Invalid(f"no list price is known for the model {model!r}; use its name from the list prices")


async def what_if(
    ledger: Ledger,
    price_book: PriceBook,
    model: str,
    *,
    days: Sequence[int],
    chosen: DimensionsTest | None,
    group_of: Callable[[Dimensions], Group],
    now: float,
) -> WhatIf:
    """
    Price the calls of these days as if they had used `model`.

    `days` are starts of days in epoch seconds (UTC). `chosen` selects calls. If it is None, all calls are
    selected. Only the most expensive sums of each day are read. Raises AskedTooMuch if the query exceeds its
    limits, like a cost query.
    """
    instead_by_group: dict[Group, ModelReplacementCosts] = defaultdict(ModelReplacementCosts)
    limit = limit_of_running_query()

    def add_day_sums(by_dimensions: Sequence[Sequence[DaySum]]) -> None:
        savings = _Savings(price_book, model, int(now) * NS)
        for sums in by_dimensions:
            group = instead_by_group[group_of(sums[0].dimensions)]
            for day_sum in sums:
                group.add_day(day_sum, savings.saving_of_day(day_sum))

    at_once = DAYS_AT_ONCE if chosen is None else DAYS_OF_CHOSEN
    for begin in range(0, len(days), at_once):
        sums = await ledger.sums_of_days(days[begin : begin + at_once], max_sums=MOST_A_DAY, chosen=chosen)
        await asyncio.to_thread(add_day_sums, sums)
        if limit is not None:
            limit.check_rows(len(instead_by_group))
            limit.check_time()
    return WhatIf(
        groups=dict(instead_by_group),
        total=await asyncio.to_thread(ModelReplacementCosts.sum_of, instead_by_group.values()),
    )


class _Savings:
    """
    Computes the saving of sums of calls if they had used another model, at its price at one time (ns). Prices
    are cached.
    """

    def __init__(self, price_book: PriceBook, model: str, time: int) -> None:
        self._book = price_book
        self._model = model
        self._time = time
        self._rates: dict[tuple[object, ...], Rate | None] = {}

    def saving_of_day(self, day_sum: DaySum) -> int | None:
        """
        Return the saving if one day's calls had used the other model in the same processing mode, or None if
        a price is unknown.
        """
        tokens = day_sum.tokens
        named = (tokens.provider, tokens.response_model, tokens.request_model, tokens.mode, tokens.time)
        estimate = self._price_as(tokens, named)
        if not estimate:
            return None
        # price of the other model at one fixed time, so `until` is 0
        price = self._price_as(replace(tokens, until=0), (None, self._model, None, tokens.mode, self._time))
        return None if price is None else scale_by_paid_share(estimate - price, day_sum.cost, estimate)

    def _price_as(self, tokens: TokenSum, named: _Named) -> int | None:
        if tokens.meters:
            text = self._book.estimate_sum(_with_names(tokens, named))
            return None if text is None else money.text_to_units(text)
        key = (*named, tokens.beyond)
        if key not in self._rates:
            total = _with_names(tokens, named)
            self._rates[key] = (
                self._book.rate_for_sum(total) if self._book.is_price_constant_over_time(total) else None
            )
        rate = self._rates[key]
        amount = None if rate is None else cost_of_sum(rate, tokens)
        return None if rate is None or amount is None else money.scaled_amount_to_units(amount, rate.digits)


def _with_names(tokens: TokenSum, named: _Named) -> TokenSum:
    provider, model, request_model, mode, time = named
    return replace(
        tokens, provider=provider, response_model=model, request_model=request_model, mode=mode, time=time
    )


def days_within(since: float, until: float) -> range:
    """Return the starts of all UTC days that the time range touches."""
    return range(int(since) // DAY_S * DAY_S, -int(-until // DAY_S) * DAY_S, DAY_S)
