"""
A comparison reads only the largest changes by model and computes the rest as the remainder. The result equals
a full read.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from gateway.intake.prices import PriceBook
from gateway.money.comparison import comparing
from gateway.money.comparison.comparing import Comparison, compare_costs
from gateway.money.comparison.split import PARTS, ChangeParts
from spool import money
from spool.ledger.costs import combine_rows
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import LATENCY, OTHER
from spool.ledger.usages import UsageByGroup, row_usage
from tests.rounds import examples

NOW = datetime(2026, 11, 2, tzinfo=UTC)
DAY = timedelta(days=1)
MODELS = (("openai", "gpt-4o"), ("anthropic", "claude-sonnet-4-5"), ("openai", "no-model"), (None, None))
BOOK = PriceBook.load()


def spent(
    day: int, team: str | None, model: tuple[str | None, str | None], cost: str, tokens: int, calls: int = 1
) -> tuple[dict[str, str | None], CostRow]:
    row = CostRow(
        start=NOW - day * DAY, group=(), cost=cost, reported=cost, estimated=cost, saved="0", calls=calls, errors=0,
        cached=0,
        priced=0, free=0, unpriced=0, without_usage=0,
        input_tokens=tokens, output_tokens=tokens // 3, cache_read_tokens=tokens // 5,
        cache_write_tokens=0, reasoning_tokens=0, cache_write_1h_tokens=0, cached_input_tokens=0,
        cached_output_tokens=0, latency_ms=0, latency=(0,) * (len(LATENCY) - 1),
    )  # fmt: skip
    return {"team": team, "provider": model[0], "model": model[1]}, row


class MadeUp:
    """An invented ledger with a few sums, which records its queries."""

    def __init__(self, *sums: tuple[dict[str, str | None], CostRow]) -> None:
        self._sums = sums
        self.asked: list[CostQuery] = []

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        self.asked.append(query)
        rows_by_group: dict[tuple[str | None, ...], list[CostRow]] = {}
        for values, row in self._sums:
            is_wanted = all((values[name] or "") in wanted for name, wanted in query.include.items())
            if is_wanted and query.since <= row.start < query.until:
                rows_by_group.setdefault(tuple([values.get(name) for name in query.group_by]), []).append(row)
        return [combine_rows(rows, start=query.since, group=group) for group, rows in rows_by_group.items()]

    async def usages_of_queries(self, queries: Sequence[CostQuery]) -> Sequence[UsageByGroup]:
        return [{row.group: row_usage(row) for row in await self.costs(query)} for query in queries]


QUERY = CostQuery(since=NOW - DAY, until=NOW, group_by=["team"])
BASELINE = replace(QUERY, since=NOW - 2 * DAY, until=NOW - DAY)


async def compared(ledger: MadeUp, top: int = 1) -> Comparison:
    return await compare_costs(ledger, QUERY, BASELINE, top=top, prices=BOOK)


def made_up(chance: random.Random) -> MadeUp:
    """Create random teams, some on only one day, some without tokens."""
    sums = []
    for team in ("a", "b", "c", "d", OTHER, None):
        for day in chance.choice(((1, 2), (1, 2), (1,), (2,))):
            for model in chance.sample(MODELS, k=chance.randrange(1, 4)):
                cost, tokens = Decimal(chance.randrange(1000)) / 7, chance.choice((0, 900, 10**6))
                units = money.text_to_units(str(cost)[:20])
                sums.append(
                    spent(day, team, model, money.units_to_text(units), tokens, chance.randrange(1, 9))
                )
    return MadeUp(*sums)


async def test_it_is_the_same_by_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Reading only selected groups gives the same rows as reading all groups, and the rows add up to the total.
    """
    for seed in range(examples(100)):
        few, all = (made_up(random.Random(seed)) for _ in range(2))
        comparison = await compared(few, top=2)
        with monkeypatch.context() as patch:
            patch.setattr(comparing, "MOST_APART", -1)
            assert comparison == await compared(all, top=2)
        assert not any(query.include for query in all.asked)
        for driver in (*comparison.drivers, comparison.total):
            assert driver.now.cost - driver.before.cost == driver.parts.change
        for name in PARTS:
            parts = [getattr(driver.parts, name) for driver in comparison.drivers]
            assert sum(parts) == getattr(comparison.total.parts, name)
        whole = await compared(made_up(random.Random(seed)), top=99)
        named = [driver for driver in comparison.drivers if driver.group != (OTHER,)]
        assert named == list(whole.drivers[: len(named)])
        assert whole.total.now == comparison.total.now
        assert whole.total.before == comparison.total.before


async def test_models_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Grouping by model takes one query per period, and gives the same result as the two steps of other groupings.
    """
    query, baseline = (replace(each, group_by=["team", "model"]) for each in (QUERY, BASELINE))
    for seed in range(examples(100)):
        at_once, in_steps = (made_up(random.Random(seed)) for _ in range(2))
        comparison = await compare_costs(at_once, query, baseline, top=2, prices=BOOK)
        with monkeypatch.context() as patch:
            patch.setattr(comparing, "OF_MODELS", ())
            assert comparison == await compare_costs(in_steps, query, baseline, top=2, prices=BOOK)
        assert len(at_once.asked) == 2 < len(in_steps.asked)
    in_euro = made_up(random.Random(0))
    await compare_costs(
        in_euro, replace(query, currency="EUR"), replace(baseline, currency="EUR"), prices=BOOK
    )
    # In euros, the comparison needs two steps, because sums of rounded amounts may differ in their last digit.
    assert len(in_euro.asked) > 2


async def test_the_others_have_kinds_and_prices_together() -> None:
    """
    Two of the small groups use as many tokens as before. The first moved to a model of twice the price, which
    is a change of kinds. The price of the second group's model rose by half, which is a change of prices.
    """
    cheap, dear, own = ("openai", "gpt-4o"), ("anthropic", "claude-sonnet-4-5"), ("openai", "no-model")
    ledger = MadeUp(
        spent(2, "large", own, "100", 300), spent(1, "large", own, "900", 300),
        spent(2, "moved", cheap, "10", 3000), spent(1, "moved", dear, "20", 3000),
        spent(2, "stays", own, "4", 3000), spent(1, "stays", own, "6", 3000),
        spent(2, "beside", dear, "20", 3000), spent(1, "beside", dear, "20", 3000),
    )  # fmt: skip
    comparison = await compared(ledger)
    large, others = comparison.drivers
    assert ChangeParts(unit_cost=money.text_to_units("800")) == large.parts
    assert (
        ChangeParts(other_kinds=money.text_to_units("10"), unit_cost=money.text_to_units("2")) == others.parts
    )
    assert all({"team": ("large",)} == dict(query.include) for query in ledger.asked[2:4])


async def test_new_groups_among_the_others_are_new() -> None:
    """
    New and deleted groups do not change the kinds or prices of groups that stay, although they use the same model.
    """
    model = ("openai", "no-model")
    ledger = MadeUp(
        spent(2, "large", model, "100", 300), spent(1, "large", model, "900", 300),
        spent(2, "stays", model, "10", 3000), spent(1, "stays", model, "10", 3000),
        spent(1, "came", model, "50", 300), spent(2, "left", model, "1", 3000),
    )  # fmt: skip
    others = (await compared(ledger)).drivers[1]
    assert ChangeParts(new=money.text_to_units("50"), gone=-money.text_to_units("1")) == others.parts
