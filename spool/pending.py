"""
Halves of a report that wait for their other half, kept across a restart: bytes under a key, and nothing known of them.

A sender hears success for a half too, so it is on disk before the answer, like a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Kept(NamedTuple):
    """One half on disk."""

    key: bytes
    at: float  # when the first of it came, epoch seconds
    body: bytes


class Pending(Protocol):
    async def put(self, halves: Sequence[Kept]) -> None:
        """Keep them, each in the place of what was kept under its key; on disk when it returns."""
        ...

    async def forget(self, keys: Sequence[bytes]) -> None:
        """They found their other half, or their time is over."""
        ...

    async def load(self) -> Sequence[Kept]:
        """All that is kept, oldest first."""
        ...
