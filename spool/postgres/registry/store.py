"""
The registry on PostgreSQL. Each change holds the registry's head lock, so changes happen one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from spool.errors import NotAllowed, NotThere, RegistryDamaged, RowDamaged
from spool.postgres.database import Connection, Database, PostgresConnection
from spool.postgres.registry.key_checks import require_valid_keys, wait_for_running_commits
from spool.registry.following import NAMED, RegistryNews
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.sql.registry import SqlRegistryRows


class StandbyBarrier:
    """
    A wait for a standby that several callers share. Callers that arrive during a wait share the next one.

    `confirm` waits until a standby has every earlier commit.
    """

    def __init__(self, confirm: Callable[[], Awaitable[None]]) -> None:
        self._confirm = confirm
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def wait_until_confirmed(self) -> None:
        """Wait until a standby has all commits before this call. Raises the error if `confirm` fails."""
        if self._next is None:
            self._next = asyncio.create_task(self._confirm_after_running_wait(self._running), name="barrier")
            self._next.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._next)

    async def _confirm_after_running_wait(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await self._confirm()


def _retrieve_exception(done: asyncio.Task[None]) -> None:
    """Retrieve the task's exception, because otherwise asyncio logs it as a defect."""
    if not done.cancelled():
        done.exception()


# -- rows ----------------------------------------------------------------------------------------------------


_LOCK_KEY = "SELECT id FROM {schema}.keys WHERE id = :id FOR UPDATE"
_NEXT = "UPDATE {{schema}}.registry_head SET newest_{kind} = newest_{kind} + 1 RETURNING newest_{kind}"


class PostgresRegistryRows(SqlRegistryRows):
    """
    The rows of the registry, which several processes share. `sql` fills in the schema's name.

    `changed`: the subjects to announce to other nodes. `ends_keys`: a secret may have ended, so this process
    must wait for earlier commits. `shuts_key`: no secret of a key works any more. `is_audited`: a person
    requested the change. `has_written`: a row was written.
    """

    secret_names = ("digest", "key_id", "place", "ends_at")
    secret_order = "place"

    def __init__(
        self, connection: Connection, sql: Callable[[str], Any], *, now: float | None = None
    ) -> None:
        super().__init__(PostgresConnection(connection, sql))
        self._bearers_on = connection, sql
        self._now = now
        self.changed: set[tuple[str, str]] = set()
        self.ends_keys = self.shuts_key = False
        self.has_written = False

    def _announce_change(self, kind: str, id: str) -> None:
        self.changed.add((kind, id))

    def announce_changes_without_ids(self) -> None:
        self._write(_FORGET_ALL)
        self.changed = {(kind, "" if kind in NAMED else id) for kind, id in self.changed}

    def _lock_key(self, id: int, *, ends_all_secrets: bool) -> None:
        self._write(_LOCK_KEY, id=id)
        self.ends_keys = True
        self.shuts_key = self.shuts_key or ends_all_secrets

    def require_valid_actor_key(self, actor: Actor) -> None:
        if actor.expects:
            require_valid_keys(*self._bearers_on, actor.expects, now=self._now)

    def _prepare_write(self) -> None:
        self.has_written = True

    def _new_id(self, kind: str) -> int:
        [number] = self._write_and_return_row(_NEXT.format(kind=kind))
        return int(number)


# -- the store -----------------------------------------------------------------------------------------------


T = TypeVar("T")
# Errors that a damaged row raises when it is read. A change also runs rules, whose errors are not damage.
ROW_ERRORS = (RowDamaged, TypeError, KeyError, AttributeError)
KEPT_CHANGES = 10_000

# Between two statements of a long transaction, its process may compute. A pause blocks others for at most this time.
LONG_PAUSE = b"SET LOCAL idle_in_transaction_session_timeout = '60s'"
_LOCK_HEAD = "SELECT seq FROM {schema}.registry_head FOR UPDATE"
# After a failover that lost changes, their numbers are assigned again. So a change is the known one only if
# its time is also equal.
_SEQ = """
    SELECT seq, (SELECT max(at) FROM {schema}.registry_changes c WHERE c.seq = h.seq),
           (SELECT max(at) FROM {schema}.registry_changes c WHERE c.seq = %s)
      FROM {schema}.registry_head h"""
_ADVANCE = "UPDATE {schema}.registry_head SET seq = seq + 1 RETURNING seq"
_NOTE = """
    INSERT INTO {schema}.registry_changes (seq, kind, id, at)
    SELECT %(seq)s, kind, id, {now} FROM unnest(%(kinds)s::text[], %(ids)s::text[]) AS changed (kind, id)"""
_FORGET_ALL = "DELETE FROM {schema}.registry_changes"
_FORGET = "DELETE FROM {schema}.registry_changes WHERE seq <= %s"
_SINCE = "SELECT seq, kind, id FROM {schema}.registry_changes WHERE seq > %s AND seq <= %s"


@dataclass(frozen=True, kw_only=True)
class _ChangeResult(Generic[T]):
    result: T
    seq: int | None
    ends_keys: bool
    needs_standby: bool


