from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from spool.ledger.costs import query_costs
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery
from spool.sqlite.ledger import SqliteLedgerRows
from tests.bench.growth.billed_questions import (
    MEMORY,
    MOST,
    PROJECT,
    QUESTIONS,
    AnyEngine,
    Question,
    TaggedFleet,
    prepare,
)
from tests.rounds import some

KINDS = ("real_cost", "billed_cost")
CALLS = 1000
# limit for a ratio of processor times; the measured ratio is below 1, but other load on the machine affects it
MOST_TOGETHER = 4
STEPS = 50  # database instructions between two calls of the progress handler
# handler calls in 5,000 instructions (below 0.1 ms); subtracted because some queries read very few rows
FEW = 5000 // STEPS


class Steps:
    """Counts the steps that the database executes for a query, which are the same in every run."""

    def __init__(self, ledger_rows: LedgerRows) -> None:
        assert isinstance(ledger_rows, SqliteLedgerRows)
        self._rows = ledger_rows
        self._counted = 0

    def of(self, query: CostQuery) -> int:
        with self._counting():
            query_costs(self._rows, query)
        return self._counted

    @contextmanager
    def _counting(self) -> Iterator[None]:
        self._counted = 0
        self._rows._connection.set_progress_handler(self._count, STEPS)
        try:
            yield
        finally:
            self._rows._connection.set_progress_handler(None, 0)

    def _count(self) -> int:
        self._counted += 1
        return 0


def asked(question: Question, cost_type: str) -> CostQuery:
    derived = {PROJECT.name: PROJECT} if PROJECT.name in question.by else {}
    return replace(question.query(cost_type), derived=derived)


@pytest.mark.proves("no query reads more than 1.3 times the sums of the same query of counted costs")
@pytest.mark.bench
async def test_questions_of_billed_money_go_through_as_few_sums(tmp_path: Path) -> None:
    """
    A query of billed money takes at most 1.3 times the database steps of the same query of counted money.
    """
    engine = AnyEngine(MEMORY, tmp_path)
    async with engine.ledger() as ledger:
        await prepare(engine, ledger, TaggedFleet(users=20, teams=4, models=12), CALLS)

        def work(ledger_rows: LedgerRows) -> dict[str, float]:
            steps = Steps(ledger_rows)
            both = {each: [steps.of(asked(each, kind)) for kind in KINDS] for each in QUESTIONS}
            return {each.words: (billed - FEW) / counted for each, (counted, billed) in both.items()}

        ratios = await ledger._store.read(work)
        took = dict.fromkeys(KINDS, 0.0)
        for question in some(QUESTIONS, every=4):
            for kind in KINDS:
                begun = time.process_time()
                await ledger.costs(asked(question, kind))
                took[kind] += time.process_time() - begun
    counted, billed = took.values()
    print(f"\n{billed / counted:.2f} times, at worst {max(ratios.values()):.2f} times the steps")
    assert {} == {words: ratio for words, ratio in ratios.items() if ratio > MOST}
    assert billed <= MOST_TOGETHER * counted
