"""
Partial reports of a call that wait for the rest of it, kept across a restart: bytes under a key, not decoded here.

A sender is answered success for a partial report too, so it is kept like a record: in the commit of its submission,
which counts it as pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class PartialReport(NamedTuple):
    """A report that waits, as it is stored."""

    key: bytes
    at: float  # when something was last received under its key, epoch seconds
    body: bytes


class PartialReports(Protocol):
    """What waits; a `Submission` adds and removes."""

    async def load(self) -> Sequence[PartialReport]:
        """All that is kept, oldest first."""
        ...
