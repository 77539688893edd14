"""
Failed attempts of one session that an assistant and its gateway report. They follow each other quickly, state no
counts, and the assistant may report the end of an attempt after the next one has begun.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import spool.sqlite.in_memory
from spool.identity import AS_ASSISTANT, AS_GATEWAY, RecordIdentity, build_relayed_report
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, Correction, Inference
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.rounds import examples
from tests.spool.contract.examples import NOON, Observed, assert_books_balance, everything

SESSION = "01a22ca3-6a07-7c61-979a-ca9735c6d17d"
HOLD_S = 10
Span = tuple[float, float]


def attempts(chance: random.Random, count: int) -> Iterator[tuple[Span, Span]]:
    """Yield the assistant's and the gateway's times of each attempt, the gateway's within the assistant's."""
    start = NOON - 600.0
    for _ in range(count):
        inner_start = start + chance.uniform(0.02, 0.4)
        inner_end = inner_start + chance.uniform(0.02, 0.5)
        end = inner_end + chance.choice([chance.uniform(0.01, 0.4), chance.uniform(0.4, 7)])
        yield (start, end), (inner_start, inner_end)
        start = end + chance.choice([chance.uniform(0.02, 1), chance.uniform(1, 6)])


def submission(number: int, side: str, times: Span) -> Submission:
    start, end = [int(time * NS) for time in times]
    record = Inference(
        id=number.to_bytes(16, "big"),
        source=side,
        status="error",
        session=SESSION,
        start_time=start,
        end_time=end,
        sender_key="key",
    )
    relay = build_relayed_report(record, SESSION, report_kind=side)
    identity = RecordIdentity(record.id, relay=relay, is_of_assistant=side == AS_ASSISTANT)
    return Submission(topic=AI_TELEMETRY, received=1, records=[record], identities=[identity])


async def calls_after(sent: list[Submission], pause: float) -> int:
    clock = MovedClock(NOON)
    opened = await spool.sqlite.in_memory.open_spool(
        settings=SpoolSettings(hold=HOLD_S), clock=clock, observer=Observed()
    )
    for each in sent:
        await opened.log.append_submission(each)
        clock.move(pause)
    clock.move(HOLD_S + 1)
    await assert_books_balance(opened.log)
    calls = {}
    for record in await everything(opened.log):
        if isinstance(record, Inference):
            calls[record.id] = record
        elif isinstance(record, Correction):
            calls[record.corrects] = record.after
    await opened.close()
    return sum(not call.shadow for call in calls.values())


@pytest.mark.rule
@pytest.mark.parametrize("pause", [0.0, HOLD_S + 1.0], ids=["in time", "late"])
@pytest.mark.parametrize("silent", [0.0, 0.2])
async def test_each_attempt_counts_once_in_any_order(pause: float, silent: float) -> None:
    """
    If only one side reports some attempts (`silent`), reports of two of them may be joined, but no attempt counts
    twice.
    """
    chance = random.Random(f"{pause} {silent}")
    for _ in range(examples(400)):
        count = chance.randint(2, 5)
        sent = []
        for number, sides in enumerate(attempts(chance, count)):
            both = list(zip((AS_ASSISTANT, AS_GATEWAY), sides, strict=True))
            reporting = chance.sample(both, 1 if chance.random() < silent else 2)
            sent += [submission(2 * number + (side == AS_GATEWAY) + 1, side, at) for side, at in reporting]
        chance.shuffle(sent)
        calls = await calls_after([*sent, *chance.sample(sent, 1)], pause)
        assert calls <= count
        assert calls == count or silent
