"""How much work is done before the event loop gets its turn, and how many bad items a body may have."""

from __future__ import annotations

from typing import Final

SLICE_BYTES: Final = 256 * 1024  # takes less than 100 ms even where every item must be cleaned first
ITEM_BYTES: Final = 256  # added to each item: one of two bytes is work, too
MAX_REJECTS: Final = 250_000  # each is kept, and reported to the sender
