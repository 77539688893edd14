"""The rows of the device list: each device with its current state, in memory and sorted."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any, Generic, TypeVar

from gateway.devices.fleet.matching import NOBODY, ExpectedMachines
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.http.lists import ListDefinition, MemoryRows, PageQuery, Row
from gateway.operations.devices.devices import DEVICES, DeviceWithState
from spool.clock import Clock
from spool.listing import DESCENDING, ListPage, SortValue, limited_choices, page_bounds, sort_rank
from spool.turns.fair_turns import pause_if_step_was_long

# number of overdue states to update with each changed row, so that few remain for a page request
DUE_PER_CHANGE = 4

T = TypeVar("T")
Ids = list[SortValue]


class ListedDevices:
    """
    Rows that follow the device table and the clock, so that a page request need not compute the state
    of every device.

    The first page request builds the rows. They are built again after the clock was set back, after a change of
    the heartbeat interval, and after an import of the inventory.
    """

    def __init__(self, lifecycle: DeviceLifecycle, clock: Clock) -> None:
        self._lifecycle = lifecycle
        self._table = lifecycle.table
        self._clock = clock
        self._rows: OrderedRows[DeviceWithState] = OrderedRows(DEVICES, "state")
        self._turn = asyncio.Lock()
        # time and inventory on which the states of all devices depend
        self._basis: tuple[float, ExpectedMachines] = 0.0, NOBODY
        self._latest = inf  # the latest time for which a state was computed
        # device id -> time after which its state must be computed again
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    async def page(
        self, list_definition: ListDefinition[DeviceWithState], page_query: PageQuery
    ) -> ListPage[DeviceWithState]:
        async with self._turn:
            if self._clock.now() < self._latest or self._basis != self._interval_and_expected_machines():
                await self._build_rows()
        now = self._clock.now()
        while self._has_due_row(now):
            self._derive_earliest_due_row(now)
        return await self._rows.page(list_definition, page_query)

    async def _build_rows(self) -> None:
        # `_latest` is infinite until all states are computed. So if this request is cancelled, the next
        # request builds the rows again.
        self._latest = inf
        self._rows = OrderedRows(DEVICES, "state")
        self._basis = self._interval_and_expected_machines()
        self._due, self._heap = {}, []
        if self._refresh_row_and_some_due_rows not in self._table.watchers:
            self._table.watchers.append(self._refresh_row_and_some_due_rows)
        for device in self._table.all():
            self._derive_row(device.id, self._clock.now())
            await pause_if_step_was_long()
        self._latest = self._clock.now()

    def _interval_and_expected_machines(self) -> tuple[float, ExpectedMachines]:
        return self._lifecycle.interval_s, self._lifecycle.expected()

    def _refresh_row_and_some_due_rows(self, id: str) -> None:
        now = self._clock.now()
        self._derive_row(id, now)
        for _ in range(DUE_PER_CHANGE):
            if self._has_due_row(now):
                self._derive_earliest_due_row(now)

    def _has_due_row(self, now: float) -> bool:
        return bool(self._heap) and self._heap[0][0] < now

    def _derive_earliest_due_row(self, now: float) -> None:
        time, id = heappop(self._heap)
        if self._due.get(id) == time:  # ignore this entry of the heap if an earlier time has replaced it
            del self._due[id]
            self._derive_row(id, now)

    def _derive_row(self, id: str, now: float) -> None:
        self._latest = max(self._latest, now)
        device = self._table.find(id)
        if device is None:
            self._rows.remove(id)
            return
        state = self._lifecycle.machine_state(device)
        self._rows.put(DeviceWithState(device, state))
        due_at = state.changes_at
        # The heap gets only times that are earlier than the entered time. Every report postpones the time, so
        # a later time is entered only when the earlier time is due.
        if due_at < self._due.get(id, inf):
            self._due[id] = due_at
            heappush(self._heap, (due_at, id))


class OrderedRows(Generic[Row]):
    """
    The rows of a list, sorted by every sort key that was requested so far.

    `group` names a filter with one value per row. A page without filters, or with only this filter, reads at
    most the page's limit from each group. A page with other filters checks every row of the groups. The first
    page for a sort key sorts all rows once.
    """

    def __init__(self, list_definition: ListDefinition[Row], group: str) -> None:
        self._identity = _require_function(list_definition.identity.value)
        self._values = {name: _require_function(sort.value) for name, sort in list_definition.sorts.items()}
        self._group = group
        self._groups_of = _require_function(list_definition.filters[group].values)
        self._value_readers = {
            name: _require_function(by.values)
            for name, by in list_definition.filters.items()
            if by.has_listed_values
        }
        self._rows: dict[SortValue, Row] = {}
        self._orders: dict[str, dict[str, Ids]] = {}  # sort key -> group -> device ids in order
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in self._value_readers}

    def put(self, row: Row) -> None:
        """Add a row, or replace the row with the same identity."""
        self._replace_row(self._identity(row), row)

    def remove(self, identity: SortValue) -> None:
        self._replace_row(identity, None)

    async def page(self, list_definition: ListDefinition[Row], page_query: PageQuery) -> ListPage[Row]:
        order = self._sorted_ids_by_group(page_query.sort_key)
        names = page_query.filters.get(self._group, tuple(order))
        groups = [order[name] for name in names if name in order]
        filter_values = {name: limited_choices(counts) for name, counts in self._counts.items()}
        if page_query.filters.keys() - {self._group}:
            rows = [self._rows[identity] for ids in groups for identity in ids]
            return await MemoryRows(rows, known=filter_values).page(list_definition, page_query)
        falling = page_query.sort_order == DESCENDING
        backward = page_query.position is not None and page_query.position.backward
        key = partial(self._sort_key_of_row, page_query.sort_key)
        near: Ids = []
        before = after = False
        for ids in groups:
            start, end = page_bounds(
                ids, key, page_query.position, page_query.limit, from_end=falling != backward
            )
            near += ids[start:end]
            before = before or start > 0
            after = after or end < len(ids)
        if falling:
            before, after = after, before
        total = sum(map(len, groups))
        page = await MemoryRows([self._rows[identity] for identity in near], known=filter_values).page(
            list_definition, page_query
        )
        return replace(page, before=page.before or before, after=page.after or after, total=total)

    def _replace_row(self, identity: SortValue, row: Row | None) -> None:
        old = self._rows.get(identity)
        sort_keys = [
            name
            for name in self._orders
            if self._group_and_sort_value_of_row(name, old) != self._group_and_sort_value_of_row(name, row)
        ]
        if old is not None:
            # the values of the old row locate its id, so delete the id before replacing the row
            for name in sort_keys:
                ids, key = self._orders[name][self._row_group(old)], partial(self._sort_key_of_row, name)
                del ids[bisect_left(ids, key(identity), key=key)]
            del self._rows[identity]
        if row is not None:
            self._rows[identity] = row
            for name in sort_keys:
                insort(
                    self._orders[name][self._row_group(row)],
                    identity,
                    key=partial(self._sort_key_of_row, name),
                )
        self._update_counts(old, row)

    def _update_counts(self, row_before: Row | None, row: Row | None) -> None:
        for name, values in self._value_readers.items():
            old_values, new_values = (
                () if row_before is None else values(row_before),
                () if row is None else values(row),
            )
            if old_values == new_values:
                continue
            counts = self._counts[name]
            counts.update(new_values)
            for value in old_values:
                counts[value] -= 1
                if not counts[value]:
                    del counts[value]

    def _sorted_ids_by_group(self, sort_key: str) -> Mapping[str, Ids]:
        if sort_key not in self._orders:
            order = self._orders[sort_key] = defaultdict(list)
            for identity in sorted(self._rows, key=partial(self._sort_key_of_row, sort_key)):
                order[self._row_group(self._rows[identity])].append(identity)
        return self._orders[sort_key]

    def _sort_key_of_row(self, sort_key: str, identity: SortValue) -> tuple[Any, ...]:
        return sort_rank(self._values[sort_key](self._rows[identity])), identity

    def _group_and_sort_value_of_row(self, sort_key: str, row: Row | None) -> tuple[str, SortValue] | None:
        return None if row is None else (self._row_group(row), self._values[sort_key](row))

    def _row_group(self, row: Row) -> str:
        [group] = self._groups_of(row)
        return group


def _require_function(value: Callable[[Row], T] | None) -> Callable[[Row], T]:
    if value is None:
        raise TypeError("each sort key and filter of the list of devices needs a function")
    return value
