"""Changes of devices that wait to be written together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

from spool.devices.device import Device, DeviceChange
from spool.devices.device_rows import (
    NO_EXPECTATIONS,
    DevicesRefused,
    Expectations,
    TooManyDevices,
    WriteConditions,
)
from spool.errors import KeyEnded
from spool.registry.audit import AuditedChange


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
