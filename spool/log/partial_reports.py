"""
Waiting reports, stored so that they survive a restart. They are bytes under a key, which this module does not
decode. A partial report waits for the rest of its call. A counter waits for the calls that it may repeat.

Waiting reports are acknowledged before they are complete. So they are stored like records: in the commit of
their submission, which counts them as pending.

The beginning of a key gives its kind. `COUNTERS`: waiting counters. `COUNTED`: facts about an hour of counted
counters. `RECOVERED`: which records of a damaged file were imported. `TOLD`: reports of recorded calls, if
several processes share a log. `TOLD_OF`: keys of `TOLD` by trace. `SPANS`: spans that link calls to agents
(`spool.log.pending_spans`). Only `COUNTERS` and partial reports are counted as pending.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack
from typing import NamedTuple, Protocol

COUNTERS = b"counters/"
COUNTED = b"counted/"
RECOVERED = b"recovered/"
TOLD = b"told/"
TOLD_OF = b"told-of/"
SPANS = b"spans/"
PARTS = b""  # prefix of all other keys: partial reports of calls, and facts that their traces state


class PartialReport(NamedTuple):
    """A waiting report in its stored form."""

    key: bytes
    at: float  # when the newest report under the key was received, in epoch seconds
    body: bytes


class Expectation(NamedTuple):
    """
    The version of a waiting report when it was read. If the version has changed since, the submission is refused.
    """

    key: bytes
    version: int


@dataclass(slots=True)
class PendingChange:
    """Changes that a submission makes to the waiting reports."""

    # change of the number of waiting reports; negative if more reports were completed than added
    count: int = 0
    # reports to store; each of them replaces the stored report with the same key
    keep: list[PartialReport] = field(default_factory=list)
    forget: list[bytes] = field(default_factory=list)  # keys whose reports no longer wait
    # versions of the reports that the submission is based on, if other processes may change them
    expects: list[Expectation] = field(default_factory=list)


class PartialReports(Protocol):
    """
    The stored waiting reports. A `Submission` adds and removes them.

    `is_shared`: other processes change them as well. Then memory may be outdated, so a submission states the
    versions of the reports that it is based on (`Submission.expects`).
    """

    is_shared: bool

    async def load(self) -> Sequence[PartialReport]:
        """Return all waiting reports, oldest first."""
        ...

    async def find(
        self, keys: Collection[bytes], *, under: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        """
        Return the reports with these keys, and the reports whose key begins with one of the prefixes in `under`.
        """
        ...

    async def oldest(self, kind: bytes, *, before: float, most: int) -> Sequence[PartialReport]:
        """
        Return at most `most` reports of one kind that were last reported at or before a time, oldest first.
        """
        ...

    async def count(self, kind: bytes) -> tuple[int, int]:
        """Return two figures of one kind: the number of stored reports, and the bytes of their bodies."""
        ...


def kind_of_key(key: bytes) -> bytes:
    """Return the prefix of a key that gives its kind."""
    return next((kind for kind in _KINDS if key.startswith(kind)), PARTS)


def reports_of_kind(reports: Iterable[PartialReport], kind: bytes) -> Iterator[PartialReport]:
    return (report for report in reports if kind_of_key(report.key) == kind)


_KINDS = (COUNTERS, COUNTED, RECOVERED, TOLD, TOLD_OF, SPANS)


# -- versions: a submission is refused if the reports that it is based on have changed -----------------------


NOTHING = 0  # the version of a key without a report


class Expecting(Protocol):
    """The part of a submission that the version check reads."""

    @property
    def expects(self) -> Sequence[Expectation]: ...

    @property
    def keep(self) -> Sequence[PartialReport]: ...

    @property
    def forget(self) -> Sequence[bytes]: ...


def read_expectations(keys: Iterable[bytes], found: Mapping[bytes, PartialReport]) -> list[Expectation]:
    """
    Make expectations for the version of every key that was read. A key without a report must still have none.
    """
    return [Expectation(key, version_of(found.get(key))) for key in sorted(set(keys))]


def version_of(report: PartialReport | None) -> int:
    """
    Return a number that changes whenever the report under a key changes. It fits a signed 64-bit integer.
    """
    if report is None:
        return NOTHING
    digest = blake2b(pack(">d", report.at) + report.body, digest_size=8).digest()
    return int.from_bytes(digest, signed=True) or 1


def expected_keys(group: Iterable[Expecting]) -> list[bytes]:
    """Return the sorted keys whose versions `stale_submissions` needs."""
    return sorted({expectation.key for submission in group for expectation in submission.expects})


def stale_submissions(group: Sequence[Expecting], version: Callable[[bytes], int]) -> set[int]:
    """
    Return the positions of submissions whose expectations fail. A submission also sees the changes of earlier
    ones in the group.
    """
    for submission in group:
        if submission.expects:
            break
    else:
        return set()
    failed: set[int] = set()
    changed: dict[bytes, int] = {}
    for index, submission in enumerate(group):
        for key, expected in submission.expects:
            if (changed[key] if key in changed else version(key)) != expected:
                failed.add(index)
                break
        else:
            changed.update(dict.fromkeys(submission.forget, NOTHING))
            changed.update({report.key: version_of(report) for report in submission.keep})
    return failed
