"""An answer of several queries, while units of work are unlisted between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.intake.prices import PriceBook
from gateway.money.costs.answer import answer_costs
from gateway.money.costs.continuing import work_units_with_calls_in_adjacent_days
from gateway.money.costs.listing import TRIES, repeat_while_listing_changes
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.reader import CostReader
from spool.errors import NotKept
from spool.ledger.ledger import Ledger
from spool.ledger.periods import PREVIOUS, ComparedSpans, compared_spans
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.work import OTHER, unit_number_from_name_or_digest
from spool.record import NS
from tests.spool.digests import as_shown
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

SESSIONS = [f"s{number}" for number in range(2 * TRIES)]


class Unlisting:
    """Unlists one more session after each of the first `times` queries of a ledger."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self._ledger, self._costs_of = ledger, ledger.costs_of_queries
        self.left = SESSIONS[:times]
        monkeypatch.setattr(ledger, "costs_of_queries", self.costs_of_queries)

    async def costs_of_queries(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]:
        found = await self._costs_of(queries)
        if self.left:
            number = unit_number_from_name_or_digest("session", as_shown("session", self.left.pop(0)))
            await self._ledger._change_rows(lambda rows: rows.merge_units_into_other("session", [number]))
        return found


@pytest.fixture(params=ENGINES)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    ledgers, log = Ledgers.of(request.param, request, tmp_path), FakeLog()
    ledger = await ledgers.open(clock=FakeClock(BEGIN + 3 * HOUR))
    log.add(
        [
            call(id=number.to_bytes(16, "big"), session=session, estimated_cost="1", start_time=start * NS)
            for number, (session, start) in enumerate(
                (session, BEGIN + hours * HOUR) for session in SESSIONS for hours in (0, 1)
            )
        ]
    )
    await ledger.catch_up(log)
    yield ledger
    await ledgers.close()


def question(**fields: object) -> CostQuestion:
    times = {
        name: datetime.fromtimestamp(BEGIN + hours * HOUR, UTC)
        for name, hours in (("since", 1), ("until", 2))
    }
    return CostQuestion(**{**times, "by": ("session",), **fields})  # type: ignore[arg-type]


async def reader(ledger: Ledger) -> CostReader:
    def no_registry() -> object:
        raise AssertionError

    return CostReader(whole=ledger, require_registry=no_registry)  # type: ignore[arg-type]


def directly_before(query: CostQuery) -> ComparedSpans:
    span, hours_since = (query.since, query.until), datetime.fromtimestamp(0, UTC)
    return compared_spans(span, PREVIOUS, BEGIN + 3 * HOUR, query.zone, hours_since)


async def test_an_answer_has_one_listing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows, the period before, the sum of unlisted sessions and the sessions that continue belong together."""
    reads = await reader(ledger)
    asked = question(top=100, earlier=directly_before)
    Unlisting(ledger, monkeypatch, 3)

    async def made() -> None:
        found = await answer_costs(asked, reads, ledger._clock.now(), prices=PriceBook.load)
        rows = {row.group[0]: Decimal(row.cost) for row in found.rows}
        before = {row.group[0]: Decimal(row.cost) for row in found.before}
        unlisted = Decimal(found.unlisted.cost) if found.unlisted else 0
        around = await work_units_with_calls_in_adjacent_days(ledger, found.query, "session", rows)
        assert rows == before
        assert rows.get(OTHER, 0) == unlisted
        assert {name for name in rows if name != OTHER} == {*around}
        assert sum(rows.values()) == len(SESSIONS)

    await repeat_while_listing_changes(ledger, asked.query, made)


async def test_a_unit_that_was_unlisted_before_is_still_refused(ledger: Ledger) -> None:
    reads, name = await reader(ledger), as_shown("session", SESSIONS[0])
    await ledger._change_rows(
        lambda rows: rows.merge_units_into_other(
            "session", [unit_number_from_name_or_digest("session", name)]
        )
    )
    with pytest.raises(NotKept, match="no longer listed"):
        await answer_costs(
            question(include={"session": (name,)}), reads, ledger._clock.now(), prices=PriceBook.load
        )


async def test_an_answer_is_made_a_bounded_number_of_times(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlisting, count = Unlisting(ledger, monkeypatch, len(SESSIONS)), 0

    async def made() -> int:
        nonlocal count
        await ledger.costs(question().query)
        return (count := count + 1)

    assert TRIES == await repeat_while_listing_changes(ledger, question().query, made)
    assert len(SESSIONS) - TRIES == len(unlisting.left)
