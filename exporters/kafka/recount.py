"""
Checks a route's progress in its topic, and every message.

Each record number takes one bit. Messages that retention deleted are no difference: numbers are checked from
the first one after which no partition has lost messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from exporters.errors import Misconfigured
from exporters.kafka.connection import (
    client_options,
    fetch_partitions,
    open_reader,
    read_progresses,
    read_to_end,
    seek_to_beginning,
    translate_errors,
)
from exporters.kafka.messages import MOST_RECORDS, TopicProgress, log_edition_in_progress_key
from exporters.lake.verification import CONTENT, FOREIGN, HOLE, MISSING, OVERLAP, LakeDifference
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings

_SHOWN: Final = 100  # gaps that the result lists


@dataclass(frozen=True, kw_only=True)
class VerifiedTopic:
    """
    The result of a topic recount. `progress`: newest delivery by edition (life of the log). Other fields are
    None if no message was read. `settled` and `absent`: how many of the delivered record numbers are in the
    topic (None after retention), and how many are missing.
    """

    progress: Mapping[str, TopicProgress]
    messages: int | None = None
    settled: int | None = None
    absent: int | None = None
    differences: Sequence[LakeDifference]


async def recount_topic(
    settings: DestinationSettings,
    secret: SecretSource | None,
    route: str,
    *,
    below_number: int | None = None,
    reads_all: bool = False,
) -> VerifiedTopic:
    """
    Check a topic. With `reads_all`, compare every message, not only the progress messages.

    Records with numbers below `below_number` must be in the topic; without `below_number`, all up to the
    highest progress. Raises the brokers' errors.
    """
    topic = settings.topic.replace("{topic}", route.partition("/")[2])
    options = client_options(settings, secret)
    with translate_errors(settings, secret):
        async with open_reader(options) as reader:
            progresses = await read_progresses(
                reader,
                settings.topic.replace("{topic}", "progress"),
                lambda key: log_edition_in_progress_key(key, route) is not None,
            )
            progress = {
                str(log_edition_in_progress_key(key, route)): reached for key, reached in progresses.items()
            }
            last = max((reached.last for reached in progress.values()), default=0)
            differences = [*_progress_differences(topic, last, below_number)]
            if not reads_all:
                return VerifiedTopic(progress=progress, differences=differences)
            read = await _read_topic(reader, topic, route, progress)
    end = last + 1 if below_number is None else min(below_number, last + 1)
    absent = list(read.missing_ranges(end))
    differences += _message_differences(topic, read, progress, absent)
    return VerifiedTopic(
        progress=progress,
        messages=read.messages,
        settled=None if read.is_truncated else read.count_below(end),
        absent=sum(after - first for first, after in absent),
        differences=differences,
    )


@dataclass
class TopicContents:
    """
    The contents of a topic. `bits`: one bit per record number. `foreign_messages`: number of messages of
    other routes. `ids`: record id by edition (life of the log) and number, of the newest deliveries.
    """

    bits: bytearray = field(default_factory=bytearray)
    messages: int = 0
    repeated_numbers: int = 0
    foreign_messages: int = 0
    first_number_by_partition: dict[int, int] = field(default_factory=dict)
    # partitions whose first messages are deleted
    cut_partitions: set[int] = field(default_factory=set)
    ids: dict[tuple[str, int], bytes] = field(default_factory=dict)

    @property
    def is_truncated(self) -> bool:
        return bool(self.cut_partitions)

    def add_message(self, partition: int, record_number: int) -> None:
        self.messages += 1
        self.first_number_by_partition.setdefault(partition, record_number)
        if self.has_number(record_number):
            self.repeated_numbers += 1
        index = record_number >> 3
        if index >= len(self.bits):
            self.bits.extend(bytes(max(index + 1 - len(self.bits), len(self.bits))))
        self.bits[index] |= 1 << (record_number & 7)

    def has_number(self, record_number: int) -> bool:
        index = record_number >> 3
        return index < len(self.bits) and bool(self.bits[index] & (1 << (record_number & 7)))

    def count_below(self, end_number: int) -> int:
        return sum(self.has_number(number) for number in range(end_number))

    def missing_ranges(self, end_number: int) -> Iterator[tuple[int, int]]:
        """Yield the missing ranges before `end_number`: the first number, and the number after the last."""
        if self.is_truncated:
            first = max(
                self.first_number_by_partition.get(partition, end_number) for partition in self.cut_partitions
            )
        else:
            first = min(self.first_number_by_partition.values(), default=end_number)
        gap = None
        for number in range(first, end_number + 1):
            is_there = number == end_number or self.has_number(number)
            if not is_there and gap is None:
                gap = number
            elif is_there and gap is not None:
                yield gap, number
                gap = None


async def _read_topic(
    reader: Any, topic: str, route: str, progress: Mapping[str, TopicProgress]
) -> TopicContents:
    partitions = await fetch_partitions(reader, topic)
    if not partitions:
        raise Misconfigured(f"the topic {topic} does not exist", answered=False)
    kept_messages = TopicContents(cut_partitions=await seek_to_beginning(reader, topic, partitions))
    async for message in read_to_end(reader):
        headers = {name: value.decode("utf-8", "replace") for name, value in message.headers}
        number = headers.get("tollhouse-number", "")
        edition = headers.get("tollhouse-edition", "")
        if headers.get("tollhouse-route") != route or not number.isdigit():
            kept_messages.foreign_messages += 1
            continue
        kept_messages.add_message(message.partition, int(number))
        newest = progress.get(edition)
        if newest is not None and newest.first <= int(number) <= newest.last:
            kept_messages.ids[edition, int(number)] = message.key
    return kept_messages


def _progress_differences(topic: str, last_number: int, below_number: int | None) -> Iterator[LakeDifference]:
    """Yield differences between the progress and the settled numbers. One delivery may be in progress."""
    if below_number is not None and last_number < below_number - 1:
        description = (
            f"its progress ends at {last_number}, but the route has sent the numbers up to {below_number - 1}"
        )
        yield LakeDifference(MISSING, topic, description)
    if below_number is not None and last_number >= below_number + MOST_RECORDS:
        description = (
            f"its progress ends at {last_number}, but the route has sent only the numbers below "
            f"{below_number}"
        )
        yield LakeDifference(FOREIGN, topic, description)


def _message_differences(
    topic: str, read: TopicContents, progress: Mapping[str, TopicProgress], absent: Sequence[tuple[int, int]]
) -> Iterator[LakeDifference]:
    if read.repeated_numbers:
        yield LakeDifference(OVERLAP, topic, f"{read.repeated_numbers} messages repeat a number")
    if read.foreign_messages:
        yield LakeDifference(FOREIGN, topic, f"{read.foreign_messages} messages do not belong to this route")
    for first, after in absent[:_SHOWN]:
        yield LakeDifference(HOLE, topic, f"the numbers {first} to {after - 1} are missing")
    for edition, newest in progress.items():
        numbers = range(newest.first, newest.last + 1)
        proof = sha256(b"".join(read.ids.get((edition, number), b"") for number in numbers))
        if not read.is_truncated and proof.hexdigest() != newest.digest:
            description = (
                f"the ids of the numbers {newest.first} to {newest.last} do not match the digest in the "
                "progress"
            )
            yield LakeDifference(CONTENT, topic, description)
