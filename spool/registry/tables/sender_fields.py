"""
Daily counts of the fields that reported calls contain, by source and sender version, over all processes and
restarts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from spool.registry.changes import RegistryChangeWriter
from spool.registry.registry_rows import RegistryRows
from spool.sender_fields import (
    DAYS,
    MAX_SOURCES,
    MAX_VERSIONS,
    NO_VERSION,
    OTHER,
    FieldCounts,
    Sender,
    SenderDay,
    sum_counts,
)
from spool.turns.threads import prepare_types_for_msgspec

KIND = "sender_fields"
MAX_FORMER = 64  # older versions of a source that are remembered
_FORMER = "former"  # name of the document that lists older versions

prepare_types_for_msgspec(FieldCounts)


class SenderFieldTable:
    """The numbers of calls by sender that state each field, with one document per day."""

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def add(self, days: Mapping[int, Mapping[Sender, FieldCounts]], *, today: int) -> None:

        def add_sender_field_days(registry_rows: RegistryRows) -> None:
            bodies = dict(registry_rows.documents(KIND))
            former = {source: list(names) for source, names in bodies.pop(_FORMER, {}).items()}
            stored = {int(id): _decode_day(body) for id, body in bodies.items() if int(id) > today - DAYS}
            for day, counts in days.items():
                if day > today - DAYS:
                    _add_counts_of_day(stored, day, counts, former)
            for id in bodies:
                if int(id) not in stored:
                    registry_rows.delete_document(KIND, id)
            for day, of_day in stored.items():
                if (body := _encode_day(of_day)) != bodies.get(str(day)):
                    registry_rows.put_document(KIND, str(day), body)
            known = {source for of_day in stored.values() for source, _ in of_day}
            registry_rows.put_document(
                KIND, _FORMER, {source: former[source] for source in former.keys() & known}
            )

        await self._changes.change_rows(add_sender_field_days)

    async def days_since(self, oldest: int) -> Mapping[int, SenderDay]:
        stored = await self._changes.read(lambda rows: rows.documents(KIND))
        days = {int(id): body for id, body in stored.items() if id != _FORMER}
        return {day: _decode_day(days[day]) for day in sorted(days) if day >= oldest}


def _add_counts_of_day(
    stored: dict[int, SenderDay],
    day: int,
    counts: Mapping[Sender, FieldCounts],
    former_versions_by_source: dict[str, list[str]],
) -> None:
    of_day = stored.setdefault(day, {})
    for (source, version), new in counts.items():
        known = {name for each in stored.values() for name, _ in each}
        if source not in known and len(known - {OTHER}) >= MAX_SOURCES:
            source = version = OTHER
        elif version in former_versions_by_source.get(source, ()):
            version = OTHER
        _add_sender_counts(of_day, (source, version), new)
        of_day[source, version].first = min(
            each[source, version].first for each in stored.values() if (source, version) in each
        )
        _keep_newest_versions(stored, source, former_versions_by_source)


def _add_sender_counts(of_day: SenderDay, sender: Sender, new: FieldCounts) -> None:
    if sender in of_day:
        of_day[sender].add_counts(new)
    else:
        of_day[sender] = sum_counts([new])


def _keep_newest_versions(
    stored: Mapping[int, SenderDay], source: str, former_versions_by_source: dict[str, list[str]]
) -> None:
    first: dict[str, float] = {}
    for of_day in stored.values():
        for (name, version), counts in of_day.items():
            if name == source and version not in (OTHER, NO_VERSION):
                first[version] = min(first.get(version, counts.first), counts.first)
    oldest = sorted(first, key=lambda version: (first[version], version))[:-MAX_VERSIONS]
    for version in oldest:
        for of_day in stored.values():
            if (source, version) in of_day:
                _add_sender_counts(of_day, (source, OTHER), of_day.pop((source, version)))
    if oldest:
        former_versions_by_source[source] = [*former_versions_by_source.get(source, ()), *oldest][
            -MAX_FORMER:
        ]


def _encode_day(of_day: SenderDay) -> dict[str, dict[str, object]]:
    body: dict[str, dict[str, object]] = {}
    for (source, version), counts in of_day.items():
        body.setdefault(source, {})[version] = msgspec.to_builtins(counts)
    return body


def _decode_day(body: Mapping[str, Mapping[str, object]]) -> SenderDay:
    return {
        (source, version): msgspec.convert(counts, FieldCounts)
        for source, versions in body.items()
        for version, counts in versions.items()
    }
