"""
Each notice arrives in order and under one id, whatever the receiver answers and whenever Tollhouse restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.notifications.channel import NotificationMessage
from exporters.notifications.notifier import ChannelSender
from exporters.notifications.schedule import build_schedule
from exporters.probe import OK, Probe
from spool.registry.notices import SENT
from spool.registry.registry import Registry
from spool.sqlite.in_memory import new_in_memory_registry
from tests.exporters.notifications.examples import NOW, notice
from tests.exporters.notifications.examples import settings as channel_settings
from tests.moved_clock import MovedClock
from tests.rounds import examples

TAKEN, LOST_ANSWER, DOWN, WRONG = "taken", "taken, and no answer came", "down", "wrong address"
ADD, WAIT, RESTART = "add", "wait", "restart"

Step = tuple[str, int]


class Receiver:
    """A receiver that drops messages with a known id, as the documentation recommends."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.messages: dict[str, list[str]] = {}

    async def send(self, message: NotificationMessage) -> str:
        answer = self._answers.pop(0) if self._answers else TAKEN
        if answer in (TAKEN, LOST_ANSWER):
            ids = [each.id for each in message.notices]
            assert ids == self.messages.setdefault(message.id, ids)
        errors: dict[str, SendError] = {
            LOST_ANSWER: Retryable("no answer", answered=False, ambiguous=True),
            DOWN: Retryable("503"),
            WRONG: Misconfigured("404"),
        }
        if answer in errors:
            raise errors[answer]
        return ""

    def secret_file_state(self) -> object:
        return None

    def check_secret(self) -> None: ...

    async def probe(self) -> Probe:
        return Probe(status=OK)

    async def close(self) -> None: ...


ANSWERS = st.lists(st.sampled_from([TAKEN, LOST_ANSWER, DOWN, WRONG]), max_size=12)
STEPS = st.lists(st.tuples(st.sampled_from([ADD, WAIT, RESTART]), st.integers(1, 4)), max_size=15)


@given(ANSWERS, STEPS, st.booleans())
@settings(max_examples=examples(150))
def test_every_notice_arrives_once_and_in_order(answers: list[str], steps: list[Step], groups: bool) -> None:
    """A repeat has the same id, so a receiver that remembers ids has every notice exactly once."""
    asyncio.run(_play(answers, steps, groups))


async def _play(answers: list[str], steps: list[Step], groups: bool) -> None:
    clock, store, receiver = MovedClock(NOW), new_in_memory_registry(), Receiver(answers)
    registry = await Registry.open(store, secret=b"i" * 32, clock=clock)
    schedule = build_schedule(channel_settings(group_wait=30.0), groups=groups)

    def started() -> ChannelSender:
        return ChannelSender("one", receiver, schedule, registry.notices, clock)

    sender, added = started(), 0
    for step, amount in [*steps, (WAIT, 4), *[(RESTART, 1)] * len(answers)]:
        if step == ADD:
            added += amount
            await registry.notices.add(
                [notice(str(number), at=clock.now()) for number in range(added - amount, added)], ["one"]
            )
        elif step == WAIT:
            clock.move(amount * 100.0)
        else:
            sender = started()
        await sender.send_due_and_return_next_time()
    assert [str(number) for number in range(added)] == [
        id for ids in receiver.messages.values() for id in ids
    ]
    assert {SENT} >= {each.state for each in await registry.notices.finished_notifications()}
    assert [] == await registry.notices.waiting_notifications()
