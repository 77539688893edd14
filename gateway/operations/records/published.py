"""Records of the log as lists show them, closed and open. They have no content, because none is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Annotated

import msgspec

from spool.cost_kinds import call_cost_source
from spool.ledger.counting import cut_and_cleaned_text
from spool.ledger.dimensions import TAG
from spool.ledger.own_records import STEP
from spool.ledger.sums import metric_status_and_source, start_hour_or_arrival_hour
from spool.ledger.work import UNITS, WorkUnitHasher, is_digest, unit_name_or_empty_if_other
from spool.ledger.work_links import NO_LINKS, TARGETS, WorkUnitLinks
from spool.log.protocols import RecordLog
from spool.log.values import LogEntry
from spool.record import AiRecord, Correction, Inference, Record, UsageMetric, record_to_json, utc_iso
from spool.registry.field_notes import example, words
from spool.turns.fair_turns import pause_for_others

# Number of newest records that are searched. Costs of older records are in the totals, and an older record
# can be found by its id.
LOOKED_THROUGH = 10_000
STATES = OPEN, CLOSED = "open", "closed"


class SearchedRecords(msgspec.Struct, kw_only=True):
    """The extent of the search: how many records, and of which time."""

    records: Annotated[int, words("The number of records that were searched."), example(62584)]
    most: Annotated[int, words("The maximum number of records to search."), example(100000)]
    since: Annotated[
        str | None,
        words("The time of the oldest record that was searched."),
        example("2026-11-27T01:19:28.365Z"),
    ]
    until: Annotated[
        str | None,
        words("The time of the newest record that was searched. Null means until now."),
        example(None),
    ]


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record with its place in the log."""

    topic: str
    number: int
    committed_at: float
    is_open: bool
    record: Record
    is_number_shown: bool = True

    @property
    def state(self) -> str:
        return OPEN if self.is_open else CLOSED

    @property
    def commit_order_key(self) -> str:
        """
        Return a text that sorts in commit order. Cursors contain it, so it must not reveal anything that the
        list does not show.
        """
        last = f"{self.number:020}" if self.is_number_shown else self.record.id.hex()
        return f"{self.committed_at:017.6f} {self.topic} {last}"

    def value_for_filters(self, name: str) -> str:
        """
        Return the record's value for filters: a field or tag, under the name that costs use for it. "" means
        unknown. A correction has its call's values.
        """
        if name == "kind":
            return self.record.kind
        record = self.record.after if isinstance(self.record, Correction) else self.record
        if name.startswith(TAG):
            tags: dict[str, str] = getattr(record, "tags", {})
            return tags.get(name.removeprefix(TAG), "")
        if name == "sender":
            return getattr(record, "sender_key", None) or ""
        if name == "model" and isinstance(record, Inference):
            return record.response_model or record.request_model or ""
        if name == "cost_source" and isinstance(record, Inference):
            return call_cost_source(record)
        return getattr(record, name, None) or ""

    def unit_values(
        self, name: str, unit_hasher: WorkUnitHasher, unit_links: WorkUnitLinks = NO_LINKS
    ) -> tuple[str, ...]:
        """
        Return the values that a filter by a unit of work matches: its name, the unit to which the call is
        linked, or the id and its digest.
        """
        record = self.record.after if isinstance(self.record, Correction) else self.record
        if UNITS[name].is_named:
            stated = unit_name_or_empty_if_other(self.value_for_filters(f"{TAG}{name}"))
            return (
                stated
                if stated or name not in TARGETS
                else self._target_linked_to_work_unit(name, unit_hasher, unit_links),
            )
        own = getattr(record, name, None)
        if not own:
            return ("",)
        digest = unit_hasher.digest_of_id(name, own, session=getattr(record, "session", None))
        return (digest,) if is_digest(name, own) else (own, digest)

    def _target_linked_to_work_unit(
        self, target: str, unit_hasher: WorkUnitHasher, unit_links: WorkUnitLinks
    ) -> str:
        if not isinstance(self.record, AiRecord | Correction):
            return ""
        hour = start_hour_or_arrival_hour(self.record.start_time, self.committed_at)

        def name_of_unit(unit: str) -> str:
            return self.unit_values(unit, unit_hasher)[-1]

        return unit_links.find_linked_target(target, name_of_unit, hour) or ""

    def dimension_value_in_totals(self, name: str) -> str:
        """Return the record's value of a dimension, as the totals count it."""
        if isinstance(self.record, UsageMetric) and name in ("status", "cost_source"):
            return metric_status_and_source(self.record)[name == "cost_source"]
        return unit_name_or_empty_if_other(str(cut_and_cleaned_text(self.value_for_filters(name))))


