"""
Daily counts of the fields that reported calls contain, by source and sender version, over all processes and
restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from spool.registry.changes import RegistryChangeWriter
from spool.registry.registry_rows import RegistryRows

KIND = "sender_fields"
DAYS = 14  # stored days, including today
MAX_SOURCES = 64
MAX_VERSIONS = 8  # the newest versions of a source, which have their own counts
MAX_GROUPS = 8  # the providers, and the operations, that have their own counts in a version and day
MAX_FORMER = 64  # older versions of a source that are remembered
OTHER = "(other)"
_FORMER = "former"  # name of the document that lists older versions
ONE, SEVERAL = 1, 2  # `senders` stores at most two, so the count is "one" or "several"


class FieldCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """
    The calls of a source and sender version on one UTC day.

    `fields`: number of calls by field that they state. `billed`: successful calls of an operation that is
    billed by tokens. `uncounted`: how many of these state no counts or meters. `senders`: hashes of at most
    two keys or devices. `first`: first arrival of the version, on any day. `misdated`: number of items with a start
    time that shows a wrong clock, by year and name of the key or device, such as `1970 app`. A year ahead of the
    server's clock has a plus sign. These items are counted without the version.
    """

    first: float
    last: float
    calls: int = 0
    billed: int = 0
    uncounted: int = 0
    fields: dict[str, int] = {}
    providers: dict[str, int] = {}
    operations: dict[str, int] = {}
    senders: list[str] = []
    misdated: dict[str, int] = {}

    def add_counts(self, other: FieldCounts) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.calls += other.calls
        self.billed += other.billed
        self.uncounted += other.uncounted
        self.fields = Counter(self.fields) + Counter(other.fields)
        self.providers = _add_counts(self.providers, other.providers)
        self.operations = _add_counts(self.operations, other.operations)
        self.misdated = _add_counts(self.misdated, other.misdated)
        self.senders = list(dict.fromkeys([*self.senders, *other.senders]))[:SEVERAL]


def _add_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    sums = Counter(one)
    for name, n in other.items():
        is_known = name in sums or len(sums) < MAX_GROUPS
        sums[name if is_known else OTHER] += n
    return dict(sums)


def sum_counts(counts: Iterable[FieldCounts]) -> FieldCounts:
    first, *others = counts
    total = msgspec.structs.replace(first)
    for other in others:
        total.add_counts(other)
    return total


NO_VERSION = ""  # version of senders that state none
Sender = tuple[str, str]  # source, and version of the sender
SenderDay = dict[Sender, FieldCounts]


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
