"""
The registry of the house: keys, operators and the audit list, in a file of its own (registry.sqlite).

A damaged registry is said clearly (RegistryDamaged) and never takes the spool along.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from spool.clock import Clock, SystemClock
from spool.devices import Change
from spool.listing import ListPage, ListQuery
from spool.registry.audit import AuditRow
from spool.registry.operators import Actor
from spool.sqlite.lists import read_page
from spool.sqlite.registry.file import RegistryFile, audit
from spool.sqlite.registry.insights import InsightTable
from spool.sqlite.registry.keys import KeyTable
from spool.sqlite.registry.operators import OperatorTable


class Registry:
    """Opened once, under the directory's lock, by the process that owns the sockets."""

    def __init__(self, file: RegistryFile) -> None:
        self._file = file
        self.keys = KeyTable(file)
        self.operators = OperatorTable(file)
        self.insights = InsightTable(file)

    @classmethod
    async def open(cls, directory: Path, *, secret: bytes, clock: Clock | None = None) -> Registry:
        """`secret` is spool.installation.installation_secret's; RegistryDamaged when the file cannot be read."""
        registry = cls(await RegistryFile.open(directory, clock=clock or SystemClock(), secret=secret))
        try:
            await registry.keys.load()
        except BaseException:
            await registry.close()
            raise
        return registry

    async def note(self, actor: Actor, action: str, target: str, *, after: Mapping[str, object] | None = None) -> None:
        """An audit row for a change that happened in another file (a route dropped, a dead letter retried)."""
        at = self._file.clock.now()
        await self._file.change(
            lambda connection: audit(connection, actor, at, action, target, after=after), lambda _: None
        )

    async def note_all(self, changes: Sequence[Change]) -> None:
        """The audit rows of changes that happen together in another file, in one transaction."""
        at = self._file.clock.now()

        def write(connection: sqlite3.Connection) -> None:
            for each in changes:
                audit(connection, each.actor, at, each.action, each.target, each.before, each.after)

        await self._file.change(write, lambda _: None)

    async def audit_page(self, query: ListQuery) -> ListPage[AuditRow]:
        return await self._file.read(lambda connection: read_page(connection, "audit", query, _audit_row))

    async def close(self) -> None:
        await self._file.close()


def _audit_row(row: sqlite3.Row) -> AuditRow:
    before, after = (None if row[name] is None else json.loads(row[name]) for name in ("before", "after"))
    return AuditRow(
        id=row["id"],
        at=row["at"],
        actor=row["actor"],
        address=row["address"],
        action=row["action"],
        target=row["target"],
        before=before,
        after=after,
    )
