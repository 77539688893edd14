"""
The hours in which each key and source sent records, for the detector of senders that stopped sending and for
`/metrics`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from spool.clock import Clock
from spool.errors import SpoolError
from spool.loops import log_failure, repeat
from spool.registry.tables.sender_hours import (
    HOUR_S,
    MAX_PAIRS,
    RUNNING,
    SenderHours,
    SenderHoursTable,
    SourceAndKey,
    hours_of_new_sender,
    newest_record_times,
)

KEEP_EVERY_S = 60.0  # seconds between two times at which new hours are stored
# If a sender's hour is known, its newest arrival is stored again only after this number of seconds, because
# most senders send all the time.
LAST_EVERY_S = 600.0
READ_EVERY_S = 60.0  # seconds after which the hours that other gateways stored are read again

_log = logging.getLogger(__name__)


class SenderHoursTracker:
    """
    The hours with arrivals of each pair of key and source. New arrivals of this process are noted in memory,
    and stored from time to time. `note_arrival` returns at once.
    """

    def __init__(self, table: SenderHoursTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._arrivals: dict[SourceAndKey, dict[int, float]] = {}  # arrivals that are not stored yet
        self._stored: dict[SourceAndKey, SenderHours] = {}
        self._read_at: float | None = None

    def note_arrival(self, key: str, sources: Collection[str]) -> None:
        """Note that records of these sources arrived now with a key. The key is "" if requests need no key."""
        now = self._clock.now()
        hour = int(now // HOUR_S)
        for source in sources:
            hours = self._arrivals.get((source, key))
            if hours is None:
                if len(self._arrivals) >= MAX_PAIRS:
                    continue
                hours = self._arrivals[source, key] = {}
            hours[hour] = now

    async def current_hours(self) -> Sequence[SenderHours]:
        """
        Return the hours of all pairs of key and source. Arrivals of this process are always included, and
        arrivals of other gateways after a few minutes.
        """
        now = self._clock.monotonic()
        if self._read_at is None or not 0 <= now - self._read_at < READ_EVERY_S:
            self._stored = _hours_by_pair(await self._table.all())
            self._read_at = now
        current = dict(self._stored)
        for pair, hours in self._arrivals.items():
            stored = current.get(pair)
            current[pair] = (
                hours_of_new_sender(pair, hours) if stored is None else stored.with_arrivals(hours)
            )
        return [*current.values()]

    async def newest_by_source(self) -> Mapping[str, float]:
        return newest_record_times(await self.current_hours())[0]

    async def newest_by_key(self) -> Mapping[str, float]:
        return newest_record_times(await self.current_hours())[1]

    async def run(self) -> None:
        """Store the noted arrivals of records from time to time, and when cancelled."""
        failed = "the hours in which senders reported could not be stored and are retried"
        action = "sender_hours_not_kept"

        async def store_running_hour() -> None:
            self.note_arrival(RUNNING[1], [RUNNING[0]])
            await self.store_arrivals(stores_all=False)

        try:
            await repeat(store_running_hour, every_s=KEEP_EVERY_S, failed=failed, action=action)
        finally:
            try:
                await self.store_arrivals()
            except SpoolError as error:
                log_failure(failed, error, action=action)

    async def store_arrivals(self, *, stores_all: bool = True) -> None:
        """
        Store the noted arrivals. Unless `stores_all` is set, arrivals that change the stored hours little
        wait for a later call.
        """
        due = {
            pair: hours
            for pair, hours in self._arrivals.items()
            if stores_all or self._adds_new_hours(pair, hours)
        }
        if not due:
            return
        for pair in due:
            del self._arrivals[pair]
        try:
            stored = await self._table.add(due, now=self._clock.now())
        except SpoolError:
            for pair, hours in due.items():
                self._arrivals[pair] = {**hours, **self._arrivals.get(pair, {})}
            raise
        self._stored.update(_hours_by_pair(stored))

    def _adds_new_hours(self, pair: SourceAndKey, hours: Mapping[int, float]) -> bool:
        stored = self._stored.get(pair)
        return stored is None or max(hours) > stored.end or max(hours.values()) - stored.last >= LAST_EVERY_S


def _hours_by_pair(hours: Iterable[SenderHours]) -> dict[SourceAndKey, SenderHours]:
    return {(each.source, each.key): each for each in hours}
