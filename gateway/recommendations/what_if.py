"""
What calls would have cost with another model: the arithmetic of the recommendation `cheaper_model`, for
whatever model somebody asks about.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.intake.prices import PriceBook
from gateway.recommendations.facts import DAY_S, SavingFacts, Use
from gateway.recommendations.gathering import MOST_A_DAY, Chosen, of_sum
from spool.errors import Invalid
from spool.ledger.days.tokens import DaySum
from spool.ledger.ledger import Ledger
from spool.ledger.limits import limit_of_question
from spool.ledger.sums import Dimensions
from spool.processing import STANDARD
from spool.record import NS, Inference

ASSUMPTIONS = (
    "The other model needs as many tokens.",
    "The other model is paid at its list price of today, in the proportion in which list prices are paid now.",
)
Group = tuple[str | None, ...]


@dataclass(slots=True)
class Instead:
    """In units of money. `unchanged` is the cost of calls that have no list price now: it stays."""

    calls: int = 0
    cost: int = 0
    saves: int = 0
    unchanged: int = 0

    def add(self, use: Use, saves: int | None) -> None:
        self.calls += use.tokens.calls
        self.cost += use.cost
        self.saves += saves or 0
        self.unchanged += use.cost if saves is None else 0

    @property
    def as_if(self) -> int:
        return self.cost - self.saves


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """By group, and of all."""

    groups: Mapping[Group, Instead]
    total: Instead = field(default_factory=Instead)


def check_model(book: PriceBook, model: str, now: float) -> None:
    """Invalid if no list price is known for it."""
    one = Inference(
        id=b"", source="", response_model=model, start_time=int(now) * NS, input_tokens=1, output_tokens=1
    )
    if book.estimate(one) is None:
        raise Invalid(f"no list price is known for the model {model!r}: write its name as the list prices do")


async def what_if(
    ledger: Ledger,
    book: PriceBook,
    model: str,
    *,
    days: Sequence[int],
    chosen: Chosen | None,
    group_of: Callable[[Dimensions], Group],
    now: float,
) -> WhatIf:
    """
    Calls of days (epoch seconds of their begin, UTC) that are chosen, None: all; of each day the dearest sums.
    AskedTooMuch as of a question to the ledger.
    """
    found: dict[Group, Instead] = defaultdict(Instead)
    total = Instead()
    estimate = of_sum(book)
    facts = SavingFacts(now=now, estimate=estimate)
    limit = limit_of_question()

    def add(sums: Sequence[DaySum]) -> None:
        for each in sums:
            use = Use(
                day=each.day,
                dimensions=each.dimensions,
                tokens=each.tokens,
                cost=each.cost,
                estimate=estimate(each.tokens),
            )
            saves = _saving(facts, use, model)
            found[group_of(use.dimensions)].add(use, saves)
            total.add(use, saves)

    for day in days:
        sums = await ledger.sums_of_day(day, most=MOST_A_DAY, chosen=chosen)
        await asyncio.to_thread(add, sums)
        if limit is not None:
            limit.check_rows(len(found))
            limit.check_time()
    return WhatIf(groups=dict(found), total=total)


def _saving(facts: SavingFacts, use: Use, model: str) -> int | None:
    """
    Return the saving of the same tokens in the same processing; in the standard one if the other model has no
    price for that.
    """
    instead = replace(
        use.tokens, provider=None, response_model=model, request_model=None, time=int(facts.now) * NS
    )
    saves = facts.saving(use, instead)
    if saves is None and instead.mode != STANDARD:
        saves = facts.saving(use, replace(instead, mode=STANDARD))
    return saves


def days_within(since: float, until: float) -> range:
    """The days of UTC that a time touches."""
    return range(int(since) // DAY_S * DAY_S, -int(-until // DAY_S) * DAY_S, DAY_S)
