"""One rule for the price of a size: on arrival, and in a recalculation."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from gateway.intake.prices import PriceBook
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.ledger.token_sums import SIZES
from spool.record import NS, Inference
from tests.rounds import part
from tests.spool.ledger.engines import POSTGRES, SQLITE, Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call, opened

BOOK = PriceBook.load()
SINCE = datetime.fromtimestamp(BEGIN - 24 * 3600, UTC)


def priced(model: str, provider: str, input_tokens: int, **fields: object) -> Inference:
    record = call(
        provider=provider, request_model=model, response_model=model, input_tokens=input_tokens, output_tokens=10_000,
        estimated_cost=None, cost_source="none", start_time=BEGIN * NS, **fields,
    )  # fmt: skip
    estimate = BOOK.estimate_record(record)
    source = "none" if estimate is None else "estimated"
    return msgspec.structs.replace(record, estimated_cost=estimate, cost_source=source)


def tiers_of(book: PriceBook) -> list[tuple[str, str, int]]:
    """Return provider, model and number of input tokens of each tier in the price list."""
    return sorted(
        {
            (provider, model.id, tier.above)
            for provider, seller in book.card.providers.items()
            for model in seller.models
            for row in model.prices
            for tier in row.tiers
        }
    )


def calls_next_to_tiers(book: PriceBook) -> list[Inference]:
    sizes = {
        (provider, model, size)
        for provider, model, above in tiers_of(book)
        for size in (*(above + step for step in (-1, 0, 1, 2)), *SIZES[1:])
    }
    return [priced(model, provider, size) for provider, model, size in sorted(sizes)]


@pytest.mark.parametrize("engine", part([SQLITE, POSTGRES], every=2))
async def test_unchanged_prices_change_no_total(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    For each model with prices by size, and each size next to them, a recalculation with unchanged prices changes no
    total, with stored records and without.
    """
    ledgers = Ledgers.of(engine, request, tmp_path)
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + 3600)), FakeLog()
    ledger.books.open = opened
    log.add(calls_next_to_tiers(BOOK) * 2)
    await ledger.catch_up(log)
    everything = CostQuery(since=SINCE, until=datetime.fromtimestamp(BEGIN + 7200, UTC), granularity=TOTAL,
                           group_by=("provider", "model"))  # fmt: skip
    before = await ledger.costs(everything)
    done = await ledger.reprice(log, BOOK, since=SINCE)
    assert (0, 0) == (done.rows, done.kept_sizes)
    assert before == await ledger.costs(everything)
    log.add([call()])
    log.forget_below(log.lowest_open_number() - 1)
    await ledger.catch_up(log)
    kept = await ledger.reprice(log, BOOK, since=SINCE)
    assert 0 == kept.rows
    assert kept.kept_sizes > 0
    await ledgers.close()


def test_a_size_at_the_tier_has_the_price_of_its_arrival() -> None:
    """Exactly 200,000 input tokens are above a tier at 199,999."""
    [(provider, model, above)] = [each for each in tiers_of(BOOK) if each[2] == 199_999][:1]
    record = priced(model, provider, above + 1)
    smaller = priced(model, provider, above)
    assert record.estimated_cost is not None
    assert smaller.estimated_cost is not None
    assert float(record.estimated_cost) > 1.5 * float(smaller.estimated_cost)
