"""
Sends the deliveries of a route to a topic, each exactly once for consumers that read only committed messages.

A delivery is one transaction with a message of the route's progress, which shows after a crash or a lost
response whether it is in the topic. The brokers allow only one sender per transactional id, and abort the
open transaction of the previous sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.partitioner import DefaultPartitioner

from exporters.batch import TURN
from exporters.errors import Misconfigured
from exporters.exporter import StoreRouteMark, store_or_compare_delivery_mark
from exporters.kafka.connection import (
    client_options,
    open_reader,
    read_progresses,
    start_client,
    translate_errors,
)
from exporters.kafka.messages import (
    TopicMessage,
    TopicProgress,
    encode_entry,
    encode_progress,
    ids_digest,
    progress_key,
)
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.deliveries.protocols import LakeDeliveries
from spool.deliveries.rules import LAKE_MARK
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry

TRANSACTION_S: Final = 60.0  # seconds after which a broker aborts an abandoned transaction
CLOSE_S: Final = 5.0
# bytes of a request, above the brokers' limit, which then applies
_MOST_BYTES: Final = 16 * 1024 * 1024
_POLICY, _LEAST = "cleanup.policy", "min.insync.replicas"
_NOT_ALLOWED: Final = 29


class Brokers:
    """
    A route's connection to the brokers, with one transaction at a time.

    After a failure, the transaction's outcome is unknown. `open_and_fetch_progress` then aborts it, locks out
    other senders with the same `id`, and reads the committed progress. Without transactions, progress is sent
    after the messages, so a crash may repeat some. Raises Misconfigured or Retryable.
    """

    def __init__(self, settings: DestinationSettings, secret: SecretSource | None, *, topic: str) -> None:
        self._settings = settings
        self._secret = secret
        self._topic = settings.topic.replace("{topic}", topic)
        self._progress_topic = settings.topic.replace("{topic}", "progress")
        self._producer: Any = None
        self._partition = DefaultPartitioner()
        self._partitions: list[int] = []

    async def open_and_fetch_progress(
        self, id: str, keys: Collection[bytes]
    ) -> Mapping[bytes, TopicProgress]:
        """Return the newest progress by key, which only this sender can change from now on."""
        with translate_errors(self._settings, self._secret):
            options = client_options(self._settings, self._secret)
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
                await start_client(producer, options)
                progress = await self._fetch_progress(keys)
                self._partitions = sorted(await producer.partitions_for(self._topic))
            except BaseException:
                await _stop_producer(producer)
                raise
        self._producer = producer
        return progress

    async def send_messages(
        self, messages: Sequence[TopicMessage], progress: TopicProgress, *, log_edition: str, route: str
    ) -> None:
        producer = self._producer
        has_transactions = self._settings.transactions
        with translate_errors(self._settings, self._secret):
            # the library waits forever for a commit if its broker disappears
            async with asyncio.timeout(TRANSACTION_S):
                if has_transactions:
                    await producer.begin_transaction()
                sent = [await self._send_message(producer, message) for message in messages]
                if not has_transactions:
                    await asyncio.gather(*sent)
                target = {"key": progress_key(log_edition, route), "partition": 0}
                sent.append(await producer.send(self._progress_topic, encode_progress(progress), **target))
                await asyncio.gather(*sent)
                if has_transactions:
                    await producer.commit_transaction()

    async def begin_and_abort_transaction(self) -> None:
        if not self._settings.transactions:
            return
        with translate_errors(self._settings, self._secret):
            await self._producer.begin_transaction()
            await self._producer.abort_transaction()

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop_producer(producer)

    async def _send_message(self, producer: Any, message: TopicMessage) -> Any:
        partition = self._partition(message.partition_key, self._partitions, self._partitions)
        return await producer.send(
            self._topic,
            message.value,
            key=message.key,
            partition=partition,
            timestamp_ms=message.timestamp_ms,
            headers=message.headers,
        )

    async def _fetch_progress(self, keys: Collection[bytes]) -> Mapping[bytes, TopicProgress]:
        async with open_reader(client_options(self._settings, self._secret)) as reader:
            self._check_topics_exist(await reader.topics())
            return await read_progresses(reader, self._progress_topic, lambda key: key in keys)

    def _check_topics_exist(self, existing: Collection[str]) -> None:
        for topic, how in (
            (self._topic, "cleanup.policy=delete"),
            (self._progress_topic, "one partition and cleanup.policy=compact"),
        ):
            if topic not in existing:
                raise Misconfigured(
                    f"the topic {topic} does not exist: create it, with {how}", answered=False
                )


async def _stop_producer(producer: Any) -> None:
    """Stop a producer. Uncommitted messages are dropped, because their delivery is repeated."""
    # without this, `stop` would wait for the brokers, and after a timeout the sender and its connections
    # would never end
    producer._message_accumulator.fail_all(kafka.ProducerClosed())
    try:
        async with asyncio.timeout(CLOSE_S):
            await producer.stop()
    except TimeoutError:  # unreachable brokers must not delay a stop
        await producer.client.close()


class KafkaExporter:
    in_flight = 1  # one delivery at a time, because the progress is a single number

    def __init__(self, brokers: Brokers, landings: LakeDeliveries, *, max_records: int) -> None:
        self.max_records = max_records
        self._brokers = brokers
        self._landings = landings
        self._edition = ""  # edition in the transactional id; "" without a connection
        self._newest_committed: TopicProgress | None = None

    async def write_delivery(
        self, delivery: Delivery, entries: AsyncIterator[LogEntry], store_delivery_mark: StoreRouteMark
    ) -> Settlement:
        """
        Store the messages' digest as the mark that recognizes a repeat. Then send the messages unless the
        topic has them.
        """
        editions = await self._landings.find_or_begin_log_editions(delivery.route, delivery.first)
        messages = await _encode_messages(entries, delivery.route, editions[0])
        progress = TopicProgress(delivery.first, delivery.last, ids_digest(messages))
        await store_or_compare_delivery_mark(
            delivery, f"{LAKE_MARK}kafka=1;digest={progress.digest}", store_delivery_mark
        )
        try:
            if self._edition != editions[0]:
                await self._open_connection(delivery.route, editions)
            if self._is_delivery_missing_in_topic(progress):
                await self._brokers.send_messages(
                    messages, progress, log_edition=editions[0], route=delivery.route
                )
                self._newest_committed = progress
        except BaseException:  # the transaction's outcome is unknown
            await self.close()
            raise
        sent = len(messages)
        return Settlement(delivered=sent, damaged=delivery.count - sent)

    async def close(self) -> None:
        self._edition = ""
        await self._brokers.close()

    async def _open_connection(self, route: str, log_editions: Sequence[str]) -> None:
        await self._brokers.close()
        # the progress may be stored under an edition of the log before a restore
        keys = [progress_key(edition, route) for edition in log_editions]
        progresses = await self._brokers.open_and_fetch_progress(f"tollhouse.{log_editions[0]}.{route}", keys)
        committed = [progresses[key] for key in keys if key in progresses]
        self._newest_committed = max(
            committed, key=lambda committed_range: committed_range.last, default=None
        )
        self._edition = log_editions[0]

    def _is_delivery_missing_in_topic(self, expected: TopicProgress) -> bool:
        """
        Return whether the topic lacks the delivery. Raises Misconfigured if other records have its numbers.
        """
        committed = self._newest_committed
        if committed is None or committed.last < expected.first:
            return True
        if committed == expected:
            return False
        raise Misconfigured(
            f"the topic already has other records with numbers up to {committed.last}, from before this "
            "data was restored or from a copy of it: configure another topic (docs/lake/kafka.md)",
            answered=False,
        )


async def _encode_messages(
    entries: AsyncIterator[LogEntry], route: str, log_edition: str
) -> list[TopicMessage]:
    messages: list[TopicMessage] = []
    async for entry in entries:
        for part in entry.split(TURN):
            messages += encode_entry(part, route=route, log_edition=log_edition)
            await asyncio.sleep(0)
    return messages


@dataclass(frozen=True, kw_only=True)
class TopicSetup:
    """
    The settings of a topic. `policy` and `least_in_sync` are empty if the right DescribeConfigs is missing.
    """

    partitions: int
    replicas: int
    policy: str
    least_in_sync: str

    def __str__(self) -> str:
        least = f", {_LEAST} {self.least_in_sync}" if self.least_in_sync else ""
        return f"{self.partitions} partitions, {self.replicas} replicas{least}"


async def fetch_topic_setups(
    settings: DestinationSettings, secret: SecretSource | None, topics: Sequence[str]
) -> Mapping[str, TopicSetup]:
    with translate_errors(settings, secret):
        options = client_options(settings, secret)
        admin = AIOKafkaAdminClient(**options)
        try:
            await start_client(admin, options)
            shown = {
                description["topic"]: description["partitions"]
                for description in await admin.describe_topics(list(topics))
            }
            settings_by_topic = {topic: await _fetch_topic_settings(admin, topic) for topic in topics}
        finally:
            await admin.close()
    return {
        topic: TopicSetup(
            partitions=len(partitions),
            replicas=min((len(partition["replicas"]) for partition in partitions), default=0),
            policy=settings_by_topic[topic].get(_POLICY, ""),
            least_in_sync=settings_by_topic[topic].get(_LEAST, ""),
        )
        for topic, partitions in shown.items()
    }


async def _fetch_topic_settings(admin: AIOKafkaAdminClient, topic: str) -> Mapping[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={_POLICY: None, _LEAST: None})
    (answer,) = await admin.describe_configs([resource])
    ((error, reason, _, _, entries),) = answer.resources
    if error == _NOT_ALLOWED:
        return {}
    if error:
        raise TimeoutError(f"cannot read the settings of {topic}: {reason}")
    return {name: value for name, value, *_ in entries}


def topic_problems(topic: str, setup: TopicSetup, *, is_progress_topic: bool) -> Iterator[str]:
    """Yield problems of settings that would delete the progress of routes, or retain messages forever."""
    policy = {policy_name.strip() for policy_name in setup.policy.split(",") if policy_name.strip()}
    if is_progress_topic and "delete" in policy:
        yield f"{topic}: {_POLICY} is {setup.policy}, which deletes the progress of routes: set compact"
    if not is_progress_topic and policy == {"compact"}:
        yield f"{topic}: {_POLICY} is compact, which retains every message for ever: set delete"
