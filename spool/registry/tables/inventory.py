"""The inventory of machines that should report: one document, replaced by each import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from spool.errors import Invalid, NotAllowed, RegistryDamaged
from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import split_into_portions
from spool.registry.following import DOCUMENTS
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.turns.threads import prepare_types_for_msgspec

KIND = "fleet_inventory"
ID = "current"


class Machine(msgspec.Struct, frozen=True, array_like=True):
    """
    A machine in the list of an MDM (device management system). Empty texts are unknown, but the serial number
    or the hostname is always known.

    `user`: as records contain the name. `last_seen`: last check-in at the MDM, in epoch seconds.
    `seen_before`: that of an earlier list.
    """

    serial: str = ""
    hostname: str = ""
    user: str = ""
    team: str = ""
    os: str = ""
    last_seen: float | None = None
    seen_before: float | None = None

    def __post_init__(self) -> None:
        # few teams and systems occur in many machines, which share their texts
        for name in ("team", "os"):
            msgspec.structs.force_setattr(self, name, sys.intern(getattr(self, name)))

    @property
    def key(self) -> tuple[str, str]:
        """Return the serial number or, without one, the hostname, in lower case."""
        serial = self.serial.casefold()
        return (serial, "") if serial else ("", self.hostname.casefold())


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The newest list. `source`: the MDM, such as jamf. `imported`: epoch seconds."""

    source: str
    imported: float
    imported_by: str
    machines: tuple[Machine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryChange:
    machines: int
    added: int
    removed: int


prepare_types_for_msgspec(Inventory)
_decode_machines = msgspec.json.Decoder(list[Machine]).decode


class InventoryTable:
    announced_subjects = ((DOCUMENTS, KIND),)

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self.current: Inventory | None = None
        # runs in the thread that reads or replaces a list, before the list is the current one
        self.prepare_list: Callable[[Inventory | None], object] = lambda _: None

    async def load(self) -> None:
        def read_and_prepare(registry_rows: RegistryRows) -> Inventory | None:
            inventory = _read_inventory(registry_rows)
            self.prepare_list(inventory)
            return inventory

        self.current = await self._changes.read(read_and_prepare)

    async def replace_machines(
        self, machines: Sequence[Machine], *, source: str, confirmed: bool, actor: Actor
    ) -> InventoryChange:
        """
        Replace the list. Raises Invalid for an empty list. Unless `confirmed`, raises NotAllowed if more than
        a third of the machines are missing, because an incomplete list would hide machines.
        """
        if not machines:
            raise Invalid("the list has no machines; the inventory was not changed")
        inventory = Inventory(
            source=source, imported=self._changes.now(), imported_by=actor.name, machines=tuple(machines)
        )

        def replace_inventory(registry_rows: RegistryRows) -> InventoryChange:
            nonlocal inventory
            # not on the event loop, which would wait while the keys of a long list are built
            keys = {machine.key for machine in machines}
            before = _read_inventory(registry_rows)
            known = {machine.key: machine for machine in before.machines} if before else {}
            change = InventoryChange(
                machines=len(keys), added=len(keys - known.keys()), removed=len(known.keys() - keys)
            )
            if not confirmed and change.removed * 3 > len(known):
                raise NotAllowed(
                    f"the list lacks {change.removed} of {len(known)} machines of the inventory. If it is "
                    "complete, import it again with --confirm (confirm=true)"
                )
            followed = (_keep_earlier_check_in(known.get(machine.key), machine) for machine in machines)
            inventory = replace(inventory, machines=tuple(followed))
            self.prepare_list(inventory)
            registry_rows.put_document(KIND, ID, _stored_inventory(inventory))
            shown = {"source": source, **msgspec.to_builtins(change)}
            registry_rows.add_audit(inventory.imported, actor, "fleet.inventory", source, after=shown)
            return change

        def set_current_inventory(_: InventoryChange) -> None:
            self.current = inventory

        return await self._changes.change_rows(replace_inventory, set_current_inventory)


def _keep_earlier_check_in(before: Machine | None, machine: Machine) -> Machine:
    if before is None or before.last_seen is None:
        return machine
    is_new = machine.last_seen is None or machine.last_seen > before.last_seen
    seen_before = before.last_seen if is_new else before.seen_before
    return msgspec.structs.replace(machine, seen_before=seen_before)


def _stored_inventory(inventory: Inventory) -> dict[str, Any]:
    """
    Return the document of a list. Its machines are texts of a few hundred each, because no other thread runs while
    one JSON text is decoded.
    """
    texts = [msgspec.json.encode(portion).decode() for portion in split_into_portions(inventory.machines)]
    return {**msgspec.to_builtins(replace(inventory, machines=())), "machines": texts}


def _read_inventory(registry_rows: RegistryRows) -> Inventory | None:
    body: Mapping[str, Any] | None = registry_rows.document(KIND, ID)
    if body is None:
        return None
    try:
        machines = [machine for text in body["machines"] for machine in _decode_machines(text)]
        return msgspec.convert({**body, "machines": machines}, Inventory)
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise RegistryDamaged(f"the stored inventory cannot be read: {error}") from error
