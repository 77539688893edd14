"""
Counts of the fields that calls state when they arrive, by source and sender version.

Each report is counted before it is attributed, priced and merged, so the counts show what the sender states.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Protocol

from gateway.core.kept_counts import DAY_S, DailyCountSaver
from gateway.intake.start_times import misdated_by_source
from gateway.normalise.outcome import STATED_FIELDS, ReadOutcome, Stated, split_program_and_version
from gateway.normalise.reading.operations import BILLED_BY_TOKENS
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.clock import Clock
from spool.sender_fields import DAYS, MAX_SOURCES, MAX_VERSIONS, NO_VERSION, OTHER, FieldCounts, SenderDay

MAX_SEEN = 1024  # maximum kinds of calls held before they are added to the counts of their senders
MAX_SENDERS = 2 * MAX_SOURCES * MAX_VERSIONS  # maximum senders of a day held in memory

_Seen = tuple[int, float, float]  # counts of a kind of calls: number, first arrival and last arrival


def sender_name(outcome: ReadOutcome, bearer: AuthenticatedKey) -> str:
    """Return the sender of a payload. The first of several devices represents all."""
    device = bearer.device or bearer.named or next(iter(outcome.named.values()), None)
    return device or bearer.sender or ""


class SenderFieldCounter:
    """Counts the fields that calls state, since the last `take_counts`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # counts by stated fields, product of the User-Agent, and sender
        self._seen: dict[tuple[Stated, str, str], _Seen] = {}
        self._day = 0  # UTC day number of the counts in `_seen`
        self._days: dict[int, SenderDay] = {}

    @property
    def today(self) -> int:
        return _day_number(self._clock.now())

    def add_payload(self, outcome: ReadOutcome, bearer: AuthenticatedKey) -> None:
        now = self._clock.now()
        if _day_number(now) != self._day or len(self._seen) >= MAX_SEEN:
            self._add_noted_calls_to_field_counts()
            self._day = _day_number(now)
        sender = sender_name(outcome, bearer)
        for stated, n in outcome.stated.items():
            key = (stated, outcome.agent, sender)
            before, first, _ = self._seen.get(key, (0, now, now))
            self._seen[key] = (before + n, first, now)
        for source, years in misdated_by_source(outcome.misdated).items():
            misdated = {f"{year} {sender}": count for year, count in years.items()}
            counts = FieldCounts(first=now, last=now, misdated=misdated)
            self._add_counts(self._day, source, NO_VERSION, counts)

    def take_counts(self) -> Mapping[int, SenderDay]:
        self._add_noted_calls_to_field_counts()
        days, self._days = self._days, {}
        return days

    def put_back(self, days: Mapping[int, SenderDay]) -> None:
        for day, senders in days.items():
            for (source, version), counts in senders.items():
                self._add_counts(day, source, version, counts)

    def _add_noted_calls_to_field_counts(self) -> None:
        everything, self._seen = self._seen, {}
        for (stated, agent, sender), seen in everything.items():
            program, version = split_program_and_version(str(stated[1]))
            # programs of a source have versions of their own
            source = f"{stated[0]} {program}" if program else str(stated[0])
            self._add_counts(
                self._day, source, version or agent, _field_counts_of_calls(stated, sender, seen)
            )

    def _add_counts(self, day: int, source: str, version: str, counts: FieldCounts) -> None:
        senders = self._days.setdefault(day, {})
        sender = (source, version)
        if sender not in senders and len(senders) >= MAX_SENDERS:
            sender = (OTHER, OTHER)
        if sender in senders:
            senders[sender].add_counts(counts)
        else:
            senders[sender] = counts


def _day_number(now: float) -> int:
    return int(now // DAY_S)


def _field_counts_of_calls(shared_traits: Stated, sender: str, count_and_times: _Seen) -> FieldCounts:
    n, first, last = count_and_times
    _, _, provider, operation, is_uncounted, is_ok, *flags = shared_traits
    fields = {name: n for name, is_missing in zip(STATED_FIELDS, flags, strict=True) if not is_missing}
    if provider is not None:
        fields["provider"] = n
    billed = n if is_ok and operation in BILLED_BY_TOKENS else 0
    return FieldCounts(
        first=first,
        last=last,
        calls=n,
        billed=billed,
        uncounted=billed if is_uncounted else 0,
        fields=fields,
        providers={str(provider or ""): n},
        operations={str(operation or ""): n},
        senders=[blake2b(sender.encode(), digest_size=6).hexdigest()],
    )


class SenderDayStore(Protocol):
    async def add(self, days: Mapping[int, SenderDay], *, today: int) -> None: ...

    async def days_since(self, oldest: int) -> Mapping[int, SenderDay]: ...


class SenderFieldSaver(DailyCountSaver[SenderDay]):
    name = "senders' fields"
    action = "sender_fields_not_kept"
    counter: SenderFieldCounter

    def __init__(self, counter: SenderFieldCounter, table: SenderDayStore) -> None:
        super().__init__(counter)
        self._table = table

    async def store_and_read_recent(self) -> Mapping[int, SenderDay]:
        await self.store_pending()
        return await self._table.days_since(self.counter.today - DAYS + 1)

    async def store_days(self, counts_by_day: Mapping[int, SenderDay]) -> None:
        await self._table.add(counts_by_day, today=self.counter.today)
