"""
Reports that wait, kept across a restart: bytes under a key, not decoded here. Partial reports of a call wait for the
rest of it, counters for the calls that may repeat them.

A sender is answered success for what waits too, so it is kept like a record: in the commit of its submission, which
counts it as pending. A key that begins with `COUNTERS` is that of counters.

Under `COUNTED` stands what is known for an hour of counters that count, under `SESSIONS` of which sessions calls were
heard, under `RECOVERED` which records of a damaged file were brought into the log; nothing of these is pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

COUNTERS = b"counters/"
COUNTED = b"counted/"
SESSIONS = b"sessions/"
RECOVERED = b"recovered/"


class PartialReport(NamedTuple):
    """A report that waits, as it is stored."""

    key: bytes
    at: float  # when something was last received under its key, epoch seconds
    body: bytes


@dataclass(slots=True)
class PendingChange:
    """What a submission changes of the reports that wait."""

    count: int = 0  # how many more wait; negative when more were completed than began to wait
    keep: list[PartialReport] = field(default_factory=list)  # each in the place of what was kept under its key
    forget: list[bytes] = field(default_factory=list)  # keys of those that wait no more


class PartialReports(Protocol):
    """What waits; a `Submission` adds and removes."""

    async def load(self) -> Sequence[PartialReport]:
        """All that is kept, oldest first."""
        ...
