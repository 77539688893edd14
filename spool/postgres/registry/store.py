"""The registry's rows in transactions: whoever changes one holds the head, so that changes have one order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from spool.errors import NotAllowed, NotThere, RegistryDamaged
from spool.postgres.connections.barrier import Barrier
from spool.postgres.database import Connection, Database
from spool.postgres.registry.bearers import outlast_commits
from spool.postgres.registry.registry_rows import PostgresRegistryRows
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared.following import RegistryNews

T = TypeVar("T")
ROW_ERRORS = (TypeError, KeyError, AttributeError, json.JSONDecodeError)
KEPT_CHANGES = 10_000

_LOCK_HEAD = "SELECT seq FROM {schema}.registry_head FOR UPDATE"
# Numbers are given again where a takeover undid changes: a change is the one that is known if its time is the
# same.
_SEQ = """
    SELECT seq, (SELECT max(at) FROM {schema}.registry_changes c WHERE c.seq = h.seq),
           (SELECT max(at) FROM {schema}.registry_changes c WHERE c.seq = %s)
      FROM {schema}.registry_head h"""
_ADVANCE = "UPDATE {schema}.registry_head SET seq = seq + 1 RETURNING seq"
_NOTE = """
    INSERT INTO {schema}.registry_changes (seq, kind, id, at)
    SELECT %(seq)s, kind, id, {now} FROM unnest(%(kinds)s::text[], %(ids)s::text[]) AS changed (kind, id)"""
_FORGET = "DELETE FROM {schema}.registry_changes WHERE seq <= %s"
_SINCE = "SELECT seq, kind, id FROM {schema}.registry_changes WHERE seq > %s AND seq <= %s"


@dataclass(frozen=True, kw_only=True)
class _Changed(Generic[T]):
    result: T
    seq: int | None
    ends_keys: bool
    needs_standby: bool


class PostgresRegistry:
    """See `spool.registry.registry_rows.RegistryStore`."""

    is_shared = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self.ends_keys = False
        self._own: set[int] = set()  # changes of this process: its memory follows them by itself
        self._told_at: float | None = None  # the time of the newest change that was told
        self._barrier = Barrier(lambda: database.pool.confirm(needs_standby=database.needs_standby))
        self._outlasting = asyncio.Lock()
        # for commits: how many have begun, and the newest that came to its end
        self._waits = self._outlasted = 0

    async def change(self, work: Callable[[RegistryRows], T]) -> T:
        database = self._database

        def within(connection: Connection) -> _Changed[T]:
            lock_head(connection, database)
            rows = PostgresRegistryRows(connection, database.sql, now=database.now())
            result = work(rows)
            is_answered = (
                bool(rows.changed) and rows.is_audited
            )  # sessions may be lost, and findings are found again
            # that is done on one machine, too, but not answered as done
            if is_answered and not rows.shuts_key:
                database.check_standby(connection)
            seq = note_changes(connection, database, rows.changed) if rows.changed else None
            # What was left as it is is answered by what others wrote.
            needs_standby = database.needs_standby and (is_answered or not rows.has_written)
            return _Changed(result=result, seq=seq, ends_keys=rows.ends_keys, needs_standby=needs_standby)

        changing = database.transaction(within, needs_standby=lambda changed: changed.needs_standby)
        try:
            changed = await self._guarded(changing)
        except (
            NotThere,
            NotAllowed,
        ):  # because of rows that somebody may have written, or removed, on one machine
            await self.confirm()
            raise
        self.ends_keys = changed.ends_keys
        if changed.seq is not None:
            self._own.add(changed.seq)
        return changed.result

    async def confirm(self) -> None:
        await self._barrier.wait()

    async def outlast_commits(self) -> None:
        """Wait on one connection for all callers: a wait that begins later serves all that ask before it."""
        wanted = self._waits + 1
        async with self._outlasting:
            if self._outlasted < wanted:
                self._waits = begun = self._waits + 1
                await outlast_commits(self._database)
                self._outlasted = begun

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        database = self._database
        return await self._guarded(
            database.snapshot(lambda connection: work(PostgresRegistryRows(connection, database.sql)))
        )

    async def news(self, since: int | None) -> RegistryNews:
        news, told, at = await self._database.control.read(lambda connection: self._news(connection, since))
        self._told_at = at
        if news.changed is None:
            self._own.clear()
        self._own -= told
        return news

    async def close(self) -> None:
        """Do nothing: the database is closed by whoever opened it."""

    def _news(self, connection: Connection, since: int | None) -> tuple[RegistryNews, set[int], float | None]:
        """Return the news, the sequence numbers of our own changes in it, and the time of the newest."""
        sql = self._database.sql
        [[seq, at, told_at]] = connection.execute(sql(_SEQ), (since,)).fetchall()
        if since is None:
            return RegistryNews(seq=seq), set(), at
        is_as_before = told_at == self._told_at
        if seq == since and is_as_before:
            return RegistryNews(seq=seq), set(), at
        found = connection.execute(sql(_SINCE), (since, seq)).fetchall()
        told = {number for number, _, _ in found}
        # Older than what is kept, or the database is another one than before.
        if len(told) != seq - since or not is_as_before:
            return RegistryNews(seq=seq, changed=None), told, at
        changed = {(kind, id) for number, kind, id in found if number not in self._own}
        return RegistryNews(seq=seq, changed=changed), told, at

    async def _guarded(self, running: Awaitable[T]) -> T:
        try:
            return await running
        except ROW_ERRORS as error:  # no rule of keys raises these: a row is not what was written
            message = f"a row of the registry is damaged ({type(error).__name__}): restore it from a backup"
            raise RegistryDamaged(message) from error


def lock_head(connection: Connection, database: Database) -> None:
    """Take the turn of a change, before any of its rows."""
    connection.execute(database.sql(_LOCK_HEAD))


def note_changes(connection: Connection, database: Database, changed: Collection[tuple[str, str]]) -> int:
    """Tell the other nodes, in the transaction of the change, which holds the head; its place in the order."""
    [[seq]] = connection.execute(database.sql(_ADVANCE)).fetchall()
    kinds, ids = zip(*sorted(changed), strict=True)
    values = {"seq": seq, "kinds": list(kinds), "ids": list(ids), "now": database.now()}
    connection.execute(database.sql(_NOTE), values)
    if seq % 100 == 0:
        connection.execute(database.sql(_FORGET), (seq - KEPT_CHANGES,))
    return int(seq)
