"""
Halves of a report that wait for their other half, kept across a restart: bytes under a key, and nothing known of them.

A sender hears success for a half too, so it is kept like a record: in the commit of its submission, with its books.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Kept(NamedTuple):
    """One half on disk."""

    key: bytes
    at: float  # when it was last heard of, epoch seconds
    body: bytes


class Pending(Protocol):
    async def load(self) -> Sequence[Kept]:
        """All that is kept, oldest first."""
        ...
