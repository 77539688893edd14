"""The rows of the list of devices: each device with its state of now."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from math import inf

from gateway.devices.calls.devices import DEVICES, Shown
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.states import changes_after, state_of
from gateway.http.lists import List, PageQuery
from gateway.http.ordered_rows import OrderedRows
from spool.clock import Clock
from spool.listing import ListPage
from spool.turns.fair_turns import pause_when_due

DUE_PER_CHANGE = 4  # states looked at with each change of a row, so that few are left for a page


class ListedDevices:
    """
    Rows that follow the device table and the clock, so that a page does not derive the state of every device.

    They begin with the first page; before it they cost nothing. They begin again after a step of the clock back and
    after a change of the interval of heartbeats.
    """

    def __init__(self, lifecycle: DeviceLifecycle, clock: Clock) -> None:
        self._lifecycle = lifecycle
        self._table = lifecycle.table
        self._clock = clock
        self._rows: OrderedRows[Shown] = OrderedRows(DEVICES, "state")
        self._turn = asyncio.Lock()
        self._interval_s = 0.0
        self._latest = inf  # the latest time for which a state was derived
        self._due: dict[str, float] = {}  # by id the time after which its state must be derived again
        self._heap: list[tuple[float, str]] = []

    async def page(self, listed: List[Shown], wanted: PageQuery) -> ListPage[Shown]:
        async with self._turn:
            if self._clock.now() < self._latest or self._interval_s != self._lifecycle.interval_s:
                await self._begin()
        now = self._clock.now()
        while self._is_due(now):
            self._derive_first(now)
        return await self._rows.page(listed, wanted)

    async def _begin(self) -> None:
        self._latest = inf  # until all are derived: who is cancelled before leaves it to the next
        self._rows = OrderedRows(DEVICES, "state")
        self._interval_s = self._lifecycle.interval_s
        self._due, self._heap = {}, []
        self._table.watcher = self._changed
        for device in self._table.all():
            self._derive(device.id, self._clock.now())
            await pause_when_due()
        self._latest = self._clock.now()

    def _changed(self, id: str) -> None:
        now = self._clock.now()
        self._derive(id, now)
        for _ in range(DUE_PER_CHANGE):
            if self._is_due(now):
                self._derive_first(now)

    def _is_due(self, now: float) -> bool:
        return bool(self._heap) and self._heap[0][0] < now

    def _derive_first(self, now: float) -> None:
        time, id = heappop(self._heap)
        if self._due.get(id) == time:  # else an earlier time replaced it
            del self._due[id]
            self._derive(id, now)

    def _derive(self, id: str, now: float) -> None:
        self._latest = max(self._latest, now)
        device = self._table.find(id)
        if device is None:
            self._rows.remove(id)
            return
        self._rows.put(Shown(device, state_of(device, now=now, interval_s=self._interval_s)))
        due = changes_after(device, now=now, interval_s=self._interval_s)
        # A later time waits until the earlier one is due: reports put it off all the time.
        if due < self._due.get(id, inf):
            self._due[id] = due
            heappush(self._heap, (due, id))
