"""Connections to Kafka brokers: closing always ends, and the check looks at every topic."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerClosed

from exporters.destinations.catalogue import TYPES
from exporters.errors import Misconfigured
from exporters.kafka.exporter import Brokers, TopicSetup, topic_problems
from exporters.probe import REFUSED
from exporters.settings import DestinationSettings
from spool.clock import SystemClock

SETTINGS = DestinationSettings(
    name="stream", type="kafka", url="127.0.0.1:1", tls=False, topics=("ai-telemetry", "usage-events")
)


async def test_close_ends_a_transaction_that_brokers_do_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    """After closing, the library's sender, its connections and waiting callers have all ended."""
    producer = AIOKafkaProducer(bootstrap_servers=SETTINGS.url)

    async def send() -> None:
        with suppress(asyncio.CancelledError):  # like the library's sender, end without an error
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    sender = producer._sender._sender_task = asyncio.create_task(send())
    place = TopicPartition("tollhouse.ai-telemetry", 0)
    message = await producer._message_accumulator.add_message(place, b"key", b"value", timeout=1)
    closed = asyncio.Event()
    close = producer.client.close

    async def told() -> None:
        closed.set()
        await close()

    monkeypatch.setattr(producer.client, "close", told)
    monkeypatch.setattr("exporters.kafka.exporter.CLOSE_S", 0.1)
    brokers = Brokers(SETTINGS, None, topic="ai-telemetry")
    brokers._producer = producer
    await brokers.close()
    assert closed.is_set() and sender.done() and asyncio.all_tasks() <= before
    with pytest.raises(ProducerClosed):
        await message


async def test_check_looks_up_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The check looks at every route's topic, because the second topic may be missing although the first exists.
    """

    async def opened(brokers: Brokers, id: str, keys: Collection[bytes]) -> Any:
        if brokers._topic == "tollhouse.usage-events":
            raise Misconfigured("there is no topic tollhouse.usage-events", answered=False)
        return {}

    async def tried(brokers: Brokers) -> None:
        assert brokers._topic == "tollhouse.ai-telemetry"

    monkeypatch.setattr(Brokers, "open_and_fetch_progress", opened)
    monkeypatch.setattr(Brokers, "begin_and_abort_transaction", tried)
    said = await TYPES["kafka"].probe(SETTINGS, None, SystemClock())
    assert said.status == REFUSED
    assert said.words == "there is no topic tollhouse.usage-events"


@pytest.mark.parametrize(
    ("policy", "is_progress", "is_problem"),
    [
        ("delete", False, False),
        ("compact,delete", False, False),
        ("compact", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("delete", True, True),
        ("", True, False),  # a user who may not read the cleanup policy of the topic
    ],
)
async def test_a_policy_that_forgets_progress_or_never_ends_is_a_problem(
    policy: str, is_progress: bool, is_problem: bool
) -> None:
    """
    A topic of records must not be compacted only, because it would grow forever. The topic of the progress
    must not delete anything.
    """
    setup = TopicSetup(partitions=1, replicas=3, policy=policy, least_in_sync="2")
    assert is_problem == bool([*topic_problems("one", setup, is_progress_topic=is_progress)])
