"""
Senders that reported calls in the last hour. They are stored in the commits of these calls. So a counter that
repeats the calls is recognized even after a restart and by other processes.

A sender is stored as digests that are too short to reveal names: one of the caller (its session, its user,
...) and one for each kind of calls that it reported. The digests together form one key, which begins with the
caller's digest. So a search by prefix finds all keys of a caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

# seconds: the hour that counters look back, plus the possible delay of a row, plus the time that counters wait
KEPT_S = 5400.0
CALLER_BYTES = 16
FACT_BYTES = 4
MOST_FACTS = 32  # maximum kinds of calls per key, because a database index limits the length of a key


class Heard(Protocol):
    """
    Stored senders. `Submission.heard` adds to them, in the commit of the calls.

    `is_shared`: other processes store senders in the same table. `knows_any`: False if no sender is stored,
    so a lookup finds none.
    """

    is_shared: bool

    @property
    def knows_any(self) -> bool: ...

    async def find(self, callers: Collection[bytes]) -> Sequence[tuple[bytes, float]]:
        """
        Return all stored keys that begin with the digest of one of the callers, each with the time of
        its last report.
        """
        ...

    async def delete_old(self, before: float) -> int:
        """
        Delete senders whose last report is older than `before`, in short transactions. Return their number.
        """
        ...


def caller_digest(*names: str | None) -> bytes:
    """Return the digest that identifies a caller."""
    return blake2b(
        repr(names).encode("utf-8", "surrogatepass"), digest_size=CALLER_BYTES, person=b"heard"
    ).digest()


@lru_cache(4096)
def fact_digest(*names: str | None) -> bytes:
    """Return the digest that identifies a kind of calls."""
    return blake2b(
        repr(names).encode("utf-8", "surrogatepass"), digest_size=FACT_BYTES, person=b"fact"
    ).digest()


def facts_in(sender: bytes) -> frozenset[bytes]:
    """Return the digests of the kinds of calls in a key."""
    places = range(CALLER_BYTES, len(sender), FACT_BYTES)
    return frozenset(sender[start : start + FACT_BYTES] for start in places)


def pack_senders(senders: Iterable[bytes]) -> bytes:
    return b"".join(bytes([(len(sender) - CALLER_BYTES) // FACT_BYTES]) + sender for sender in senders)


def unpack_senders(data: bytes) -> Iterator[bytes]:
    """Yield the keys that `pack_senders` packed. Raises ValueError if the data are cut off."""
    offset = 0
    while offset < len(data):
        end = offset + 1 + CALLER_BYTES + FACT_BYTES * data[offset]
        if end > len(data):
            raise ValueError("the packed senders are cut off")
        yield data[offset + 1 : end]
        offset = end
