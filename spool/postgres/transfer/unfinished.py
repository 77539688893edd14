"""The mark of a schema that is being made as a copy of another storage: until it goes, no node may use it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from threading import Event

from spool.errors import NOT_FINISHED, SpoolUnavailable, UnfinishedCopy
from spool.postgres.database import STANDBY_NAMES, Connection, Database, Unconfirmed
from spool.postgres.health import SEES_ALL, STANDBYS
from spool.postgres.migrations import UNFINISHED
from spool.transfer.tables import Progress

_ADD = "INSERT INTO {schema}.facts (name, value) VALUES (%s, '') ON CONFLICT (name) DO NOTHING"
_REMOVE = "DELETE FROM {schema}.facts WHERE name = %s"
ATTEMPTS = 10
PAUSE_S = 1.0
_FIND = "SELECT EXISTS (SELECT FROM {schema}.facts WHERE name = %s)"


def mark(database: Database, connection: Connection) -> None:
    connection.execute(database.sql(_ADD), (UNFINISHED,))


async def is_marked(database: Database) -> bool:
    """True if the schema holds a copy, finished or not."""

    def look(connection: Connection) -> bool:
        if connection.execute("SELECT to_regclass(%s)", (f"{database.schema}.facts",)).fetchone() == (None,):
            return False
        [(found,)] = connection.execute(database.sql(_FIND), (UNFINISHED,)).fetchall()
        return bool(found)

    return await database.read(look)


async def check_finished(database: Database) -> None:
    """UnfinishedCopy where a copy has not come to its end."""
    if await is_marked(database):
        raise UnfinishedCopy(f"the schema {database.name} {NOT_FINISHED}, or drop the schema")


async def finish(database: Database, *, progress: Progress) -> None:
    """
    Make the copy valid, with the durability that is configured.

    An answer that was lost is asked for again: a mark that has gone already goes once more. SpoolUnavailable
    where it cannot be known whether it counts.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await confirm(database)
            await database.transaction(partial(_remove, database))
            await confirm(database)
        except SpoolUnavailable as error:
            if attempt == ATTEMPTS:
                raise SpoolUnavailable(
                    f"the copy is whole, but the database did not say whether it counts now: {error}. Ask "
                    "tollhouse "
                    "storage status; if the copy is not finished, begin it again by the same command"
                ) from error
            progress(f"the copy is whole, and is to count once the database confirms it: {error}", 0)
            await asyncio.sleep(PAUSE_S)
        else:
            return


def _remove(database: Database, connection: Connection) -> None:
    connection.execute(database.sql(_REMOVE), (UNFINISHED,))


# -- confirming a copy ---------------------------------------------------------------------------------------


TELL_S = 20.0  # between two lines that say what is waited for


async def confirm(database: Database) -> None:
    """Returns when what was committed before is where the durability wants it; Unconfirmed if it may not be there."""
    await database.pool.confirm(needs_standby=database.needs_standby)


async def check_standby(database: Database) -> None:
    """SpoolUnavailable if nothing is confirmed at this moment: a copy would wait for that at its end."""
    try:
        await confirm(database)
    except Unconfirmed as error:
        found = await database.control.read(_standbys)
        message = (
            f"nothing was copied, because the standby would not confirm it: {found}. Then repeat the command"
        )
        raise SpoolUnavailable(message) from error


async def tell_while_it_waits(
    database: Database, writing: Coroutine[object, object, None], is_written: Event, progress: Progress
) -> None:
    """Await what writes a copy; from `is_written` on its commit waits for the standby."""
    task = asyncio.ensure_future(writing)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=TELL_S)
            if not task.done() and is_written.is_set():
                progress(f"waiting until the standby has confirmed the copy: {await _state(database)}", 0)
        await task
    finally:
        task.cancel()


async def _state(database: Database) -> str:
    try:
        return await database.control.read(_standbys)
    except SpoolUnavailable as error:
        return str(error)


def _standbys(connection: Connection) -> str:
    """Describe the state of the standby, and the remedy if nothing is confirmed for long."""
    [[names]] = connection.execute(STANDBY_NAMES).fetchall()
    if not names:
        return "synchronous_standby_names is empty: name a standby there, or set storage.durability"
    [[sees_all]] = connection.execute(SEES_ALL).fetchall()
    if not sees_all:
        return "see whether the standby runs (GRANT pg_monitor to the role, and its state is shown here)"
    found = connection.execute(STANDBYS.encode()).fetchall()
    lacking = [f"{name} lacks {lag:,} bytes" for name, is_synchronous, lag, _ in found if is_synchronous]
    return ", ".join(lacking) or f"no synchronous standby is connected: start one of {names}"
