"""A copy counts once the standby has all of it: whether it confirms is asked, and told while it is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from threading import Event

from spool.errors import SpoolUnavailable
from spool.postgres.database import STANDBY_NAMES, Connection, Database, Unconfirmed
from spool.postgres.health import SEES_ALL, STANDBYS
from spool.transfer.tables import Progress

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
