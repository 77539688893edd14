"""
The senders of calls in the last hour, stored in the commits of these calls. By them, a counter that repeats
these calls is recognized, even after a restart and in other processes.

A key consists of digests that are too short to reveal names: one of the caller (session, user, ...), then one
for each kind of call. A search by prefix finds a caller's keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

# the hour that counters look back, plus the possible delay of a row and the waiting time of counters
KEPT_S = 5400.0
CALLER_BYTES = 16
FACT_BYTES = 4
MOST_FACTS = 32  # limit of kinds of calls per caller, because an index limits a key's length


class StoredSenders(Protocol):
    """
    The stored senders of recent calls. A submission adds them with its calls (`Submission.heard`).

    `is_shared`: other processes write the same table. `has_any_sender`: False if every lookup would find nothing.
    """

    is_shared: bool

    @property
    def has_any_sender(self) -> bool: ...

    async def find_senders_of_callers(self, callers: Collection[bytes]) -> Sequence[tuple[bytes, float]]:
        """Return the keys that begin with one of these callers, with the time of their last report."""
        ...

    async def delete_old(self, before_time: float) -> int:
        """Delete senders last heard before a time, in short transactions. Return their number."""
        ...


def caller_digest(*names: str | None) -> bytes:
    return blake2b(
        repr(names).encode("utf-8", "surrogatepass"), digest_size=CALLER_BYTES, person=b"heard"
    ).digest()


@lru_cache(4096)
def call_kind_digest(*names: str | None) -> bytes:
    return blake2b(
        repr(names).encode("utf-8", "surrogatepass"), digest_size=FACT_BYTES, person=b"fact"
    ).digest()


def call_kind_digests_of_sender_key(sender_key: bytes) -> frozenset[bytes]:
    places = range(CALLER_BYTES, len(sender_key), FACT_BYTES)
    return frozenset(sender_key[start : start + FACT_BYTES] for start in places)


def pack_senders(senders: Iterable[bytes]) -> bytes:
    return b"".join(bytes([(len(sender) - CALLER_BYTES) // FACT_BYTES]) + sender for sender in senders)


def unpack_sender_keys(data: bytes) -> Iterator[bytes]:
    """Yield the keys in packed data. Raises ValueError if the data are cut off."""
    offset = 0
    while offset < len(data):
        end = offset + 1 + CALLER_BYTES + FACT_BYTES * data[offset]
        if end > len(data):
            raise ValueError("a stored row of packed senders ends within a sender")
        yield data[offset + 1 : end]
        offset = end
