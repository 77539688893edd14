"""
The expectation of a submission that its key or device is still valid. If it is not, nothing is stored.

Only shared storage needs this, because there a key can end before this process's memory shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from spool.log.partial_reports import ExpectedVersion

# prefixes of the keys of expectations about keys and devices; keys of partial reports begin otherwise
KEYS, NUMBERS, DEVICES, TOKENS = b"bearer/key/", b"bearer/number/", b"bearer/device/", b"bearer/token/"
BEARERS = (KEYS, NUMBERS, DEVICES, TOKENS)
GOOD = 1


class KeyExpectingSubmission(Protocol):
    @property
    def expects(self) -> Sequence[ExpectedVersion]: ...


def valid_key_expectation(digest: bytes) -> ExpectedVersion:
    """
    Return the expectation that the secret with this keyed hash is still valid, for a submission or change.
    """
    return ExpectedVersion(KEYS + digest, GOOD)


def enabled_key_expectation(id: int) -> ExpectedVersion:
    return ExpectedVersion(NUMBERS + str(id).encode(), GOOD)


def current_device_expectation(id: str, generation: int) -> ExpectedVersion:
    return ExpectedVersion(DEVICES + f"{generation}/{id}".encode(), GOOD)


def live_token_expectation(id: str) -> ExpectedVersion:
    return ExpectedVersion(TOKENS + id.encode(), GOOD)


def parse_key_digests(keys: Iterable[bytes]) -> list[bytes]:
    return sorted(key.removeprefix(KEYS) for key in keys if key.startswith(KEYS))


def parse_key_numbers(keys: Iterable[bytes]) -> list[int]:
    return sorted(int(key.removeprefix(NUMBERS)) for key in keys if key.startswith(NUMBERS))


def parse_token_ids(keys: Iterable[bytes]) -> list[str]:
    return sorted(key.removeprefix(TOKENS).decode() for key in keys if key.startswith(TOKENS))


def parse_device_generations(keys: Iterable[bytes]) -> list[tuple[str, int]]:
    key_parts = (key.removeprefix(DEVICES).decode().partition("/") for key in keys if key.startswith(DEVICES))
    return sorted((id, int(generation)) for generation, _, id in key_parts)


def indexes_with_ended_bearers(
    group: Sequence[KeyExpectingSubmission], current_version: Callable[[bytes], int]
) -> set[int]:
    return {
        index
        for index, submission in enumerate(group)
        for key, expected in submission.expects
        if key.startswith(BEARERS) and current_version(key) != expected
    }
