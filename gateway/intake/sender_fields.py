"""
Counts of the fields that calls state when they arrive, by source and sender version.

Each report is counted before it is attributed, priced and merged, so the counts show what the sender states.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from hashlib import blake2b

from gateway.normalise.outcome import STATED_FIELDS, Outcome, Stated
from gateway.normalise.reading.operations import BILLED_BY_TOKENS
from gateway.people.authentication.access import Bearer
from spool.clock import Clock
from spool.errors import SpoolError
from spool.registry.tables.sender_fields import (
    DAYS,
    MAX_SOURCES,
    MAX_VERSIONS,
    OTHER,
    FieldCounts,
    SenderDay,
    SenderFieldTable,
)

DAY_S = 86_400.0
KEEP_EVERY_S = 600.0
MAX_SEEN = 1024  # kinds of calls that are counted before they are added to the counts of their senders
MAX_SENDERS = 2 * MAX_SOURCES * MAX_VERSIONS  # sources and versions of a day in memory

_log = logging.getLogger(__name__)

_Seen = tuple[int, float, float]  # number of calls, first and last arrival


def sender_of(outcome: Outcome, bearer: Bearer) -> str:
    """Return the device, or the key, that sent a payload. Of several devices, the first represents all."""
    device = bearer.device or bearer.named or next(iter(outcome.named.values()), None)
    return device or bearer.sender or ""


class SenderFieldCounter:
    """The counts of this process since the last `take`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[
            tuple[Stated, str, str], _Seen
        ] = {}  # by fields, product of the User-Agent, and sender
        self._day = 0  # of `_seen`
        self._days: dict[int, SenderDay] = {}

    @property
    def today(self) -> int:
        return _day_of(self._clock.now())

    def add(self, outcome: Outcome, bearer: Bearer) -> None:
        """Add the calls of a payload that is stored."""
        now = self._clock.now()
        if _day_of(now) != self._day or len(self._seen) >= MAX_SEEN:
            self._fold()
            self._day = _day_of(now)
        sender = sender_of(outcome, bearer)
        for stated, n in outcome.stated.items():
            key = (stated, outcome.agent, sender)
            before, first, _ = self._seen.get(key, (0, now, now))
            self._seen[key] = (before + n, first, now)

    def take(self) -> Mapping[int, SenderDay]:
        """Return the counts by day and reset them."""
        self._fold()
        days, self._days = self._days, {}
        return days

    def put_back(self, days: Mapping[int, SenderDay]) -> None:
        """Add counts back that could not be stored."""
        for day, senders in days.items():
            for (source, version), counts in senders.items():
                self._add(day, source, version, counts)

    def _fold(self) -> None:
        everything, self._seen = self._seen, {}
        for (stated, agent, sender), seen in everything.items():
            source, version = str(stated[0]), str(stated[1])
            self._add(self._day, source, version or agent, _counts_of(stated, sender, seen))

    def _add(self, day: int, source: str, version: str, counts: FieldCounts) -> None:
        senders = self._days.setdefault(day, {})
        sender = (source, version)
        if sender not in senders and len(senders) >= MAX_SENDERS:
            sender = (OTHER, OTHER)
        if sender in senders:
            senders[sender].add(counts)
        else:
            senders[sender] = counts


def _day_of(now: float) -> int:
    return int(now // DAY_S)


def _counts_of(stated: Stated, sender: str, seen: _Seen) -> FieldCounts:
    n, first, last = seen
    _, _, provider, operation, is_uncounted, is_ok, *flags = stated
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


class KeptSenderFields:
    """
    Adds this process's counts to the stored counts: for each query, every ten minutes, and at an orderly stop.
    """

    def __init__(self, counter: SenderFieldCounter, table: SenderFieldTable) -> None:
        self.counter = counter
        self._table = table

    async def recent(self) -> Mapping[int, SenderDay]:
        """Return the counts of the stored days from all processes."""
        await self.keep()
        return await self._table.since(self.counter.today - DAYS + 1)

    async def keep(self) -> None:
        if days := self.counter.take():
            try:
                await self._table.add(days, today=self.counter.today)
            except SpoolError:
                self.counter.put_back(days)
                raise

    async def run(self) -> None:
        """Store the counts from time to time, and when cancelled."""
        try:
            while True:
                await asyncio.sleep(KEEP_EVERY_S)
                await self._try_to_keep()
        finally:
            await self._try_to_keep()

    async def _try_to_keep(self) -> None:
        try:
            await self.keep()
        except SpoolError as error:
            _log.warning(
                "counts of senders' fields could not be stored and are retried: %s",
                error,
                extra={"action": "sender_fields_not_kept"},
            )