class PostgresRegistry:
    is_shared = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self.ends_keys = False
        self._own: set[int] = set()  # numbers of own changes, which memory already has
        self._told_at: float | None = None  # time of the newest change that this process has read
        self._barrier = StandbyBarrier(
            lambda: database.pool.wait_until_confirmed(needs_standby=database.needs_standby)
        )
        self._outlasting = asyncio.Lock()
        # number of waits that have begun, and number of the newest finished one
        self._waits = self._outlasted = 0

    async def change(self, work: Callable[[RegistryRows], T], *, is_long: bool = False) -> T:
        database = self._database

        def change_and_announce(connection: Connection) -> _ChangeResult[T]:
            lock_registry_changes(connection, database)
            if is_long:
                connection.execute(LONG_PAUSE)
            rows = PostgresRegistryRows(
                connection, database.fill_in_table_names, now=database.now_unless_database_clock()
            )
            result = work(rows)
            # Only what a person changed needs a standby. A lost sign-in does no harm, and a lost finding is
            # found again.
            is_answered = bool(rows.changed) and rows.is_audited
            # Disabling a key must work without a standby, but the caller then gets no confirmation.
            if is_answered and not rows.shuts_key:
                database.require_standby(connection)
            seq = (
                announce_changes_and_return_position(connection, database, rows.changed)
                if rows.changed
                else None
            )
            # A response to a request that changed nothing depends on rows that other processes wrote.
            needs_standby = database.needs_standby and (is_answered or not rows.has_written)
            return _ChangeResult(
                result=result, seq=seq, ends_keys=rows.ends_keys, needs_standby=needs_standby
            )

        changing = database.transaction(
            change_and_announce, needs_standby=lambda changed: changed.needs_standby
        )
        try:
            changed = await self._raise_registry_damaged_on(changing, RowDamaged)
        # the rows may exist on only one machine
        except (NotThere, NotAllowed):
            await self.wait_until_durable()
            raise
        self.ends_keys = changed.ends_keys
        if changed.seq is not None:
            self._own.add(changed.seq)
        return changed.result

    async def overwrite_deleted_data(self) -> str:
        return ""

    async def wait_until_durable(self) -> None:
        await self._barrier.wait_until_confirmed()

    async def wait_for_running_commits(self) -> None:
        """Wait for running commits of the log. One wait serves all callers that called before it began."""
        target_wait = self._waits + 1
        async with self._outlasting:
            if self._outlasted < target_wait:
                self._waits = begun = self._waits + 1
                await wait_for_running_commits(self._database)
                self._outlasted = begun

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        database = self._database
        return await self._raise_registry_damaged_on(
            database.snapshot(
                lambda connection: work(PostgresRegistryRows(connection, database.fill_in_table_names))
            ),
            *ROW_ERRORS,
        )

    async def changes_since(self, since_sequence_number: int | None) -> RegistryNews:
        changes, own_numbers, at = await self._database.control.read(
            lambda connection: self._read_changes_positions_and_time(connection, since_sequence_number)
        )
        self._told_at = at
        if changes.changed is None:
            self._own.clear()
        self._own -= own_numbers
        return changes

    async def close(self) -> None:
        """Do nothing, because the database is closed by the code that opened it."""

    def _read_changes_positions_and_time(
        self, connection: Connection, since_sequence_number: int | None
    ) -> tuple[RegistryNews, set[int], float | None]:
        sql = self._database.fill_in_table_names
        [[seq, at, told_at]] = connection.execute(sql(_SEQ), (since_sequence_number,)).fetchall()
        if since_sequence_number is None:
            return RegistryNews(seq=seq), set(), at
        is_as_before = told_at == self._told_at
        if seq == since_sequence_number and is_as_before:
            return RegistryNews(seq=seq), set(), at
        changes = connection.execute(sql(_SINCE), (since_sequence_number, seq)).fetchall()
        numbers = {number for number, _, _ in changes}
        # changes are no longer stored, or another copy replaced the database
        if len(numbers) != seq - since_sequence_number or not is_as_before:
            return RegistryNews(seq=seq, changed=None), numbers, at
        changed = {(kind, id) for number, kind, id in changes if number not in self._own}
        return RegistryNews(seq=seq, changed=changed), numbers, at

    async def _raise_registry_damaged_on(self, running: Awaitable[T], *damage: type[Exception]) -> T:
        try:
            return await running
        except damage as error:
            message = f"a row of the registry is damaged ({type(error).__name__}): restore it from a backup"
            raise RegistryDamaged(message) from error


def lock_registry_changes(connection: Connection, database: Database) -> None:
    """Take the lock that every change of the registry holds. Call this before any change of rows."""
    connection.execute(database.fill_in_table_names(_LOCK_HEAD))


def announce_changes_and_return_position(
    connection: Connection, database: Database, changed: Collection[tuple[str, str]]
) -> int:
    """
    Announce changes to other nodes, in the transaction that makes them and holds the registry's lock.

    Return the position in the order of changes.
    """
    [[seq]] = connection.execute(database.fill_in_table_names(_ADVANCE)).fetchall()
    kinds, ids = zip(*sorted(changed), strict=True)
    values = {"seq": seq, "kinds": list(kinds), "ids": list(ids), "now": database.now_unless_database_clock()}
    connection.execute(database.fill_in_table_names(_NOTE), values)
    if seq % 100 == 0:
        connection.execute(database.fill_in_table_names(_FORGET), (seq - KEPT_CHANGES,))
    return int(seq)
