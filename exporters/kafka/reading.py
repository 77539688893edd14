"""Reads topics as far as transactions were committed, from their beginning to where they end now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from exporters.kafka.connection import start
from exporters.kafka.messages import TopicProgress, read_progress

_READ_S: Final = 0.5
_MOST_S: Final = 90.0  # a transaction that nobody goes on with ends before


@asynccontextmanager
async def reader_of(options: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Yield a consumer that is in no group and leaves nothing behind."""
    reader = AIOKafkaConsumer(**options, isolation_level="read_committed", enable_auto_commit=False)
    try:
        await start(reader, options)
        yield reader
    finally:
        await reader.stop()


async def partitions_of(reader: Any, topic: str) -> list[int]:
    """Return the partitions of a topic; none if it is not there."""
    cluster = (
        await reader._client.fetch_all_metadata()
    )  # the reader itself knows of topics that it reads alone
    return sorted(cluster.partitions_for_topic(topic) or ())


async def begin(reader: Any, topic: str, partitions: Sequence[int]) -> set[int]:
    """Go to the beginning of partitions; return those whose first messages are not kept any more."""
    places = [TopicPartition(topic, each) for each in partitions]
    reader.assign(places)
    begins = await reader.beginning_offsets(places)
    for place, offset in begins.items():
        reader.seek(place, offset)
    return {place.partition for place, offset in begins.items() if offset}


async def messages(reader: Any) -> AsyncIterator[Any]:
    """Yield what there is by now, those of a partition in their order. TimeoutError if a transaction has no end."""
    ends = await reader.end_offsets(reader.assignment())
    waited = 0.0
    while [place for place, end in ends.items() if await reader.position(place) < end]:
        read = await reader.getmany(timeout_ms=int(_READ_S * 1000))
        waited = 0.0 if read else waited + _READ_S
        if waited > _MOST_S:
            raise TimeoutError(f"no message came for {_MOST_S:.0f} s")
        for found in read.values():
            for message in found:
                yield message


async def read_progresses(
    reader: Any, topic: str, is_wanted: Callable[[bytes], bool]
) -> Mapping[bytes, TopicProgress]:
    """Return the newest progress under each key that is wanted."""
    await begin(reader, topic, [0])
    return {
        message.key: read_progress(message.value)
        async for message in messages(reader)
        if is_wanted(message.key or b"")
    }
