"""
Waiting reports, stored as bytes under a key: a partial report waits for the rest of its call, a counter for
calls that it may repeat.

They are acknowledged before they are complete. So they are stored in the commit of their submission, which
counts them as pending.

A key begins with its kind. `COUNTERS`: waiting counters. `COUNTED`: facts about an hour of counted counters.
`RECOVERED`: imported record numbers of a damaged file. `TOLD`: reports of recorded calls, if several
processes share a log; `TOLD_OF`: their keys by trace. `SPANS`: spans that link calls to agents
(`spool.log.pending_spans`). Only `COUNTERS` and partial reports are pending.
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
PARTS = b""  # kind of all other keys: partial reports, and facts about their traces


class PartialReport(NamedTuple):
    key: bytes
    at: float  # when the newest report under the key arrived, in epoch seconds
    body: bytes


class ExpectedVersion(NamedTuple):
    """
    The version of a waiting report when it was read. If the report has changed since, the submission is
    refused.
    """

    key: bytes
    version: int


@dataclass(slots=True)
class PendingChange:
    # change of the number of waiting reports; negative if more were completed
    count: int = 0
    # reports to store, each in place of the report with its key
    keep: list[PartialReport] = field(default_factory=list)
    forget: list[bytes] = field(default_factory=list)  # keys of reports that no longer wait
    # versions that the submission relies on, if other processes may change them
    expects: list[ExpectedVersion] = field(default_factory=list)


class PartialReports(Protocol):
    """
    The stored waiting reports. A `Submission` adds and removes them.

    `is_shared`: other processes change them, so a submission states the versions that it was made for
    (`Submission.expects`).
    """

    is_shared: bool

    async def load(self) -> Sequence[PartialReport]: ...  # oldest first

    async def find_reports(
        self, keys: Collection[bytes], *, key_prefixes: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        """Return the reports with these keys, and those with a key that begins with one of `key_prefixes`."""
        ...

    async def oldest_reports(
        self, kind: bytes, *, before_time: float, max_reports: int
    ) -> Sequence[PartialReport]:
        """Return at most `max_reports` reports of a kind that last changed at or before a time, oldest first."""
        ...

    async def count_reports_and_bytes(self, kind: bytes) -> tuple[int, int]: ...


def report_kind(key: bytes) -> bytes:
    return next((kind for kind in _KINDS if key.startswith(kind)), PARTS)


def filter_by_kind(reports: Iterable[PartialReport], kind: bytes) -> Iterator[PartialReport]:
    return (report for report in reports if report_kind(report.key) == kind)


_KINDS = (COUNTERS, COUNTED, RECOVERED, TOLD, TOLD_OF, SPANS)


# -- versions: a submission is refused if its reports have changed ------------------------------------------


NOTHING = 0  # version that stands for no report


class PartialReportChanges(Protocol):
    @property
    def expects(self) -> Sequence[ExpectedVersion]: ...

    @property
    def keep(self) -> Sequence[PartialReport]: ...

    @property
    def forget(self) -> Sequence[bytes]: ...


def expected_report_versions(
    keys: Iterable[bytes], found_reports: Mapping[bytes, PartialReport]
) -> list[ExpectedVersion]:
    """
    Return the versions of the reports that were found under these keys. A key without a report must still
    have none.
    """
    return [ExpectedVersion(key, report_version(found_reports.get(key))) for key in sorted(set(keys))]


def report_version(report: PartialReport | None) -> int:
    """Return a signed 64-bit number that changes with the report."""
    if report is None:
        return NOTHING
    digest = blake2b(pack(">d", report.at) + report.body, digest_size=8).digest()
    return int.from_bytes(digest, signed=True) or 1


def keys_of_expected_versions(group: Iterable[PartialReportChanges]) -> list[bytes]:
    return sorted({expectation.key for submission in group for expectation in submission.expects})


def indexes_of_stale_submissions(
    group: Sequence[PartialReportChanges], stored_version: Callable[[bytes], int]
) -> set[int]:
    """
    Return the positions of submissions that expect versions which have changed. A submission also sees the
    changes by earlier submissions of the group.
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
            if (changed[key] if key in changed else stored_version(key)) != expected:
                failed.add(index)
                break
        else:
            changed.update(dict.fromkeys(submission.forget, NOTHING))
            changed.update({report.key: report_version(report) for report in submission.keep})
    return failed
