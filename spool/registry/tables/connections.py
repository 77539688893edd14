"""
The billing connections of a registry: every change with its audit row, and all of them in memory for those that ask on
every drop.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from spool.errors import AlreadyThere, NotAllowed, NotThere
from spool.registry.changes import Changes
from spool.registry.connections import (
    BillingConnection,
    ConnectionDraft,
    checked_connection,
    checked_connection_id,
    new_connection_id,
)
from spool.registry.operators import Actor
from spool.registry.rows import RegistryRows
from spool.registry.shared import makers
from spool.registry.shared.edits import edited
from spool.registry.shared.following import CONNECTIONS

_DRAFTED = ("name", "cloud_provider", "expected_ingest_rate", "is_enabled", "s3_bucket", "upstream_id")


class ConnectionTable:
    """Create, change and delete connections. A method that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    about = ((CONNECTIONS, ""),)

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._connections: dict[str, BillingConnection] = {}

    async def load(self) -> None:
        self._connections = {each.id: each for each in await self._changes.read(lambda rows: rows.connections())}

    async def ids(self) -> Collection[str]:
        """Of all that are there now, whichever process made them."""
        return {each.id for each in await self._changes.read(lambda rows: rows.connections())}

    def find(self, id: str) -> BillingConnection | None:
        return self._connections.get(id)

    def get(self, id: str) -> BillingConnection:
        connection = self.find(id)
        if connection is None:
            raise NotThere("there is no billing connection with this id")
        return connection

    def all(self) -> list[BillingConnection]:
        return list(self._connections.values())

    async def create(
        self, draft: ConnectionDraft, *, id: str | None = None, most: int, actor: Actor
    ) -> BillingConnection:
        """
        A new connection under its own new id or a given one.

        NotAllowed when there are `most`, or a key made as many as it leaves free.
        """
        id = new_connection_id() if id is None else checked_connection_id(id)
        return await self._add(id, checked_connection(draft), actor, most)

    async def establish(self, id: str, draft: ConnectionDraft, *, actor: Actor) -> None:
        """Add a connection that the configuration names, whatever its id looks like; nothing if it is there."""
        if self.find(id) is None:
            await self._add(id, checked_connection(draft), actor, None)

    async def change(self, id: str, changes: dict[str, Any], *, actor: Actor) -> BillingConnection:
        """Set the fields of a draft that are given."""
        now = self._changes.clock.now()

        def work(rows: RegistryRows) -> BillingConnection:
            before = _read(rows, id)
            kept = {name: getattr(before, name) for name in _DRAFTED}
            drafted = checked_connection(ConnectionDraft(**{**kept, **changes}))
            after = edited(before, replace(before, **_fields(drafted)), last_updated=now)
            if after is before:
                return before
            _check_name(rows, after)
            rows.put_connection(after)
            names = [name for name in _DRAFTED if getattr(before, name) != getattr(after, name)]
            was, is_now = ({name: asdict(each)[name] for name in names} for each in (before, after))
            rows.add_audit(now, actor, "connection.change", id, before=was, after=is_now)
            return after

        return await self._changes.change(work, self._remember)

    async def delete(self, id: str, *, actor: Actor) -> None:
        def work(rows: RegistryRows) -> None:
            before = _read(rows, id)
            rows.delete_connection(id)
            makers.forget_maker(rows, makers.CONNECTIONS, id)
            was = {"name": before.name, "cloud_provider": before.cloud_provider}
            rows.add_audit(self._changes.clock.now(), actor, "connection.delete", id, before=was)

        await self._changes.change(work, lambda _: self._forget(id))

    async def _add(self, id: str, draft: ConnectionDraft, actor: Actor, most: int | None) -> BillingConnection:
        now = self._changes.clock.now()
        connection = BillingConnection(id=id, **_fields(draft), created=now, last_updated=now)

        def work(rows: RegistryRows) -> BillingConnection:
            known = rows.connections()
            if most is not None and len(known) >= most:
                raise NotAllowed(f"there are {most} billing connections (billing.max_connections); delete one")
            if most is not None:
                makers.check_share(rows, makers.CONNECTIONS, [each.id for each in known], most, actor)
            if any(each.id == id for each in known):
                raise AlreadyThere(f"there is a billing connection with the id {id!r}")
            _check_name(rows, connection)
            rows.put_connection(connection)
            makers.note_maker(rows, makers.CONNECTIONS, id, actor)
            rows.add_audit(now, actor, "connection.create", id, after=asdict(draft))
            return connection

        return await self._changes.change(work, self._remember)

    def _remember(self, connection: BillingConnection) -> None:
        self._connections[connection.id] = connection

    def _forget(self, id: str) -> None:
        self._connections.pop(id, None)


def _fields(draft: ConnectionDraft) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in _DRAFTED}


def _check_name(rows: RegistryRows, connection: BillingConnection) -> None:
    name = connection.name.casefold()
    if any(each.name.casefold() == name and each.id != connection.id for each in rows.connections()):
        raise AlreadyThere(f"there is a billing connection named {connection.name!r}")


def _read(rows: RegistryRows, id: str) -> BillingConnection:
    connection = next((each for each in rows.connections() if each.id == id), None)
    if connection is None:
        raise NotThere("there is no billing connection with this id")
    return connection
