"""
Submissions of records imported from another file, such as a damaged log or a data lake.

The commit also stores which numbers were imported, so a repeated import skips them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from spool.erasure import Renaming, rename_person, time_of_new_call
from spool.identity import RecordIdentity
from spool.log.partial_reports import RECOVERED, PartialReport
from spool.log.values import Submission
from spool.record import NS, Record, further_dedup_keys

_ranges = msgspec.msgpack.Decoder(list[tuple[int, int]])


def imported_ranges_key(*of: str) -> bytes:
    """Return the key under which the imported record numbers of one file are stored."""
    return RECOVERED + "/".join(of).encode()


def imported_ranges(report: PartialReport) -> list[tuple[int, int]]:
    return _ranges.decode(report.body)


def rename_erased_person(record: Record, renaming: Renaming | None, *, arrived_at: float) -> None:
    """
    Rename people who were erased after the record first arrived (epoch seconds). Its new number is higher than
    at the erasure.
    """
    if renaming is not None:
        rename_person(record, renaming, time_of_new_call(record, arrived_ns=int(arrived_at * NS)))


def build_import_submission(
    topic: str,
    records: Sequence[Record],
    *,
    ranges_key: bytes,
    imported_ranges: Sequence[tuple[int, int]],
    imported_at: float,
    checks_duplicates: bool,
) -> Submission:
    """
    Return a submission of imported records. `imported_ranges`: the ranges of all numbers imported after this
    submission, which are stored under the key `ranges_key`. `checks_duplicates`: False if the log may know the ids of
    records that it does not have; then duplicates are not checked.
    """
    times = Counter(record.id for record in records)
    return Submission(
        topic=topic,
        received=len(records),
        records=records,
        identities=[
            RecordIdentity(
                record.id,
                certain=checks_duplicates and times[record.id] == 1,
                also=tuple(further_dedup_keys(record)),
            )
            for record in records
        ],
        keep=[PartialReport(ranges_key, imported_at, msgspec.msgpack.encode(imported_ranges))],
    )
