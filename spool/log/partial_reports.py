"""
Reports that wait, kept across a restart: bytes under a key, not decoded here. Partial reports of a call wait for
the rest of it, counters for the calls that may repeat them.

A sender is answered success for what waits too, so it is kept like a record: in the commit of its submission,
which counts it as pending. A key that begins with `COUNTERS` is that of counters.

Under `COUNTED` stands what is known for an hour of counters that count, under `RECOVERED` which records of a
damaged file were brought into the log. Where several processes share a log, `TOLD` is what was reported of calls
that are on record, and `TOLD_OF` leads to these from their traces. Nothing of these is pending.
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
PARTS = b""  # every other key: parts of calls, and what their traces state


class PartialReport(NamedTuple):
    """A report that waits, as it is stored."""

    key: bytes
    at: float  # when something was last received under its key, epoch seconds
    body: bytes


class Expectation(NamedTuple):
    """A partial report as it was read, by the version of what stood under its key (spool.log.partial_reports)."""

    key: bytes
    version: int


@dataclass(slots=True)
class PendingChange:
    """What a submission changes of the reports that wait."""

    count: int = 0  # how many more wait; negative when more were completed than began to wait
    keep: list[PartialReport] = field(
        default_factory=list
    )  # each in the place of what was kept under its key
    forget: list[bytes] = field(default_factory=list)  # keys of those that wait no more
    expects: list[Expectation] = field(
        default_factory=list
    )  # what it was made from, where others may change that


class PartialReports(Protocol):
    """
    What waits; a `Submission` adds and removes.

    `is_shared`: other processes change it, too. Then what is in memory of it may be old, and a submission
    that was made from what was read says so (`Submission.expects`).
    """

    is_shared: bool

    async def load(self) -> Sequence[PartialReport]:
        """All that is kept, oldest first."""
        ...

    async def find(
        self, keys: Collection[bytes], *, under: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        """Return the reports that are stored under these keys, and under keys with one of the prefixes in `under`."""
        ...

    async def oldest(self, kind: bytes, *, before: float, most: int) -> Sequence[PartialReport]:
        """Return the first `most` reports of one kind that were last reported at or before a time, oldest first."""
        ...

    async def count(self, kind: bytes) -> tuple[int, int]:
        """Return the number of stored reports of one kind and the bytes of their bodies."""
        ...


def kind_of(key: bytes) -> bytes:
    """The beginning that says what a key stands for."""
    return next((kind for kind in _KINDS if key.startswith(kind)), PARTS)


def of_kind(reports: Iterable[PartialReport], kind: bytes) -> Iterator[PartialReport]:
    return (report for report in reports if kind_of(report.key) == kind)


_KINDS = (COUNTERS, COUNTED, RECOVERED, TOLD, TOLD_OF)


# -- what a submission was made from: it is not kept when that has changed meanwhile -------------------------


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
