"""Kafka deliveries as transactions: lost answers, and deliveries that the topic already has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from exporters.errors import Misconfigured, Retryable
from exporters.kafka.exporter import KafkaExporter
from exporters.kafka.messages import TopicMessage, TopicProgress, encode_entry, ids_digest, progress_key
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from tests.exporters.spools import calls
from tests.integration.lake.lakes import ROUTE, House, opened


class Topic:
    """Brokers that store committed messages and lose answers when a test says so."""

    def __init__(self) -> None:
        self.messages: list[TopicMessage] = []
        self.kept: dict[bytes, TopicProgress] = {}
        self.ids: list[str] = []
        self.is_open = False
        self.loses = ""  # what the next transaction loses: all of it, or only its answer

    async def open_and_fetch_progress(
        self, id: str, keys: Collection[bytes]
    ) -> Mapping[bytes, TopicProgress]:
        self.ids.append(id)
        self.is_open = True
        return {key: self.kept[key] for key in keys if key in self.kept}

    async def send_messages(
        self, messages: Sequence[TopicMessage], progress: TopicProgress, *, log_edition: str, route: str
    ) -> None:
        loses, self.loses = self.loses, ""
        if loses != "transaction":
            self.messages += messages
            self.kept[progress_key(log_edition, route)] = progress
        if loses:
            raise Retryable("no answer", answered=False)

    async def close(self) -> None:
        self.is_open = False


async def landed(house: House, topic: Topic, delivery: Delivery, exporter: Any = None) -> Settlement:
    async def pieces() -> Any:
        for entry in await house.storage.log.read("ai-telemetry", delivery.first, delivery.last):
            yield entry

    marks: list[str] = []

    async def keep(mark: str) -> None:
        marks.append(mark)

    own = exporter or KafkaExporter(topic, house.storage.small.open_table(LANDINGS), max_records=10)  # type: ignore[arg-type]
    return await own.write_delivery(delivery, pieces(), keep)


def delivery(first: int, last: int, mark: str | None = None) -> Delivery:
    return Delivery(id=1, route=ROUTE, first=first, last=last, attempts=0, idempotency_key="k", mark=mark)


@pytest.mark.parametrize("loses", ["transaction", "answer"])
async def test_a_lost_transaction_is_sent_again_and_a_lost_answer_is_not(loses: str, tmp_path: Path) -> None:
    """
    After a lost transaction, the next process sends the delivery again. If only the answer was lost, the
    process finds the stored progress under the same id and sends nothing.
    """
    topic = Topic()
    async with opened(tmp_path) as house:
        await house.add(calls(1, 10))
        topic.loses = loses
        with pytest.raises(Retryable):
            await landed(house, topic, delivery(1, 10))
        assert not topic.is_open
        assert Settlement(delivered=10) == await landed(house, topic, delivery(1, 10))
    assert 10 == len(topic.messages) == len({message.key for message in topic.messages})
    assert 1 == len(set(topic.ids))


async def test_copy_with_numbers_of_another_delivery_pauses_the_route(tmp_path: Path) -> None:
    """
    If the topic already has some numbers from another delivery, they are never sent again, and the route pauses.
    """
    topic = Topic()
    async with opened(tmp_path) as house:
        await house.add(calls(1, 20))
        await landed(house, topic, delivery(1, 10))
        await landed(house, topic, delivery(11, 20))
        for again in (delivery(1, 10), delivery(11, 15), delivery(15, 20)):
            with pytest.raises(Misconfigured, match="already has other records with numbers up to 20"):
                await landed(house, topic, again)
        assert 20 == len(topic.messages)
        await house.storage.small.open_table(LANDINGS).begin_log_edition()


async def test_a_log_that_changed_under_a_delivery_parks(tmp_path: Path) -> None:
    """
    The first attempt stores a digest of the delivery's records. If the records have changed before the next
    attempt, the route parks.
    """
    async with opened(tmp_path) as house:
        await house.add(calls(1, 10))
        with pytest.raises(Misconfigured, match="the log changed under a delivery"):
            await landed(house, Topic(), delivery(1, 10, "lake1;kafka=1;digest=0"))


async def test_a_correction_is_placed_with_its_record_and_damage_is_counted(tmp_path: Path) -> None:
    """Message keys are the records' ids. A number without a record has no message."""
    one, two = calls(1, 2)
    entry = LogEntry(topic="ai-telemetry", first=7, committed_at=1.5, records=[one, None, two])
    first, second = encode_entry(entry, route=ROUTE, log_edition="3f9c1a2b")
    assert (one.id.hex().encode(), 1500) == (
        first.key,
        first.timestamp_ms,
    ) and first.key == first.partition_key
    headers = dict(second.headers)
    assert headers["tollhouse-number"] == b"9"
    assert headers["tollhouse-edition"] == b"3f9c1a2b"
    assert ROUTE.encode() == headers["tollhouse-route"]
    assert ids_digest([first]) != ids_digest([first, second])
