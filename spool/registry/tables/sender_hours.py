"""The hours in which each pair of key and source sent records, over all processes and restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from spool.registry.changes import RegistryChangeWriter
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import storable_text

KIND = "sender_hours"
HOUR_S = 3600
KEPT_HOURS = 6 * 7 * 24  # hours of a pair that are stored, up to the newest
# A pair of source and key is deleted after this number of hours without a record. Tollhouse's own hours are
# stored as long.
FORGOTTEN_HOURS = 400 * 24
MAX_PAIRS = 5_000
MAX_SOURCES = 100  # sources per key, because another Tollhouse may name any source

SourceAndKey = tuple[str, str]  # source and key; "" if requests need no key
RUNNING: SourceAndKey = ("", "")  # the pair for Tollhouse itself: the hours in which it could receive records
Arrivals = Mapping[int, float]  # newest arrival in each hour since the epoch, in epoch seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderHours:
    """
    The hours of a pair of key and source. Bit n of `hours` is set if records arrived in the hour `end - n`
    (hours since the epoch). `last`: newest arrival in epoch seconds.
    """

    source: str
    key: str
    end: int
    hours: int
    last: float

    def with_arrivals(self, arrivals: Arrivals) -> SenderHours:
        parts = [self, *_sender_hours_of_arrivals((self.source, self.key), arrivals)]
        return merge_sender_hours(parts, max_hours=_max_kept_hours((self.source, self.key)))


def merge_sender_hours(parts: Sequence[SenderHours], *, max_hours: int = KEPT_HOURS) -> SenderHours:
    """
    Return the union of the hours of all parts, for the key and source of the first part. Only the newest
    `max_hours` hours stay.
    """
    end = max(part.end for part in parts)
    hours = 0
    for part in parts:
        age = end - part.end
        if age < FORGOTTEN_HOURS:
            hours |= part.hours << age
    last = max(part.last for part in parts)
    return replace(parts[0], end=end, hours=hours & ((1 << max_hours) - 1), last=last)


def hours_of_new_sender(pair: SourceAndKey, arrivals: Arrivals) -> SenderHours:
    return merge_sender_hours(_sender_hours_of_arrivals(pair, arrivals), max_hours=_max_kept_hours(pair))


def _sender_hours_of_arrivals(pair: SourceAndKey, arrivals: Arrivals) -> Sequence[SenderHours]:
    source, key = pair
    return [SenderHours(source=source, key=key, end=hour, hours=1, last=at) for hour, at in arrivals.items()]


def _max_kept_hours(pair: SourceAndKey) -> int:
    return FORGOTTEN_HOURS if pair == RUNNING else KEPT_HOURS


def newest_record_times(hours: Iterable[SenderHours]) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return the time of the newest record by source, and by key, in epoch seconds, newest first."""
    sources: dict[str, float] = {}
    keys: dict[str, float] = {}
    for each in sorted(hours, key=lambda each: -each.last):
        if each.source:
            sources.setdefault(each.source, each.last)
            if each.key:
                keys.setdefault(each.key, each.last)
    return sources, keys


class SenderHoursTable:
    """
    The hours, with one document per pair of key and source. The document of a silent pair does not change.
    """

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def add(self, arrivals: Mapping[SourceAndKey, Arrivals], *, now: float) -> Sequence[SenderHours]:
        """
        Store arrivals. Return the changed hours. New pairs beyond MAX_PAIRS or MAX_SOURCES are left out.
        """

        def add_arrivals_to_hours(registry_rows: RegistryRows) -> Sequence[SenderHours]:
            new = []
            stored = []
            for pair, hours in arrivals.items():
                document = registry_rows.document(KIND, _pair_id(pair))
                if document is None:
                    new.append(pair)
                else:
                    stored.append(_decode_hours(document).with_arrivals(hours))
            stored += [
                hours_of_new_sender(pair, arrivals[pair])
                for pair in _delete_silent_pairs_and_return_addable(registry_rows, new, now)
            ]
            for each in stored:
                registry_rows.put_document(KIND, _pair_id((each.source, each.key)), _encode_hours(each))
            return stored

        return await self._changes.change_rows(add_arrivals_to_hours)

    async def all(self) -> Sequence[SenderHours]:
        documents = await self._changes.read(lambda rows: rows.documents(KIND))
        return [_decode_hours(document) for document in documents.values()]


def _delete_silent_pairs_and_return_addable(
    registry_rows: RegistryRows, new: Sequence[SourceAndKey], now: float
) -> Sequence[SourceAndKey]:
    """Delete pairs that have been silent for long. Return those of the new pairs that may be added."""
    if not new:
        return ()
    oldest = now // HOUR_S - FORGOTTEN_HOURS
    sources = Counter[str]()
    for id, document in registry_rows.documents(KIND).items():
        each = _decode_hours(document)
        if each.end < oldest:
            registry_rows.delete_document(KIND, id)
        else:
            sources[each.key] += 1
    fitting = []
    for source, key in new:
        if sources.total() < MAX_PAIRS and sources[key] < MAX_SOURCES:
            sources[key] += 1
            fitting.append((source, key))
    return fitting


def _pair_id(pair: SourceAndKey) -> str:
    return blake2b(json.dumps(pair).encode(), digest_size=16).hexdigest()


def _encode_hours(each: SenderHours) -> dict[str, Any]:
    return {
        "source": storable_text(each.source),
        "key": storable_text(each.key),
        "end": each.end,
        "hours": f"{each.hours:x}",
        "last": each.last,
    }


def _decode_hours(document: Mapping[str, Any]) -> SenderHours:
    return SenderHours(**{**document, "hours": int(document["hours"], 16)})
