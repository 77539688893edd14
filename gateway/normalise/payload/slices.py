"""How much of a body is worked through before the event loop gets its turn, and how many bad items are accepted."""

from __future__ import annotations

from typing import Final

SLICE_BYTES: Final = 256 * 1024  # a slice in which every item must be cleaned first still takes less than 100 ms
ITEM_BYTES: Final = 256  # added to each item: one of two bytes is work, too
MAX_REJECTS: Final = 250_000  # each is kept, and reported to the sender
