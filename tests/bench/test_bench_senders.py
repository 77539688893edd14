"""
Cost of remembering the senders of calls on real traffic, and the load of `tests.bench.senders` in a short round.

`TOLLHOUSE_PROOFS=1 python -m pytest -q -s -m bench tests/bench/test_bench_senders.py` prints processor time per
span, in which a conversation per request or per span is new. Reading the same spans is the yardstick.
"""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from gateway.intake.shadows import ReportedCallers, sender_rows_to_store
from gateway.normalise import otlp
from gateway.normalise.outcome import ReadOptions
from spool.settings import SpoolSettings
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from spool.sqlite.partial_reports import SqliteStoredSenders
from tests.bench.load import payloads
from tests.bench.senders import costs
from tests.gateway.normalise.otlp.items import finished
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG

PAYLOADS_AT_ONCE = 100
SPANS_PER_S = 10_000

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(
    ("spans", "of_span", "rounds"), [(100, False, 8), (10, False, 60), (10, True, 60), (1, False, 100)]
)
def test_senders_of_real_spans_are_remembered(spans: int, of_span: bool, rounds: int) -> None:
    """Each conversation is stored once, and is known afterwards."""
    clock, limit = MovedClock(), SpoolSettings().max_senders
    heard = SqliteStoredSenders(MemoryDatabase(SPOOL), clock, max_senders=limit)
    shadows = ReportedCallers(clock, heard=heard, max_senders=limit)
    bodies = [
        payloads.real_spans(spans, service, conversation_of_span=of_span)
        for service in range(payloads.REAL_SERVICES)
    ]
    number, read_s, noted_s = 0, [], []
    for _ in range(rounds if IS_LONG else 1):
        begin = process_time()
        outcomes = []
        for _ in range(PAYLOADS_AT_ONCE):
            body = payloads.numbered(bodies[number % len(bodies)], number)
            outcomes.append(finished(otlp.normalise_otlp("traces", body, json=False, options=ReadOptions())))
            number += 1
        read = process_time()
        stored = 0
        for outcome in outcomes:
            shadows.note_records(outcome.records, [None] * spans, clock.now(), sender_key="key")
            stored += len(sender_rows_to_store(shadows.take_unstored_callers("key")))
            clock.move(spans / SPANS_PER_S)
        read_s.append(read - begin)
        noted_s.append(process_time() - read)
        assert stored >= PAYLOADS_AT_ONCE * (spans if of_span else 1)
        assert len(shadows) >= number * (spans if of_span else 1)
    factor = 1e6 / PAYLOADS_AT_ONCE / spans
    noted, read_us = sorted(noted_s)[len(noted_s) // 2] * factor, sorted(read_s)[len(read_s) // 2] * factor
    print(f"\n{spans} spans, {'conversation per span' if of_span else 'conversation per request'}: ", end="")
    print(f"{noted:.2f} µs a span, reading {read_us:.1f} µs, ratio {noted / read_us:.2f}")


def test_the_load_after_new_conversations_is_measured(tmp_path: Path) -> None:
    """The server accepts both floods and both loads, under one key and under several keys."""
    before, after = costs("real-10x2", 3, 20, 0.3, tmp_path, warm_up_s=0)
    assert before.records > 0
    assert after.records > 0
    assert before.refused == after.refused == {}
