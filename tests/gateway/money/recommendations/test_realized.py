"""
Realized savings of an addressed recommendation: they are measured by the cost per answer, and are at most
the promised amount.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gateway.money.recommendations.adviser import LEAST_DAYS, realized_saving, saved_amount
from gateway.money.recommendations.facts import DAY_S
from spool import money
from spool.ledger.costs import combine_rows
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostRow
from spool.record import Inference
from spool.registry.recommendations import Realized, Recommendation
from spool.sqlite.in_memory import new_in_memory_ledger
from tests.gateway.money.recommendations.examples import NOW, call
from tests.spool.ledger_log import FakeClock, FakeLog
from tests.spool.savings import SAVING

NOTHING = combine_rows([], start=datetime(2026, 1, 1, tzinfo=UTC), group=())
ADDRESSED = NOW - 20 * DAY_S


def row(cost: str, calls: int, errors: int = 0) -> CostRow:
    return msgspec.structs.replace(NOTHING, cost=cost, calls=calls, errors=errors)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (row("300", 1000), row("130", 600), "50"),
        # A saving is at most the amount that was promised for this number of calls.
        (row("300", 1000), row("60", 600), "60"),
        # after the change, an answer costs more than before, so nothing is saved
        (row("300", 1000), row("190", 600), "0"),
        (row("300", 1100, errors=100), row("130", 900, errors=300), "50"),
        (row("300", 1000), row("0", 0), "0"),
        (row("0", 0), row("130", 600), "0"),
        (None, row("130", 600), "0"),
        (row("300", 1000), None, "0"),
    ],
)
def test_by_the_cost_of_an_answer(before: CostRow | None, after: CostRow | None, expected: str) -> None:
    """The saving is measured by the cost per answer. $100 were promised for a thousand answers."""
    assert expected == money.units_to_text(saved_amount(before, after, promised=money.text_to_units("100")))


async def measured(calls: list[Inference], *, days_later: float = 20, **fields: Any) -> Realized | None:
    """Measure a recommendation for the search team that was addressed on the day of ADDRESSED."""
    values: dict[str, Any] = {"status": "addressed", "promised": "1", **fields}
    recommendation = Recommendation(
        id="r", saving=SAVING, status_at=ADDRESSED, created=0, last_updated=0, found_at=0, **values
    )
    log, ledger = FakeLog(), Ledger(new_in_memory_ledger(), clock=FakeClock(NOW))
    log.add(calls, at=NOW)
    await ledger.catch_up(log)
    return await realized_saving(ledger, recommendation, ADDRESSED + days_later * DAY_S)


def traffic() -> list[Inference]:
    """
    Create one call of $2.80 per day before the change, and one of half the size after it. Calls of the day
    itself and of another team do not count.
    """
    before = [call(days) for days in range(21, 31)]
    after = [call(days, input_tokens=500_000, output_tokens=50_000) for days in range(20)]
    return [
        *before,
        *after,
        call(20, cost="1000"),
        *(call(days, team="docs", cost="500") for days in (25, 5)),
    ]


async def test_whole_days_after_the_one_it_was_addressed_on() -> None:
    """
    Whole days after the day of the change are measured. By hand: 19 answers at $1.40 instead of $2.80 save
    $26.60, but only $1 was promised for ten answers, which limits the saving.
    """
    realized = await measured(traffic())
    assert realized is not None
    assert "1.9" == realized.amount
    assert 19 == (datetime.fromisoformat(realized.until) - datetime.fromisoformat(realized.since)).days
    realized = await measured(traffic(), promised="28")
    assert realized is not None
    assert "26.6" == realized.amount


async def test_saving_is_measured_over_two_weeks_to_thirty_days() -> None:
    """
    At least two weeks and at most thirty whole days are measured, and only of addressed recommendations.
    """
    assert None is await measured(traffic(), days_later=LEAST_DAYS)
    assert None is not await measured(traffic(), days_later=LEAST_DAYS + 1)
    late = await measured(traffic(), days_later=50)
    assert late is not None
    assert 30 == (datetime.fromisoformat(late.until) - datetime.fromisoformat(late.since)).days
    assert None is await measured(traffic(), status="in_progress", promised=None)
