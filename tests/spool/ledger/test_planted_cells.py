"""A cost without calls is found: money belongs to a call, except for counters of cost."""

from __future__ import annotations

from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import COUNTS, HOUR_S, MONEY, WIDTH
from spool.money import UNIT
from tests.spool.ledger.engines import Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call


async def test_a_planted_cost_without_calls_is_found(ledgers: Ledgers) -> None:
    ledger, log = await ledgers.open(clock=FakeClock(BEGIN + HOUR_S)), FakeLog()
    log.add([call(user="ada"), call(user="bob", session="s1")])
    await ledger.catch_up(log)
    assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences()

    def plant(rows: LedgerRows) -> None:
        [(_, dimensions, _), *_] = rows.call_sums(HOUR_S, BEGIN // HOUR_S * HOUR_S)
        [number] = rows.find_or_assign_dimension_set_numbers([dimensions._replace(user="nobody")])
        measures = [0] * WIDTH
        measures[len(COUNTS) + MONEY.index("estimated")] = UNIT
        rows.add_sums(HOUR_S, [(BEGIN // HOUR_S * HOUR_S, number, measures)])

    await ledger._change_rows(plant)
    [found] = (await ledger.compare_and_note_differences(log)).problem_sentences()
    assert "user=nobody" in found
    assert "estimated 1 instead of 0" in found
