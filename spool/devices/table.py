"""
Devices as they are kept: all rows in memory, and durable before a change is answered.

Knows no policy and no protocol: who may enrol, and how it is answered, is decided in the gateway. Changes
that wait together are written in one transaction, their audit rows first. A change is a function of the row:
where another process wrote the row meanwhile, it is applied again to what that one wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
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
    TooManyDevices,
    Unenrolled,
    WriteConditions,
    of_known,
)
from spool.errors import KeyEnded, SpoolError, SpoolUnavailable
from spool.log.partial_reports import Expectation
from spool.registry.audit import AuditedChange, Auditor
from spool.turns.fair_turns import current_work


@dataclass(eq=False, kw_only=True)
class DeviceUpdate:
    """A change of a row that waits to be durable; `device` is the row after it."""

    change: DeviceChange
    device: Device
    expects: Expectations
    most: int | None  # devices that there may be for it to add one; None where it adds none
    audited: AuditedChange | None
    error: Exception | None = None

    def is_refused(self, id: str, refused: DevicesRefused) -> bool:
        """True if the update may not be written; its error says why to everybody who waits for it."""
        if refused.ended & self.expects:
            self.error = KeyEnded("the key under which it was sent has ended: nothing of it was kept")
        elif self.most is not None and id in refused.over:
            self.error = TooManyDevices()
        else:
            return False
        return True

    def apply(self, known: Device | None) -> Device | None:
        """Make the change again; the row as it is if the change is no longer possible."""
        try:
            self.device = self.change(known)
        except Exception as error:  # noqa: BLE001 - whatever the change says, who asked for it must hear it
            self.error = error
            return known
        self.error = None
        return self.device


class DeviceBatch:
    """Changes that wait for the same transaction."""

    def __init__(self) -> None:
        self.updates: dict[str, list[DeviceUpdate]] = {}
        self.names: dict[str, Expectations] = {}
        self.gone: set[str] = set()
        self.deleted: dict[str, int] = {}  # with how many changes of the row came before
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
        """Return the audited changes of the batch."""
        of_rows = [
            one.audited for updates in self.updates.values() for one in updates if one.audited is not None
        ]
        return [*of_rows, *self.deletions]

    def add(self, id: str, updates: Iterable[DeviceUpdate]) -> None:
        self.updates.setdefault(id, []).extend(updates)

    def note(self, name: str, expects: Expectations) -> None:
        self.names[name] = self.names.get(name, NO_EXPECTATIONS) | expects

    def refuse(self, refused: DevicesRefused) -> tuple[Collection[str], Collection[str]]:
        """Leave out what may not be written; whoever waits for it hears why. The ids and names that it was about."""
        ids = []
        for id, updates in list(self.updates.items()):
            may_stay = [not update.is_refused(id, refused) for update in updates]
            staying = list(compress(updates, may_stay))
            if len(staying) < len(updates):
                ids.append(id)
                self.gone.discard(id)
                self.updates[id] = staying
                if id in self.deleted:
                    self.deleted[id] = sum(may_stay[: self.deleted[id]])
            if not staying:
                del self.updates[id]
        names = [name for name, expects in self.names.items() if refused.ended & expects]
        for name in names:
            del self.names[name]
        return ids, names

    def apply(self, id: str, known: Device | None) -> Device | None:
        """The row after the changes that wait."""
        updates = self.updates.get(id, [])
        if id in self.deleted:
            known, updates = None, updates[self.deleted[id] :]
        for update in updates:
            known = update.apply(known)
        return known


def conditions_of(
    batches: Sequence[DeviceBatch], ids: Collection[str], names: Collection[str]
) -> WriteConditions:
    """Collect the conditions under which the changes of these rows and names are written."""
    updates = [(id, update) for batch in batches for id in ids for update in batch.updates.get(id, ())]
    of_names = [batch.names[name] for batch in batches for name in names if name in batch.names]
    bounds = {id: update.most for id, update in updates if update.most is not None}
    return WriteConditions(
        expects=NO_EXPECTATIONS.union(*(update.expects for _, update in updates), *of_names),
        bounded=frozenset(bounds),
        most=min(bounds.values(), default=None),
    )


# -- the table -----------------------------------------------------------------------------------------------


MAX_UNENROLLED = 1000
FLUSH_EVERY_S = 5.0
# Behind a batch, where somebody may commit who used far less than who began it: what comes meanwhile joins the next.
REST, MOST_REST_S = 4.0, 0.03
TOUCHES = 16  # of a row, while rows cannot be written: older ones are lost if another process writes the row

_log = logging.getLogger(__name__)


class DeviceTable:
    """
    All devices of one storage.

    `auditor` adds the audit rows of changes before they are written. `watcher` is called with the id of each row
    that changed in memory.
    """

    def __init__(self, rows: DeviceRows) -> None:
        self._rows = rows
        self._devices: dict[str, Device] = {}
        self._by_key: Counter[str] = Counter()  # how many of them a key enrolled
        self._durable: dict[str, Device] = {}
        self._unenrolled: dict[str, Unenrolled] = {}
        self._batch = DeviceBatch()
        self._writing: DeviceBatch | None = None  # the one before it, until its rows are written
        self._task: asyncio.Task[None] | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()  # of writing rows and of reading those of others
        self._closing = False
        self.version = 0  # grows with every write of rows
        self.auditor: Auditor | None = None
        self.watcher: Callable[[str], None] | None = None

    @classmethod
    async def open(cls, rows: DeviceRows) -> DeviceTable:
        table = cls(rows)
        devices, names = await rows.load()
        for device in devices:
            table._put_in_memory(device.id, device)
        table._durable = dict(table._devices)
        table._unenrolled = {name.name: name for name in sorted(names, key=lambda each: each.last_seen)}
        return table

    @property
    def is_shared(self) -> bool:
        """True if other processes change the same devices."""
        return self._rows.is_shared

    def find(self, id: str) -> Device | None:
        return self._devices.get(id)

    def all(self) -> list[Device]:
        return list(self._devices.values())

    def enrolled_by(self, key: str) -> int:
        """Return how many devices a key enrolled."""
        return self._by_key[key]

    def unenrolled(self) -> list[Unenrolled]:
        return list(self._unenrolled.values())

    def __len__(self) -> int:
        return len(self._devices)

    async def update(
        self,
        id: str,
        change: DeviceChange,
        audited: AuditedChange | None = None,
        *,
        expects: Collection[Expectation] = (),
        most: int | None = None,
    ) -> Device:
        """
        Change a row: visible at once, durable when this returns it. SpoolUnavailable: the row is as it was.

        `change` is given the newest row, None if there is none, and waits for nothing, so that two first
        contacts are one device. It is called again where another process wrote the row meanwhile; its error
        leaves the row as it is and is raised here. So does KeyEnded if `expects` fail, and TooManyDevices if
        the row is new and there are `most`, whatever other processes add at the same time.
        """
        if self._closing:
            raise SpoolUnavailable("the spool is closing")
        if most is not None and id not in self._devices and len(self._devices) >= most:
            raise TooManyDevices
        update = self._change(id, change, expects=frozenset(expects), most=most, audited=audited)
        batch = self._batch
        batch.waiting = True
        self._begin()
        await asyncio.shield(batch.done)
        if update.error is not None:
            raise update.error
        return update.device

    async def keep(self, device: Device, change: AuditedChange | None = None) -> None:
        """Replace a row, whatever it was: see `update`."""
        await self.update(device.id, lambda known: device, change)

    async def delete(self, ids: Collection[str], changes: Sequence[AuditedChange]) -> None:
        """Remove rows: gone at once, durable when this returns. SpoolUnavailable: they are as they were."""
        if self._closing:
            raise SpoolUnavailable("the spool is closing")
        for id in ids:
            self._put_in_memory(id, None)
        batch = self._batch
        batch.deleted.update({id: len(batch.updates.get(id, ())) for id in ids})
        batch.waiting = True
        batch.deletions += changes
        self._begin()
        await asyncio.shield(batch.done)

    def touch(
        self, id: str, change: Callable[[Device], Device], *, expects: Collection[Expectation] = ()
    ) -> None:
        """Change a row that is there, durable within seconds. For what may be lost: when it was last seen."""
        if id in self._devices:
            self._change(id, of_known(change), expects=frozenset(expects))
            self._flush_soon()

    def _change(
        self,
        id: str,
        change: DeviceChange,
        *,
        expects: Expectations,
        most: int | None = None,
        audited: AuditedChange | None = None,
    ) -> DeviceUpdate:
        device = change(self._devices.get(id))
        update = DeviceUpdate(change=change, device=device, expects=expects, most=most, audited=audited)
        self._put_in_memory(id, update.device)
        self._unenrolled_no_more(id)
        self._batch.add(id, [update])
        return update

    def note_unenrolled(
        self, name: str, *, key: str, now: float, expects: Collection[Expectation] = ()
    ) -> None:
        """
        Keep the name of a device that telemetry named and that could not be enrolled.

        Over the most the oldest name goes of the key that has the most of them.
        """
        known = self._unenrolled.pop(name, None)
        first, count = (known.first_seen, known.count) if known else (now, 0)
        self._unenrolled[name] = Unenrolled(
            name=name, first_seen=first, last_seen=now, count=count + 1, key=key
        )
        self._batch.note(name, frozenset(expects))
        self._batch.gone.discard(name)
        if len(self._unenrolled) > MAX_UNENROLLED:
            held = Counter(each.key for each in self._unenrolled.values())
            fullest = max(held, key=lambda each: (held[each], each == key))
            self._unenrolled_no_more(
                next(one.name for one in self._unenrolled.values() if one.key == fullest)
            )
        self._flush_soon()

    async def follow(self, ids: Collection[str] | None) -> None:
        """Take in what other processes wrote; `ids` are known to have been changed, None: any may have been."""
        async with self._turn:
            found = await self._rows.others(ids)
            names = await self._rows.names() if ids is None else None
            for id, kept in found.items():
                self._take(id, kept)
                if kept is not None and self._unenrolled.pop(id, None) is not None:
                    self._batch.names.pop(id, None)
            if names is not None:
                own = {name: self._unenrolled[name] for name in self._batch.names if name in self._unenrolled}
                others = {each.name: each for each in names if each.name not in self._batch.gone}
                self._unenrolled = {**others, **own}
        if found:
            self.version += 1
            self._news.set()

    async def changes(self) -> None:
        """Wait until rows have been written since the last call; for one reader."""
        await self._news.wait()
        self._news.clear()

    async def flush(self) -> None:
        """Write what was only touched; what cannot be written now is tried again later."""
        if self._batch:
            self._begin()
        if self._task is not None:
            await asyncio.shield(self._task)

    async def close(self) -> None:
        self._closing = True
        if self._flusher is not None:
            self._flusher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._flusher
        await self.flush()

    def _unenrolled_no_more(self, name: str) -> None:
        if self._unenrolled.pop(name, None) is not None:
            self._batch.names.pop(name, None)
            self._batch.gone.add(name)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all(), name="devices")

    def _flush_soon(self) -> None:
        """A timer that runs only while there is something to write."""
        if not self._closing and (self._flusher is None or self._flusher.done()):
            self._flusher = asyncio.create_task(self._flush_later(), name="devices seen")

    async def _flush_later(self) -> None:
        await asyncio.sleep(FLUSH_EVERY_S)
        if self._batch:
            self._begin()

    async def _write_all(self) -> None:
        await asyncio.sleep(0)  # changes of the same turn of the loop join
        work = current_work()  # of who asked for the first of them
        while self._batch:
            began = time.monotonic()
            batch, self._batch = self._batch, DeviceBatch()
            self._writing = batch
            try:
                try:
                    await self._write(batch)
                finally:
                    self._writing = None
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must get it
                if not isinstance(error, SpoolError):
                    _log.exception("devices could not be written", extra={"action": "devices_fault"})
                self._failed(batch, error)
                if not batch.waiting:
                    return
            else:
                batch.done.set_result(None)
                if batch.ids:
                    self._news.set()
                if self._batch and work is not None and work.expects_lighter():
                    await asyncio.sleep(min(MOST_REST_S, REST * (time.monotonic() - began)))

    async def _write(self, batch: DeviceBatch) -> None:
        if batch.changes and self.auditor is not None:
            await self._leave_out_ended(batch)  # of what is not done nothing is audited
            await self.auditor(batch.changes)
        deleted = [
            id for id in batch.deleted if id not in self._devices
        ]  # others were enrolled again meanwhile
        async with self._turn:
            moved = await self._put(batch, batch.ids, batch.names, batch.gone, deleted)
            for id in deleted:
                self._durable.pop(id, None)
            while moved:
                for id, newest in moved.items():
                    self._take(id, newest)
                moved = await self._put(batch, moved.keys())
            self._writing = None  # what is read from here on has these changes
        await self._rows.outlast_commits()  # meanwhile others' changes are read

    async def _leave_out_ended(self, batch: DeviceBatch) -> None:
        wanted = self._wanted([batch], batch.ids, batch.names, batch.gone, batch.deleted)
        ended = await self._rows.ended(wanted)
        if ended:
            self._refuse(batch, DevicesRefused(ended=ended))

    def _wanted(
        self,
        batches: Sequence[DeviceBatch],
        ids: Collection[str],
        names: Collection[str],
        gone: Collection[str],
        deleted: Collection[str],
    ) -> DeviceWrite:
        """These rows and names as they are in memory."""
        devices = [self._devices[id] for id in ids if id in self._devices]
        noted = [self._unenrolled[name] for name in names if name in self._unenrolled]
        conditions = conditions_of(batches, [row.id for row in devices], [one.name for one in noted])
        is_answered = any(batch.waiting for batch in batches)
        return DeviceWrite(
            devices=devices,
            names=noted,
            gone=gone,
            deleted=deleted,
            conditions=conditions,
            is_answered=is_answered,
        )

    async def _put(
        self,
        batch: DeviceBatch,
        ids: Collection[str],
        names: Collection[str] = (),
        gone: Collection[str] = (),
        deleted: Collection[str] = (),
    ) -> Mapping[str, Device | None]:
        """Write what is in a batch of these rows and names; what may not be written is left out of it."""
        while True:
            # A row is written with what waits for the next batch, too.
            wanted = self._wanted([batch, self._batch], ids, names, gone, deleted)
            try:
                moved = await self._rows.write(wanted)
            except DevicesRefused as refused:
                self._refuse(batch, refused)
            else:
                break
        self.version += 1
        self._durable.update({row.id: row for row in wanted.devices if row.id not in moved})
        return moved

    def _refuse(self, batch: DeviceBatch, refused: DevicesRefused) -> None:
        for one in (batch, self._batch):
            ids, names = one.refuse(refused)
            for id in ids:
                self._take(id, self._durable.get(id))
            for name in names:  # what others noted of it is read again
                self._unenrolled.pop(name, None)

    def _take(self, id: str, kept: Device | None) -> None:
        """Put a row into memory as it is kept, with the changes on top that are not written yet."""
        device = kept
        for batch in (self._writing, self._batch):
            if batch is not None:
                device = batch.apply(id, device)
        if kept is None:
            self._durable.pop(id, None)
        else:
            self._durable[id] = kept
        self._put_in_memory(id, device)

    def _put_in_memory(self, id: str, device: Device | None) -> None:
        """Without a device the row goes."""
        before = self._devices.get(id)
        if before is not None:
            self._by_key[before.enrolled_by] -= 1
        if device is None:
            self._devices.pop(id, None)
        else:
            self._devices[id] = device
            self._by_key[device.enrolled_by] += 1
        if self.watcher is not None:
            self.watcher(id)

    def _failed(self, batch: DeviceBatch, error: Exception) -> None:
        for name, expects in batch.names.items():
            self._batch.note(name, expects)
        self._batch.gone |= batch.gone - batch.names.keys()
        if not batch.waiting:  # nobody waits for an answer: tried again with the next
            for id, updates in batch.updates.items():
                if id not in self._batch.deleted:
                    later = self._batch.updates.pop(id, [])
                    self._batch.add(id, [*updates, *later][-TOUCHES:])
            _log.warning("devices were not written: %s", error, extra={"action": "devices_not_written"})
            self._flush_soon()
            return
        for id in {*batch.ids, *batch.deleted} - self._batch.deleted.keys():
            self._take(id, self._durable.get(id))
        known = isinstance(error, SpoolError)
        batch.done.set_exception(error if known else SpoolUnavailable("devices cannot be written"))
        batch.done.exception()  # heard: who waited may have been cancelled
