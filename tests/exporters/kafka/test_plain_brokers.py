"""Brokers without transactions store the progress after the messages."""

from __future__ import annotations

import asyncio
from typing import Any

from exporters.kafka.exporter import Brokers
from exporters.kafka.messages import TopicMessage, TopicProgress
from exporters.settings import DestinationSettings
from tests.waiting import limited

SETTINGS = DestinationSettings(name="stream", type="kafka", url="127.0.0.1:1", tls=False, transactions=False)
MESSAGES = [TopicMessage(key, key, b"{}", 1, []) for key in (b"a", b"b")]


class Producer:
    """A producer without transactions that acknowledges a message when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.changed = asyncio.Event()

    async def send(self, topic: str, value: bytes, *, key: bytes, **_: Any) -> asyncio.Future[None]:
        self.sent.append((topic, key))
        self.answers.append(asyncio.get_running_loop().create_future())
        self.changed.set()
        return self.answers[-1]

    async def until_sent(self, n: int) -> None:
        async with limited():
            while len(self.sent) < n:
                self.changed.clear()
                await self.changed.wait()


async def test_progress_is_sent_after_the_messages() -> None:
    """If the progress were stored first, a crash could lose the messages that it confirms."""
    brokers, producer = Brokers(SETTINGS, None, topic="ai-telemetry"), Producer()
    brokers._producer, brokers._partitions = producer, [0]
    await brokers.begin_and_abort_transaction()
    sending = brokers.send_messages(
        MESSAGES, TopicProgress(1, 2, ""), log_edition="0" * 8, route="stream/ai-telemetry"
    )
    task = asyncio.create_task(sending)
    await producer.until_sent(2)
    producer.answers[0].set_result(None)
    await asyncio.sleep(0)
    assert [("tollhouse.ai-telemetry", b"a"), ("tollhouse.ai-telemetry", b"b")] == producer.sent
    producer.answers[1].set_result(None)
    await producer.until_sent(3)
    assert "tollhouse.progress" == producer.sent[2][0] and not task.done()
    producer.answers[2].set_result(None)
    await task