def describe_stored(stored_record: KeptRecord) -> dict[str, object]:
    row = describe_record(stored_record.record)
    row.pop("body", None)  # remove the body, because it is an hourly file and may be as large as a request
    return {**describe_place(stored_record), **row}


def describe_record(record: Record) -> dict[str, object]:
    """
    Describe every field of a record, and the name of the key that sent a call. Destinations do not
    receive that name.
    """
    row: dict[str, object] = record_to_json(record)
    if isinstance(record, Correction):
        return {**row, "sender": record.after.sender_key}
    return {**row, "sender": record.sender_key} if isinstance(record, AiRecord) else row


def describe_place(stored_record: KeptRecord) -> dict[str, object]:
    return {
        "topic": stored_record.topic,
        "number": stored_record.number if stored_record.is_number_shown else None,
        "committed_at": utc_iso(stored_record.committed_at),
        "state": stored_record.state,
    }


def describe_searched_records(stored_records: Sequence[KeptRecord]) -> dict[str, object]:
    """Return the fields about the search that found a page of the newest records."""
    since = min((stored.committed_at for stored in stored_records), default=None)
    return describe_search(records=len(stored_records), max_records=LOOKED_THROUGH, since=since)


def describe_search(
    *, records: int, max_records: int, since: float | None, until: float | None = None
) -> dict[str, object]:
    """
    Describe how many records were searched, the maximum, and the time range of their commits. `until` None
    means until now.
    """
    first, last = (None if edge is None else utc_iso(edge) for edge in (since, until))
    return {"looked_through": {"records": records, "most": max_records, "since": first, "until": last}}


async def newest_records_of_topics(record_log: RecordLog, topics: Sequence[str]) -> Sequence[KeptRecord]:
    """Return the newest records of some topics, at most LOOKED_THROUGH, newest commit first."""
    by_topic = [await _newest_records_in_topic(record_log, topic) for topic in topics]
    merged = merge(*by_topic, key=lambda stored: stored.committed_at, reverse=True)
    return await asyncio.to_thread(list, islice(merged, LOOKED_THROUGH))


async def _newest_records_in_topic(record_log: RecordLog, topic: str) -> Sequence[KeptRecord]:
    """Read the newest records of a topic in steps, so that the event loop runs other tasks in between."""
    stored_records: list[KeptRecord] = []
    below = record_log.next_number(topic)
    least = max(1, below - LOOKED_THROUGH)
    while below > least:
        first = max(least, below - STEP)
        entries = await record_log.read(topic, first, below - 1, includes_open_records=True)
        stored_records += reversed(list(kept_records(record_log, entries)))
        below = first
        await pause_for_others()
    return stored_records


def kept_records(record_log: RecordLog, entries: Iterable[LogEntry]) -> Iterator[KeptRecord]:
    """Yield the records of entries in order. Damaged records are left out."""
    for entry in entries:
        below = record_log.lowest_open_number(entry.topic)
        for number, record in enumerate(entry.records, entry.first):
            if record is not None:
                yield KeptRecord(entry.topic, number, entry.committed_at, number >= below, record)
