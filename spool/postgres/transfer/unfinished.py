"""
The mark of a schema that is an unfinished copy of another storage. While the mark exists, no node may
use the schema.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from threading import Event

from spool.errors import NOT_FINISHED, SpoolUnavailable, UnfinishedCopy
from spool.postgres.database import STANDBY_NAMES, Connection, Database, PostgresConnection, Unconfirmed
from spool.postgres.health import SEES_ALL, STANDBYS
from spool.postgres.migrations import UNFINISHED
from spool.sql import facts
from spool.transfer.tables import Progress

ATTEMPTS = 10
PAUSE_S = 1.0


def mark_unfinished(database: Database, connection: Connection) -> None:
    facts.add_fact(PostgresConnection(connection, database.fill_in_table_names), UNFINISHED, b"")


async def has_unfinished_copy_mark(database: Database) -> bool:
    def read_has_unfinished_copy_mark(connection: Connection) -> bool:
        if connection.execute("SELECT to_regclass(%s)", (f"{database.schema}.facts",)).fetchone() == (None,):
            return False
        return (
            facts.read_fact(PostgresConnection(connection, database.fill_in_table_names), UNFINISHED)
            is not None
        )

    return await database.read(read_has_unfinished_copy_mark)


async def require_finished_copy(database: Database) -> None:
    if await has_unfinished_copy_mark(database):
        raise UnfinishedCopy(f"the schema {database.name} {NOT_FINISHED}, or drop the schema")


async def finish_copy(database: Database, *, progress: Progress) -> None:
    """
    Make the copy valid, with the configured durability. If the result of a commit is lost, try again, which
    does no harm.

    Raises SpoolUnavailable if it remains unknown whether the copy is valid.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await wait_until_confirmed(database)
            await database.transaction(partial(_remove_unfinished_mark, database))
            await wait_until_confirmed(database)
        except SpoolUnavailable as error:
            if attempt == ATTEMPTS:
                raise SpoolUnavailable(
                    "the copy is complete, but the database did not confirm that it is valid: "
                    f"{error}. Run tollhouse storage status. If it reports an unfinished copy, run "
                    "the same command again"
                ) from error
            progress(f"the copy is complete and waits for the database to confirm it: {error}", 0)
            await asyncio.sleep(PAUSE_S)
        else:
            return


def _remove_unfinished_mark(database: Database, connection: Connection) -> None:
    facts.delete_facts(PostgresConnection(connection, database.fill_in_table_names), [UNFINISHED])


# -- confirmation of a copy ----------------------------------------------------------------------------------


TELL_S = 20.0  # seconds between progress lines while waiting


async def wait_until_confirmed(database: Database) -> None:
    """
    Wait until every earlier commit has the configured durability. Raises Unconfirmed if that is unknown.
    """
    await database.pool.wait_until_confirmed(needs_standby=database.needs_standby)


async def require_confirming_standby(database: Database) -> None:
    """
    Raise SpoolUnavailable if no standby confirms commits now. Otherwise, a copy of a storage would fail only
    at its end.
    """
    try:
        await wait_until_confirmed(database)
    except Unconfirmed as error:
        state = await database.control.read(_describe_standby)
        message = (
            f"nothing was copied, because the standby would not confirm it: {state}. Then run the "
            "command again"
        )
        raise SpoolUnavailable(message) from error


async def run_and_report_standby_wait(
    database: Database, writing: Coroutine[object, object, None], is_written: Event, progress: Progress
) -> None:
    """
    Wait for the task that writes a copy. Once `is_written` is set, report that it waits for the standby.
    """
    task = asyncio.ensure_future(writing)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=TELL_S)
            if not task.done() and is_written.is_set():
                progress(f"waiting for the standby to confirm the copy: {await _standby_state(database)}", 0)
        await task
    finally:
        task.cancel()


async def _standby_state(database: Database) -> str:
    try:
        return await database.control.read(_describe_standby)
    except SpoolUnavailable as error:
        return str(error)


def _describe_standby(connection: Connection) -> str:
    [[names]] = connection.execute(STANDBY_NAMES).fetchall()
    if not names:
        return "synchronous_standby_names is empty: name a standby there, or change storage.durability"
    [[sees_all]] = connection.execute(SEES_ALL).fetchall()
    if not sees_all:
        return "check whether the standby runs (to see its state here, GRANT pg_monitor to the role)"
    standbys = connection.execute(STANDBYS.encode()).fetchall()
    lacking = [f"{name} lacks {lag:,} bytes" for name, is_synchronous, lag, _ in standbys if is_synchronous]
    return ", ".join(lacking) or f"no synchronous standby is connected: start one of {names}"
