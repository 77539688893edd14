"""Records that come from another file, a damaged one or a lake; which are here is noted in the commit that brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from spool.identity import Identity
from spool.log.partial_reports import RECOVERED, PartialReport
from spool.log.values import Submission
from spool.record import Record, names_of

_ranges = msgspec.msgpack.Decoder(list[tuple[int, int]])


def note_key(*of: str) -> bytes:
    """Name the fact that says which numbers of a file are here."""
    return RECOVERED + "/".join(of).encode()


def noted(report: PartialReport) -> list[tuple[int, int]]:
    """The numbers of a note, as ranges."""
    return _ranges.decode(report.body)


def bring(
    topic: str,
    records: Sequence[Record],
    *,
    note: bytes,
    done: Sequence[tuple[int, int]],
    at: float,
    certain: bool,
) -> Submission:
    """`done`: all numbers that are here with these. Not `certain`: the log may know ids of records that it lacks."""
    times = Counter(record.id for record in records)
    return Submission(
        topic=topic,
        received=len(records),
        records=records,
        identities=[
            Identity(record.id, certain=certain and times[record.id] == 1, also=tuple(names_of(record)))
            for record in records
        ],
        keep=[PartialReport(note, at, msgspec.msgpack.encode(done))],
    )
