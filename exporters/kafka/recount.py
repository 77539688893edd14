"""
Looks at how far a route has come in its topic, and at every message that is kept there; it changes nothing.

A number is one bit in memory. What the topic's retention took is no difference: numbers are judged from where every
partition still has its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from exporters.errors import Misconfigured
from exporters.kafka.connection import (
    begin,
    messages,
    options_of,
    partitions_of,
    read_progresses,
    reader_of,
    translated,
)
from exporters.kafka.messages import MOST_RECORDS, TopicProgress, edition_of
from exporters.lake.verification import CONTENT, FOREIGN, HOLE, MISSING, OVERLAP, LakeDifference
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings

_SHOWN: Final = 100  # holes that are named


@dataclass(frozen=True, kw_only=True)
class VerifiedTopic:
    """
    `progress` is the newest delivery of each edition. The rest is None if no message was read. Of the settled numbers
    `settled` are there, None if the topic keeps the newer ones alone; `absent` are not, of those that it keeps.
    """

    progress: Mapping[str, TopicProgress]
    messages: int | None = None
    settled: int | None = None
    absent: int | None = None
    differences: Sequence[LakeDifference]


async def recount(
    settings: DestinationSettings,
    secret: SecretSource | None,
    route: str,
    *,
    below: int | None = None,
    reads_all: bool = False,
) -> VerifiedTopic:
    """
    Compare the progress of a route, and with `reads_all` every message, with the numbers that are settled: those
    `below`; None: those of the progress. Raises what the brokers say.
    """
    topic = settings.topic.replace("{topic}", route.partition("/")[2])
    options = options_of(settings, secret)
    with translated(settings, secret):
        async with reader_of(options) as reader:
            found = await read_progresses(
                reader,
                settings.topic.replace("{topic}", "progress"),
                lambda key: edition_of(key, route) is not None,
            )
            progress = {str(edition_of(key, route)): each for key, each in found.items()}
            last = max((each.last for each in progress.values()), default=0)
            differences = [*_progress_differs(topic, last, below)]
            if not reads_all:
                return VerifiedTopic(progress=progress, differences=differences)
            read = await _read(reader, topic, route, progress)
    end = last + 1 if below is None else min(below, last + 1)
    absent = list(read.absent(end))
    differences += _message_differences(topic, read, progress, absent)
    return VerifiedTopic(
        progress=progress,
        messages=read.messages,
        settled=None if read.is_cut else read.count_below(end),
        absent=sum(after - first for first, after in absent),
        differences=differences,
    )


@dataclass
class KeptMessages:
    """The numbers that are there, a bit each; and the ids of the newest deliveries."""

    bits: bytearray = field(default_factory=bytearray)
    messages: int = 0
    twice: int = 0
    foreign: int = 0
    begins: dict[int, int] = field(default_factory=dict)  # partition -> its first number
    cut: set[int] = field(default_factory=set)  # partitions whose first messages the topic keeps no more
    ids: dict[tuple[str, int], bytes] = field(default_factory=dict)

    @property
    def is_cut(self) -> bool:
        return bool(self.cut)

    def add(self, partition: int, number: int) -> None:
        self.messages += 1
        self.begins.setdefault(partition, number)
        if self.has(number):
            self.twice += 1
        place = number >> 3
        if place >= len(self.bits):
            self.bits.extend(bytes(max(place + 1 - len(self.bits), len(self.bits))))
        self.bits[place] |= 1 << (number & 7)

    def has(self, number: int) -> bool:
        place = number >> 3
        return place < len(self.bits) and bool(self.bits[place] & (1 << (number & 7)))

    def count_below(self, end: int) -> int:
        return sum(self.has(number) for number in range(end))

    def absent(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of numbers below `end` that are not there, each with the number after it."""
        if self.is_cut:
            first = max(self.begins.get(partition, end) for partition in self.cut)
        else:
            first = min(self.begins.values(), default=end)
        gap = None
        for number in range(first, end + 1):
            is_there = number == end or self.has(number)
            if not is_there and gap is None:
                gap = number
            elif is_there and gap is not None:
                yield gap, number
                gap = None


async def _read(reader: Any, topic: str, route: str, progress: Mapping[str, TopicProgress]) -> KeptMessages:
    partitions = await partitions_of(reader, topic)
    if not partitions:
        raise Misconfigured(f"there is no topic {topic}", answered=False)
    found = KeptMessages(cut=await begin(reader, topic, partitions))
    async for message in messages(reader):
        headers = {name: value.decode("utf-8", "replace") for name, value in message.headers}
        number = headers.get("tollhouse-number", "")
        edition = headers.get("tollhouse-edition", "")
        if headers.get("tollhouse-route") != route or not number.isdigit():
            found.foreign += 1
            continue
        found.add(message.partition, int(number))
        newest = progress.get(edition)
        if newest is not None and newest.first <= int(number) <= newest.last:
            found.ids[edition, int(number)] = message.key
    return found


def _progress_differs(topic: str, last: int, below: int | None) -> Iterator[LakeDifference]:
    """Compare the last number of the progress with those that are settled; one delivery may be in hand."""
    if below is not None and last < below - 1:
        words = f"its progress says up to {last}, the route has sent those up to {below - 1}"
        yield LakeDifference(MISSING, topic, words)
    if below is not None and last >= below + MOST_RECORDS:
        words = f"its progress says up to {last}, the route has sent those below {below}"
        yield LakeDifference(FOREIGN, topic, words)


def _message_differences(
    topic: str, read: KeptMessages, progress: Mapping[str, TopicProgress], absent: Sequence[tuple[int, int]]
) -> Iterator[LakeDifference]:
    if read.twice:
        yield LakeDifference(OVERLAP, topic, f"{read.twice} messages have a number that is there already")
    if read.foreign:
        yield LakeDifference(FOREIGN, topic, f"{read.foreign} messages are not of this route")
    for first, after in absent[:_SHOWN]:
        yield LakeDifference(HOLE, topic, f"the numbers {first} to {after - 1} are not there")
    for edition, newest in progress.items():
        numbers = range(newest.first, newest.last + 1)
        proof = sha256(b"".join(read.ids.get((edition, number), b"") for number in numbers))
        if not read.is_cut and proof.hexdigest() != newest.digest:
            words = f"the ids of {newest.first} to {newest.last} are not those that its progress proves"
            yield LakeDifference(CONTENT, topic, words)
