"""
What a submission was made from. It is not kept when that has changed meanwhile: its sender reads again.

Only where several processes write one log can it have changed; what one process has in its memory
needs no expectation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from struct import pack
from typing import Protocol

from spool.log.partial_reports import Expectation, PartialReport

NOTHING = 0  # the version of what is not there


class Expecting(Protocol):
    """The part of a submission that is looked at here."""

    @property
    def expects(self) -> Sequence[Expectation]: ...

    @property
    def keep(self) -> Sequence[PartialReport]: ...

    @property
    def forget(self) -> Sequence[bytes]: ...


def as_read(keys: Iterable[bytes], found: Mapping[bytes, PartialReport]) -> list[Expectation]:
    """Expect every key to be as it was when it was read, also those that had no report."""
    return [Expectation(key, version_of(found.get(key))) for key in sorted(set(keys))]


def version_of(report: PartialReport | None) -> int:
    """A number that changes with everything that is kept under a key; fits into a signed integer of 64 bits."""
    if report is None:
        return NOTHING
    digest = blake2b(pack(">d", report.at) + report.body, digest_size=8).digest()
    return int.from_bytes(digest, signed=True) or 1


def expected_keys(group: Iterable[Expecting]) -> list[bytes]:
    """The keys whose versions `stale` needs, in order."""
    return sorted({expectation.key for submission in group for expectation in submission.expects})


def stale(group: Sequence[Expecting], version: Callable[[bytes], int]) -> set[int]:
    """The places of those in a group whose expectations fail, with what those before them change."""
    for submission in group:
        if submission.expects:
            break
    else:
        return set()
    failed: set[int] = set()
    changed: dict[bytes, int] = {}
    for place, submission in enumerate(group):
        for key, expected in submission.expects:
            if (changed[key] if key in changed else version(key)) != expected:
                failed.add(place)
                break
        else:
            changed.update(dict.fromkeys(submission.forget, NOTHING))
            changed.update({report.key: version_of(report) for report in submission.keep})
    return failed
