"""
The days that devices state about their assistants, from heartbeats to storage.

Only an enrolled device counts, and only for itself: its statement about a day replaces its earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gateway.devices.fleet.coverage import team_of_machine
from gateway.devices.fleet.use_slots import SlotCount, utc_day
from gateway.devices.lifecycle import DeviceLifecycle
from spool.devices.device import ENROLLED, Device
from spool.devices.use_days import UseDay, UseDays
from spool.errors import SpoolError
from spool.loops import failure_logger, for_each_item, repeat

STORE_EVERY_S = 5.0
DEVICES_AT_ONCE = 200  # devices whose days one transaction stores
MAX_HEARTBEATS = 16  # heartbeats of a device that wait for storage; the newest state all its days again
SUM_EVERY_S = 600.0


class _Counts(msgspec.Struct, gc=False):
    slots: dict[str, SlotCount] = {}


class _Heartbeat(msgspec.Struct, gc=False):
    assistants: dict[str, _Counts] = {}


_DECODER = msgspec.json.Decoder(_Heartbeat)
_log_unread = failure_logger("the days of a device could not be read", action="use_days_not_read")


class UseDayRecorder:
    """
    Stores the stated days of devices that sent a heartbeat to this process. After a start, the first heartbeat of each
    device is stored again, so a crash loses nothing.
    """

    def __init__(self, lifecycle: DeviceLifecycle, table: UseDays) -> None:
        self._lifecycle = lifecycle
        self._table = table
        self._stored: dict[str, int] = {}  # by device, the hash of the days that were stored last
        self._waiting: dict[str, list[Device]] = {}  # by device, with its heartbeats that are not stored yet
        lifecycle.heartbeat_stored = self._note_heartbeat

    def _note_heartbeat(self, device: Device) -> None:
        if b'"slots"' in device.heartbeat:
            earlier = self._waiting.get(device.id, [])
            self._waiting[device.id] = [*earlier, device][-MAX_HEARTBEATS:]

    async def store_changed_days(self) -> None:
        days: dict[str, tuple[UseDay, ...]] = {}

        async def read_days(id: str) -> None:
            days[id] = tuple(self._days_of_heartbeats(waiting[id]))

        ids = sorted(self._waiting)
        for first in range(0, len(ids), DEVICES_AT_ONCE):
            waiting = {id: self._waiting.pop(id) for id in ids[first : first + DEVICES_AT_ONCE]}
            days.clear()
            await for_each_item(waiting, read_days, _log_unread)
            # checked at the last moment, because an erasure sums the days of a device after it revoked the device
            new = {
                id: rows
                for id, rows in days.items()
                if rows and self._stored.get(id) != hash(rows) and self._is_enrolled(id)
            }
            if new:
                try:
                    await self._table.replace_days([row for rows in new.values() for row in rows])
                except SpoolError:
                    for id in new:
                        newer = self._waiting.get(id, [])
                        self._waiting[id] = [*waiting[id], *newer][-MAX_HEARTBEATS:]
                    raise
            self._stored |= {id: hash(rows) for id, rows in new.items()}

    async def sum_old_days(self) -> None:
        known = [device.id for device in self._lifecycle.table.all()]
        await self._table.sum_and_delete_old_days(utc_day(self._lifecycle.now()), known)
        self._stored = {id: stored for id, stored in self._stored.items() if self._lifecycle.table.find(id)}

    async def store_repeatedly(self) -> None:
        failed = "the days of assistants could not be stored and are retried"
        await repeat(
            self.store_changed_days, every_s=STORE_EVERY_S, failed=failed, action="use_days_not_stored"
        )

    async def sum_repeatedly(self) -> None:
        failed = "old days of assistants could not be summed"
        await repeat(self.sum_old_days, every_s=SUM_EVERY_S, failed=failed, action="use_days_not_summed")

    def _is_enrolled(self, id: str) -> bool:
        device = self._lifecycle.table.find(id)
        return device is not None and device.state == ENROLLED

    def _days_of_heartbeats(self, devices: Sequence[Device]) -> Iterable[UseDay]:
        """Return the days of heartbeats of one device. A heartbeat replaces only the days that it states."""
        newest = devices[-1]
        team = team_of_machine(newest, self._lifecycle.expected().find_machine(newest))
        found: dict[tuple[str, str], UseDay] = {}
        for device in devices:
            for assistant, counts in _DECODER.decode(device.heartbeat).assistants.items():
                for day, count in counts.slots.items():
                    found[assistant, day] = UseDay(
                        day=day,
                        device=device.id,
                        assistant=assistant,
                        team=team,
                        used=count.used,
                        lost=count.lost,
                        lost_calls=count.calls,
                    )
        return found.values()
