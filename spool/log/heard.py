"""
Who told calls in the last hour, kept in the commits of the calls: a counter that comes after a restart, or to another
process, is recognised as their repeat.

A sender is kept as digests, which are too short to lead back to a name: of the caller (its session, its user, ...),
and of each kind of calls that it told. Together they are one key, so that all of a caller are found by its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

KEPT_S = 5400.0  # then nobody asks for it any more: an hour, what a row may be older, and what counters wait
CALLER_BYTES = 16
FACT_BYTES = 4
MOST_FACTS = 32  # of one key, which an index holds


class Heard(Protocol):
    """
    What submissions say of it (`Submission.heard`), each in the commit of its calls.

    `is_shared`: other processes keep senders, too. `knows_any`: a look-up may find some.
    """

    is_shared: bool

    @property
    def knows_any(self) -> bool: ...

    async def find(self, callers: Collection[bytes]) -> Sequence[tuple[bytes, float]]:
        """Return what is kept that begins with the digest of one of these callers, and when it was told."""
        ...

    async def forget(self, before: float) -> int:
        """Forget those that were last heard before a time, in short transactions; how many."""
        ...


def digest_of(*names: str | None) -> bytes:
    """Return the bytes under which a caller is kept."""
    return blake2b(
        repr(names).encode("utf-8", "surrogatepass"), digest_size=CALLER_BYTES, person=b"heard"
    ).digest()


@lru_cache(4096)
def fact_of(*names: str | None) -> bytes:
    """Return the bytes under which a kind of calls is kept next to its caller."""
    return blake2b(
        repr(names).encode("utf-8", "surrogatepass"), digest_size=FACT_BYTES, person=b"fact"
    ).digest()


def senders_of(caller: bytes, facts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the keys that say what a caller told: one, unless it told very many kinds of calls."""
    for place in range(0, len(facts), MOST_FACTS):
        yield caller + b"".join(facts[place : place + MOST_FACTS])


def facts_in(sender: bytes) -> frozenset[bytes]:
    """Return what a key says that its caller told."""
    places = range(CALLER_BYTES, len(sender), FACT_BYTES)
    return frozenset(sender[place : place + FACT_BYTES] for place in places)


def pack_senders(senders: Iterable[bytes]) -> bytes:
    return b"".join(bytes([(len(sender) - CALLER_BYTES) // FACT_BYTES]) + sender for sender in senders)


def unpack_senders(data: bytes) -> Iterator[bytes]:
    """Yield keys that were packed. ValueError if they were not."""
    place = 0
    while place < len(data):
        end = place + 1 + CALLER_BYTES + FACT_BYTES * data[place]
        if end > len(data):
            raise ValueError("senders end too early")
        yield data[place + 1 : end]
        place = end
