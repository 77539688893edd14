"""
The table of devices, all in memory. A change is durable before it is acknowledged.

The gateway decides who may enrol. Changes that wait are written together, after their audit rows. A change is
a function of the row, so it can be applied again if another process has written the row.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from spool.devices.device import (
    NO_EXPECTATIONS,
    Device,
    DeviceChange,
    DeviceRows,
    DevicesRefused,
    DeviceWrite,
    Expectations,
    TokenUsedUp,
    TooManyDevices,
    UnenrolledName,
    WriteConditions,
    change_for_existing_device,
)
from spool.errors import KeyEnded, SpoolError, SpoolUnavailable
from spool.log.partial_reports import ExpectedVersion
from spool.registry.audit import AuditedChange, Auditor
from spool.turns.fair_turns import current_work


@dataclass(eq=False, kw_only=True)
class DeviceUpdate:
    """One change of a device that is not durable yet. `device`: the row after the change."""

    change: DeviceChange
    device: Device
    expects: Expectations
    most: int | None  # limit of devices, if the change may add a device
    # enrolment token and its maximum, if any
    token: tuple[str, int] | None
    audited: AuditedChange | None
    error: Exception | None = None

    def set_error_if_refused(self, id: str, refusal: DevicesRefused) -> bool:
        """
        If `refusal` applies to this change, set `error`, so that the waiting caller receives it. Return
        whether it applies.
        """
        if refusal.ended & self.expects:
            self.error = KeyEnded("the key of this request has ended, so nothing was stored")
        elif self.most is not None and id in refusal.over:
            self.error = TooManyDevices()
        elif self.token is not None and id in refusal.unpaid:
            self.error = TokenUsedUp()
        else:
            return False
        return True

    def apply_change(self, known_device: Device | None) -> Device | None:
        """
        Apply the change to `known_device`. Return the new row, or `known_device` if the change raises, and
        store its error.
        """
        try:
            self.device = self.change(known_device)
        except Exception as error:  # noqa: BLE001 - whatever the change says, who asked for it must hear it
            self.error = error
            return known_device
        self.error = None
        return self.device


class DeviceBatch:
    """The changes that one transaction writes."""

    def __init__(self) -> None:
        self.updates: dict[str, list[DeviceUpdate]] = {}
        self.names: dict[str, Expectations] = {}
        self.gone: set[str] = set()
        # by id, the number of updates that preceded the deletion
        self.deleted: dict[str, int] = {}
        self.deletions: list[AuditedChange] = []
        self.waiting = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __bool__(self) -> bool:
        return bool(self.waiting or self.updates or self.names or self.gone or self.deleted)

    @property
    def ids(self) -> Collection[str]:
        return self.updates.keys()

    @property
    def changes(self) -> Sequence[AuditedChange]:
        of_rows = [
            update.audited
            for updates in self.updates.values()
            for update in updates
            if update.audited is not None
        ]
        return [*of_rows, *self.deletions]

    def add_updates(self, id: str, updates: Iterable[DeviceUpdate]) -> None:
        self.updates.setdefault(id, []).extend(updates)

    def add_unenrolled_name(self, name: str, expected_versions: Expectations) -> None:
        self.names[name] = self.names.get(name, NO_EXPECTATIONS) | expected_versions

    def remove_refused_changes(self, refusal: DevicesRefused) -> tuple[Collection[str], Collection[str]]:
        """
        Remove the changes that were refused, and set their errors. Return the ids and names of the removed
        changes.
        """
        ids = []
        for id, updates in list(self.updates.items()):
            may_stay = [not update.set_error_if_refused(id, refusal) for update in updates]
            staying = list(compress(updates, may_stay))
            if len(staying) < len(updates):
                ids.append(id)
                self.gone.discard(id)
                self.updates[id] = staying
                if id in self.deleted:
                    self.deleted[id] = sum(may_stay[: self.deleted[id]])
            if not staying:
                del self.updates[id]
        names = [name for name, expects in self.names.items() if refusal.ended & expects]
        for name in names:
            del self.names[name]
        return ids, names

    def apply_updates(self, id: str, known_device: Device | None) -> Device | None:
        updates = self.updates.get(id, [])
        if id in self.deleted:
            known_device, updates = None, updates[self.deleted[id] :]
        for update in updates:
            known_device = update.apply_change(known_device)
        return known_device


def merge_write_conditions(
    batches: Sequence[DeviceBatch], ids: Collection[str], names: Collection[str]
) -> WriteConditions:
    updates = [(id, update) for batch in batches for id in ids for update in batch.updates.get(id, ())]
    of_names = [batch.names[name] for batch in batches for name in names if name in batch.names]
    bounds = {id: update.most for id, update in updates if update.most is not None}
    return WriteConditions(
        expects=NO_EXPECTATIONS.union(*(update.expects for _, update in updates), *of_names),
        bounded=frozenset(bounds),
        most=min(bounds.values(), default=None),
        tokens=dict(update.token for _, update in updates if update.token is not None),
    )


# -- the table -----------------------------------------------------------------------------------------------


MAX_UNENROLLED = 1000
FLUSH_EVERY_S = 5.0
# If a sender with far less use waits to commit, pause for REST durations of a batch, up to MOST_REST_S.
# Changes meanwhile join the next batch.
REST, MOST_REST_S = 4.0, 0.03
# Maximum changes of one device that are kept after a failed write. Older changes are lost if another process wrote
# its row meanwhile.
TOUCHES = 16

_log = logging.getLogger(__name__)


class DeviceTable:
    """
    The devices in memory, and the changes that wait to be written. `auditor` adds audit rows before changes
    are written. `watchers` are called with the id of each changed device.
    """

    def __init__(self, device_rows: DeviceRows) -> None:
        self._rows = device_rows
        self._devices: dict[str, Device] = {}
        self._by_key: Counter[str] = Counter()  # enrolled devices by key
        self._by_token: Counter[str] = Counter()  # devices by enrolment token
        self._by_hardware: defaultdict[str, set[str]] = defaultdict(set)  # devices by hardware id
        self._durable: dict[str, Device] = {}
        self._unenrolled: dict[str, UnenrolledName] = {}
        self._batch = DeviceBatch()
        # the batch that is being written, until all its rows are written
        self._writing: DeviceBatch | None = None
        self._task: asyncio.Task[None] | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()  # lock held while rows are written or other processes' rows are read
        self._closing = False
        self.version = 0  # a number that grows with every write
        self.auditor: Auditor | None = None
        self.watchers: list[Callable[[str], None]] = []

    @classmethod
    async def open(cls, device_rows: DeviceRows) -> DeviceTable:
        table = cls(device_rows)
        devices, names = await device_rows.load()
        for device in devices:
            table._put_in_memory(device.id, device)
        table._durable = dict(table._devices)
        table._unenrolled = {
            name.name: name for name in sorted(names, key=lambda unenrolled: unenrolled.last_seen)
        }
        return table

    @property
    def is_shared(self) -> bool:
        return self._rows.is_shared

    def find(self, id: str) -> Device | None:
        return self._devices.get(id)

    def all(self) -> list[Device]:
        return list(self._devices.values())

    def count_enrolled(self, key: str) -> int:
        return self._by_key[key]

    def count_token_uses(self, token: str) -> int:
        return self._by_token[token]

    def devices_with_hardware(self, hardware_id: str) -> list[Device]:
        ids = self._by_hardware.get(hardware_id, ()) if hardware_id else ()
        return [self._devices[id] for id in sorted(ids)]

    def unenrolled_names(self) -> list[UnenrolledName]:
        return list(self._unenrolled.values())

    def __len__(self) -> int:
        return len(self._devices)

    async def update(
        self,
        id: str,
        change: DeviceChange,
        audited: AuditedChange | None = None,
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        max_devices: int | None = None,
        token: tuple[str, int] | None = None,
    ) -> Device:
        """
        Change a device. The change is visible at once, and durable when this returns. If this raises
        SpoolUnavailable, the change is undone.

        `change` gets the newest row or None. It is called again if another process has written the row. It
        must not wait, so that two first contacts create one device. If it raises, nothing changes, and this
        raises the same error.

        Raises KeyEnded if `expected_versions` fail, TooManyDevices for a new device beyond `max_devices` devices of all
        processes, and TokenUsedUp beyond the maximum in `token` (a token and its maximum).
        """
        if self._closing:
            raise SpoolUnavailable("the storage is closing: try again")
        if max_devices is not None and id not in self._devices and len(self._devices) >= max_devices:
            raise TooManyDevices
        update = self._apply_change_and_queue_it(
            id,
            change,
            expected_versions=frozenset(expected_versions),
            max_devices=max_devices,
            token=token,
            audited=audited,
        )
        batch = self._batch
        batch.waiting = True
        self._start_write_task()
        await asyncio.shield(batch.done)
        if update.error is not None:
            raise update.error
        return update.device

    async def replace_row(self, device: Device, change: AuditedChange | None = None) -> None:
        """Replace the row of a device, whatever it is now. Waits and raises as `update` does."""
        await self.update(device.id, lambda known: device, change)

    async def delete(self, ids: Collection[str], changes: Sequence[AuditedChange]) -> None:
        """
        Delete devices, with an audit row for each change. They disappear at once, and are durably deleted
        when this returns. If this raises SpoolUnavailable, they reappear.
        """
        if self._closing:
            raise SpoolUnavailable("the storage is closing: try again")
        for id in ids:
            self._put_in_memory(id, None)
        batch = self._batch
        batch.deleted.update({id: len(batch.updates.get(id, ())) for id in ids})
        batch.waiting = True
        batch.deletions += changes
        self._start_write_task()
        await asyncio.shield(batch.done)

    def change_and_write_soon(
        self, id: str, change: Callable[[Device], Device], *, expectations: Collection[ExpectedVersion] = ()
    ) -> None:
        """
        Change a device without waiting. The change is written within seconds, and a crash may lose it, so it
        must be data such as the last contact.
        """
        if id in self._devices:
            self._apply_change_and_queue_it(
                id, change_for_existing_device(change), expected_versions=frozenset(expectations)
            )
            self._start_flush_timer()

    def _apply_change_and_queue_it(
        self,
        id: str,
        change: DeviceChange,
        *,
        expected_versions: Expectations,
        max_devices: int | None = None,
        token: tuple[str, int] | None = None,
        audited: AuditedChange | None = None,
    ) -> DeviceUpdate:
        before = self._devices.get(id)
        device = change(before)
        if token is not None:
            is_new_use = device.token == token[0] and (before is None or before.token != token[0])
            if is_new_use and self._by_token[token[0]] >= token[1]:
                raise TokenUsedUp
        update = DeviceUpdate(
            change=change,
            device=device,
            expects=expected_versions,
            most=max_devices,
            token=token,
            audited=audited,
        )
        self._put_in_memory(id, update.device)
        self._delete_unenrolled_name(id)
        self._batch.add_updates(id, [update])
        return update

    def store_unenrolled_name(
        self, name: str, *, key: str, now: float, expected_versions: Collection[ExpectedVersion] = ()
    ) -> None:
        """
        Store a device name that could not be enrolled. Beyond MAX_UNENROLLED names, the oldest name of the
        key with the most names is deleted.
        """
        known = self._unenrolled.pop(name, None)
        first, count = (known.first_seen, known.count) if known else (now, 0)
        self._unenrolled[name] = UnenrolledName(
            name=name, first_seen=first, last_seen=now, count=count + 1, key=key
        )
        self._batch.add_unenrolled_name(name, frozenset(expected_versions))
        self._batch.gone.discard(name)
        if len(self._unenrolled) > MAX_UNENROLLED:
            held = Counter(unenrolled.key for unenrolled in self._unenrolled.values())
            fullest = max(held, key=lambda holder: (held[holder], holder == key))
            self._delete_unenrolled_name(
                next(
                    unenrolled_name.name
                    for unenrolled_name in self._unenrolled.values()
                    if unenrolled_name.key == fullest
                )
            )
        self._start_flush_timer()

    async def read_changes_of_other_processes(self, ids: Collection[str] | None) -> None:
        """Read the rows that other processes wrote."""
        async with self._turn:
            changed_rows = await self._rows.rows_changed_elsewhere(ids)
            names = await self._rows.unenrolled_names() if ids is None else None
            for id, stored_row in changed_rows.items():
                self._remember_stored_with_pending_changes(id, stored_row)
                if stored_row is not None and self._unenrolled.pop(id, None) is not None:
                    self._batch.names.pop(id, None)
            if names is not None:
                own = {name: self._unenrolled[name] for name in self._batch.names if name in self._unenrolled}
                other_rows = {row.name: row for row in names if row.name not in self._batch.gone}
                self._unenrolled = {**other_rows, **own}
        if changed_rows:
            self.version += 1
            self._news.set()

    async def wait_for_changes(self) -> None:
        await self._news.wait()
        self._news.clear()

    async def flush(self) -> None:
        """Write the waiting changes now. If this fails, they are written later."""
        if self._batch:
            self._start_write_task()
        if self._task is not None:
            await asyncio.shield(self._task)

    async def close(self) -> None:
        self._closing = True
        if self._flusher is not None:
            self._flusher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._flusher
        await self.flush()

    def _delete_unenrolled_name(self, name: str) -> None:
        if self._unenrolled.pop(name, None) is not None:
            self._batch.names.pop(name, None)
            self._batch.gone.add(name)

    def _start_write_task(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all(), name="devices")

    def _start_flush_timer(self) -> None:
        if not self._closing and (self._flusher is None or self._flusher.done()):
            self._flusher = asyncio.create_task(self._wait_and_flush(), name="devices seen")

    async def _wait_and_flush(self) -> None:
        await asyncio.sleep(FLUSH_EVERY_S)
        if self._batch:
            self._start_write_task()

    async def _write_all(self) -> None:
        await asyncio.sleep(0)  # changes of other tasks that are ready to run join the batch
        work = current_work()  # the request that made the first change
        while self._batch:
            began = time.monotonic()
            batch, self._batch = self._batch, DeviceBatch()
            self._writing = batch
            try:
                try:
                    await self._write_batch(batch)
                finally:
                    self._writing = None
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must get it
                if not isinstance(error, SpoolError):
                    _log.exception("writing devices failed unexpectedly", extra={"action": "devices_fault"})
                self._requeue_or_fail(batch, error)
                if not batch.waiting:
                    return
            else:
                batch.done.set_result(None)
                if batch.ids:
                    self._news.set()
                if self._batch and work is not None and work.has_party_with_far_less_use_submitted_lately():
                    await asyncio.sleep(min(MOST_REST_S, REST * (time.monotonic() - began)))

    async def _write_batch(self, batch: DeviceBatch) -> None:
        if batch.changes and self.auditor is not None:
            # rejected changes must not be audited
            await self._refuse_ended_keys(batch)
            await self.auditor(batch.changes)
        # a deleted device that is in memory was enrolled again
        deleted = [id for id in batch.deleted if id not in self._devices]
        async with self._turn:
            overwritten = await self._write_unrefused_rows(batch, batch.ids, batch.names, batch.gone, deleted)
            for id in deleted:
                self._durable.pop(id, None)
            while overwritten:
                for id, newest in overwritten.items():
                    self._remember_stored_with_pending_changes(id, newest)
                overwritten = await self._write_unrefused_rows(batch, overwritten.keys())
            self._writing = None  # rows read from now on contain this batch
        # outside the lock, so that other processes' rows can be read
        await self._rows.wait_for_running_commits()

    async def _refuse_ended_keys(self, batch: DeviceBatch) -> None:
        device_write = self._rows_to_write([batch], batch.ids, batch.names, batch.gone, batch.deleted)
        ended = await self._rows.failed_expectations(device_write)
        if ended:
            self._refuse_changes(batch, DevicesRefused(ended=ended))

    def _rows_to_write(
        self,
        batches: Sequence[DeviceBatch],
        ids: Collection[str],
        names: Collection[str],
        names_to_delete: Collection[str],
        ids_to_delete: Collection[str],
    ) -> DeviceWrite:
        devices = [self._devices[id] for id in ids if id in self._devices]
        noted = [self._unenrolled[name] for name in names if name in self._unenrolled]
        conditions = merge_write_conditions(
            batches, [row.id for row in devices], [unenrolled.name for unenrolled in noted]
        )
        is_answered = any(batch.waiting for batch in batches)
        return DeviceWrite(
            devices=devices,
            names=noted,
            gone=names_to_delete,
            deleted=ids_to_delete,
            conditions=conditions,
            is_answered=is_answered,
        )

    async def _write_unrefused_rows(
        self,
        batch: DeviceBatch,
        ids: Collection[str],
        names: Collection[str] = (),
        names_to_delete: Collection[str] = (),
        ids_to_delete: Collection[str] = (),
    ) -> Mapping[str, Device | None]:
        """
        Write a batch's rows. Refused changes are removed from it, and the others written. Return the rows
        that another process had written.
        """
        while True:
            # Rows in memory already have the changes of the next batch, so its conditions apply as well.
            device_write = self._rows_to_write(
                [batch, self._batch], ids, names, names_to_delete, ids_to_delete
            )
            try:
                overwritten = await self._rows.write(device_write)
            except DevicesRefused as refused:
                self._refuse_changes(batch, refused)
            else:
                break
        self.version += 1
        self._durable.update({row.id: row for row in device_write.devices if row.id not in overwritten})
        return overwritten

    def _refuse_changes(self, batch: DeviceBatch, refusal: DevicesRefused) -> None:
        for changed_batch in (batch, self._batch):
            ids, names = changed_batch.remove_refused_changes(refusal)
            for id in ids:
                self._remember_stored_with_pending_changes(id, self._durable.get(id))
            for name in names:  # other processes stored these names, so they are read again
                self._unenrolled.pop(name, None)

    def _remember_stored_with_pending_changes(self, id: str, stored: Device | None) -> None:
        device = stored
        for batch in (self._writing, self._batch):
            if batch is not None:
                device = batch.apply_updates(id, device)
        if stored is None:
            self._durable.pop(id, None)
        else:
            self._durable[id] = stored
        self._put_in_memory(id, device)

    def _put_in_memory(self, id: str, device: Device | None) -> None:
        before = self._devices.get(id)
        if before is not None:
            self._by_key[before.enrolled_by] -= 1
            self._by_token[before.token] -= 1
            self._by_hardware[before.hardware_id].discard(id)
            if not self._by_hardware[before.hardware_id]:
                del self._by_hardware[before.hardware_id]
        if device is None:
            self._devices.pop(id, None)
        else:
            self._devices[id] = device
            self._by_key[device.enrolled_by] += 1
            self._by_token[device.token] += 1
            if device.hardware_id:
                self._by_hardware[device.hardware_id].add(id)
        for changed in self.watchers:
            changed(id)

    def _requeue_or_fail(self, batch: DeviceBatch, error: Exception) -> None:
        for name, expects in batch.names.items():
            self._batch.add_unenrolled_name(name, expects)
        self._batch.gone |= batch.gone - batch.names.keys()
        if not batch.waiting:  # no caller waits, so retry with the next batch
            for id, updates in batch.updates.items():
                if id not in self._batch.deleted:
                    later = self._batch.updates.pop(id, [])
                    self._batch.add_updates(id, [*updates, *later][-TOUCHES:])
            _log.warning(
                "devices were not written, will retry: %s", error, extra={"action": "devices_not_written"}
            )
            self._start_flush_timer()
            return
        for id in {*batch.ids, *batch.deleted} - self._batch.deleted.keys():
            self._remember_stored_with_pending_changes(id, self._durable.get(id))
        known = isinstance(error, SpoolError)
        batch.done.set_exception(error if known else SpoolUnavailable("the devices could not be written"))
        batch.done.exception()  # asyncio logs it otherwise if the waiter was cancelled
