"""
Reports that wait, kept across a restart: bytes under a key, not decoded here. Partial reports of a call wait
for the rest of it, counters for the calls that may repeat them.

A sender is answered success for what waits too, so it is kept like a record: in the commit of its submission,
which counts it as pending. A key that begins with `COUNTERS` is that of counters.

Under `COUNTED` stands what is known for an hour of counters that count, under `RECOVERED` which records of a damaged
file were brought into the log. Where several processes share a log, `TOLD` is what was reported of calls that are on
record, and `TOLD_OF` leads to these from their traces. Nothing of these is pending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

COUNTERS = b"counters/"
COUNTED = b"counted/"
RECOVERED = b"recovered/"
TOLD = b"told/"
TOLD_OF = b"told-of/"
PARTS = b""  # every other key: parts of calls, and what their traces state


class PartialReport(NamedTuple):
    """A report that waits, as it is stored."""

    key: bytes
    at: float  # when something was last received under its key, epoch seconds
    body: bytes


class Expectation(NamedTuple):
    """A partial report as it was read, by the version of what stood under its key (spool.log.expectations)."""

    key: bytes
    version: int


@dataclass(slots=True)
class PendingChange:
    """What a submission changes of the reports that wait."""

    count: int = 0  # how many more wait; negative when more were completed than began to wait
    keep: list[PartialReport] = field(
        default_factory=list
    )  # each in the place of what was kept under its key
    forget: list[bytes] = field(default_factory=list)  # keys of those that wait no more
    expects: list[Expectation] = field(
        default_factory=list
    )  # what it was made from, where others may change that


class PartialReports(Protocol):
    """
    What waits; a `Submission` adds and removes.

    `is_shared`: other processes change it, too. Then what is in memory of it may be old, and a submission
    that was made from what was read says so (`Submission.expects`).
    """

    is_shared: bool

    async def load(self) -> Sequence[PartialReport]:
        """All that is kept, oldest first."""
        ...

    async def find(
        self, keys: Collection[bytes], *, under: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        """Return the reports that are stored under these keys, and under keys with one of the prefixes in `under`."""
        ...

    async def oldest(self, kind: bytes, *, before: float, most: int) -> Sequence[PartialReport]:
        """Return the first `most` reports of one kind that were last reported at or before a time, oldest first."""
        ...

    async def count(self, kind: bytes) -> tuple[int, int]:
        """Return the number of stored reports of one kind and the bytes of their bodies."""
        ...


def kind_of(key: bytes) -> bytes:
    """The beginning that says what a key stands for."""
    return next((kind for kind in _KINDS if key.startswith(kind)), PARTS)


def of_kind(reports: Iterable[PartialReport], kind: bytes) -> Iterator[PartialReport]:
    return (report for report in reports if kind_of(report.key) == kind)


_KINDS = (COUNTERS, COUNTED, RECOVERED, TOLD, TOLD_OF)
