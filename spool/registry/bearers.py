"""
Who brought a submission, as what it is made from: under a key that ended meanwhile nothing is kept.

Only where several processes share a storage can a key end without this one's memory knowing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from spool.log.partial_reports import Expectation

# No report waits under keys that begin so.
KEYS, NUMBERS, DEVICES = b"bearer/key/", b"bearer/number/", b"bearer/device/"
BEARERS = (KEYS, NUMBERS, DEVICES)
GOOD = 1


class Brought(Protocol):
    """The part of a submission that is looked at here."""

    @property
    def expects(self) -> Sequence[Expectation]: ...


def key_is_good(digest: bytes) -> Expectation:
    """Expect that a secret, by its keyed hash, still opens."""
    return Expectation(KEYS + digest, GOOD)


def number_is_good(id: int) -> Expectation:
    """Expect that the key with a number exists and is enabled, whatever its secret is by now."""
    return Expectation(NUMBERS + str(id).encode(), GOOD)


def device_is_good(id: str, generation: int) -> Expectation:
    """Expect that the device's present key is the one of this generation."""
    return Expectation(DEVICES + f"{generation}/{id}".encode(), GOOD)


def digests(keys: Iterable[bytes]) -> list[bytes]:
    return sorted(key.removeprefix(KEYS) for key in keys if key.startswith(KEYS))


def numbers(keys: Iterable[bytes]) -> list[int]:
    return sorted(int(key.removeprefix(NUMBERS)) for key in keys if key.startswith(NUMBERS))


def devices(keys: Iterable[bytes]) -> list[tuple[str, int]]:
    """Ids with their generations."""
    named = (key.removeprefix(DEVICES).decode().partition("/") for key in keys if key.startswith(DEVICES))
    return sorted((id, int(generation)) for generation, _, id in named)


def ended(group: Sequence[Brought], version: Callable[[bytes], int]) -> set[int]:
    """The places of those in a group whose key has ended."""
    return {
        place
        for place, submission in enumerate(group)
        for key, expected in submission.expects
        if key.startswith(BEARERS) and version(key) != expected
    }
