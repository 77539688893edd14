"""
Facts for recommendations, made from example calls that a real ledger counts and the packaged card prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from gateway.intake.prices import PriceBook
from gateway.money.recommendations.evaluation import Evaluation, StoredAdvice, build_savings, evaluate_types
from gateway.money.recommendations.facts import DAY_S, RecommendationType, SavingFacts
from gateway.money.recommendations.gathering import Sources, gather_saving_facts
from spool.ledger.ledger import Ledger
from spool.record import NS, Inference
from spool.registry.recommendations import Saving, TypeSettings
from spool.sqlite.in_memory import new_in_memory_ledger
from tests.spool.ledger_log import FakeClock, FakeLog

BOOK = PriceBook.load()
NOW = 1_795_000_000 // DAY_S * DAY_S + 15 * 3600  # an afternoon in November 2026
DIMENSIONS = ("source", "provider", "model", "team", "user", "tag:service")


def call(days_ago: float = 1, **fields: Any) -> Inference:
    """Create a call of the search team with its estimate."""
    values: dict[str, Any] = {
        "id": b"\0" * 16, "source": "litellm", "provider": "openai", "request_model": "gpt-4.1",
        "team": "search", "tags": {"service": "answers"}, "start_time": int((NOW - days_ago * DAY_S) * NS),
        "input_tokens": 1_000_000, "output_tokens": 100_000,
    }  # fmt: skip
    new_call = Inference(**{**values, **fields})
    BOOK.price_record(new_call)
    return new_call


async def facts_of(calls: Sequence[Inference], *, now: float = NOW) -> SavingFacts:
    clock, log = FakeClock(now), FakeLog()
    ledger = Ledger(new_in_memory_ledger(), clock=clock)
    if calls:
        log.add(calls, at=now)
    facts, _ = await gather_saving_facts(Sources(ledger=ledger, log=log, prices=lambda: BOOK), now=now)  # type: ignore[arg-type]
    return facts


async def found(
    type: RecommendationType, calls: Sequence[Inference], known: StoredAdvice | None = None
) -> list[Saving]:
    """Return the savings of one recommendation type among calls, without a minimum amount."""
    facts = await facts_of(calls)
    everything = known or StoredAdvice(settings={type.NAME: TypeSettings(least_savings="0", least_share="0")})
    evaluation = evaluate_types(facts, [type], everything)
    assert [] == evaluation.failed
    return told(facts, evaluation)


def told(saving_facts: SavingFacts, evaluation: Evaluation) -> list[Saving]:
    """Return the savings, and check that each is at most the cost of its tokens."""
    found_savings = build_savings(saving_facts, evaluation, dimensions=DIMENSIONS, price_book=BOOK.version)
    for saving in found_savings:
        assert saving.key.startswith(f"{saving.type}:")
        assert 0 < Decimal(saving.monthly_savings) <= Decimal(saving.gross_savings) <= Decimal(saving.spent)
        assert "What was seen: " in saving.description
        assert "What to do: " in saving.description
    assert len({saving.key for saving in found_savings}) == len(found_savings)
    return found_savings
