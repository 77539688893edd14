"""
The brokers: one transaction after another, and what the last one brought in. Brokers without transactions get the
messages first, and the progress once they have them: what is repeated after a crash is there twice.

`exporters.errors` are raised: Misconfigured where the operator has to change something, Retryable for all else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka
from aiokafka.partitioner import DefaultPartitioner

from exporters.errors import Misconfigured
from exporters.kafka.connection import options_of, start, translated
from exporters.kafka.messages import TopicMessage, TopicProgress, progress_key, write_progress
from exporters.kafka.reading import read_progresses, reader_of
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings

TRANSACTION_S: Final = 60.0  # after which a broker ends a transaction that nobody goes on with
CLOSE_S: Final = 5.0
_MOST_BYTES: Final = 16 * 1024 * 1024  # of one request; the broker's own limit is smaller and counts


class Brokers:
    """
    One route's way to the brokers. After any failure nothing is known of the transaction in hand: `open` again
    ends it, shuts out whoever else goes by the same `id`, and reads what was brought in.
    """

    def __init__(self, settings: DestinationSettings, secret: SecretSource | None, *, topic: str) -> None:
        self._settings = settings
        self._secret = secret
        self._topic = settings.topic.replace("{topic}", topic)
        self._progress_topic = settings.topic.replace("{topic}", "progress")
        self._producer: Any = None
        self._partition = DefaultPartitioner()
        self._partitions: list[int] = []

    async def open(self, id: str, keys: Collection[bytes]) -> Mapping[bytes, TopicProgress]:
        """Begin to send under an id; return the newest progress under each key, as it is from then on."""
        with translated(self._settings, self._secret):
            options = options_of(self._settings, self._secret)
            if self._settings.transactions:
                options |= {"transactional_id": id, "transaction_timeout_ms": int(TRANSACTION_S * 1000)}
            producer = AIOKafkaProducer(
                **options,
                acks="all",
                enable_idempotence=self._settings.transactions,
                compression_type="gzip",
                max_request_size=_MOST_BYTES,
            )
            try:
                await start(producer, options)
                progress = await self._progress(keys)
                self._partitions = sorted(await producer.partitions_for(self._topic))
            except BaseException:
                await _end(producer)
                raise
        self._producer = producer
        return progress

    async def bring(
        self, messages: Sequence[TopicMessage], progress: TopicProgress, *, edition: str, route: str
    ) -> None:
        """Send the messages and the progress as one transaction: both are there, or neither is."""
        producer = self._producer
        has_transactions = self._settings.transactions
        with translated(self._settings, self._secret):
            # A commit whose broker goes away has no end of its own.
            async with asyncio.timeout(TRANSACTION_S):
                if has_transactions:
                    await producer.begin_transaction()
                sent = [await self._send(producer, message) for message in messages]
                if not has_transactions:
                    await asyncio.gather(*sent)
                place = {"key": progress_key(edition, route), "partition": 0}
                sent.append(await producer.send(self._progress_topic, write_progress(progress), **place))
                await asyncio.gather(*sent)
                if has_transactions:
                    await producer.commit_transaction()

    async def try_transaction(self) -> None:
        """Begin a transaction and end it without a message; nothing where there are none."""
        if not self._settings.transactions:
            return
        with translated(self._settings, self._secret):
            await self._producer.begin_transaction()
            await self._producer.abort_transaction()

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _end(producer)

    async def _send(self, producer: Any, message: TopicMessage) -> Any:
        place = self._partition(message.place, self._partitions, self._partitions)
        return await producer.send(
            self._topic,
            message.value,
            key=message.key,
            partition=place,
            timestamp_ms=message.timestamp_ms,
            headers=message.headers,
        )

    async def _progress(self, keys: Collection[bytes]) -> Mapping[bytes, TopicProgress]:
        async with reader_of(options_of(self._settings, self._secret)) as reader:
            self._check_topics(await reader.topics())
            return await read_progresses(reader, self._progress_topic, lambda key: key in keys)

    def _check_topics(self, there: Collection[str]) -> None:
        for topic, how in (
            (self._topic, "cleanup.policy=delete"),
            (self._progress_topic, "one partition and cleanup.policy=compact"),
        ):
            if topic not in there:
                raise Misconfigured(f"there is no topic {topic}: create it, with {how}", answered=False)


async def _end(producer: Any) -> None:
    """Let go of a producer and its tasks. Messages that are not committed are not wanted: the delivery is repeated."""
    # Else `stop` waits for brokers to take them, and if it is given up, its sender and connections stay for good.
    producer._message_accumulator.fail_all(kafka.ProducerClosed())
    try:
        async with asyncio.timeout(CLOSE_S):
            await producer.stop()
    except TimeoutError:  # brokers that are away keep nobody from stopping
        await producer.client.close()
