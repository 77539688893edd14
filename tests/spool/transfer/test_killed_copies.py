"""
A copy whose process is killed after any of its statements. The target shows that it is incomplete, and the
next copy starts again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spool.errors import UnfinishedCopy
from spool.postgres.administration import ADMINISTRATION
from spool.postgres.connections.joined import WatchedConnection
from tests.rounds import some
from tests.spool.transfer.places import Places

# Only the transaction that copies all rows makes this setting.
FILLING = "idle_in_transaction_session_timeout = '10min'"


class Killed(BaseException):
    """
    Raised where the process is killed: nothing is cleaned up, and the server sees the closed connection.
    """


@contextmanager
def killed_behind(number: int) -> Iterator[list[str]]:
    """Kill the process after `number` statements that may change something. Yield these statements."""
    told: list[str] = []
    execute = WatchedConnection.execute

    def counted(self: WatchedConnection, query: Any, *arguments: Any, **options: Any) -> Any:
        done = execute(self, query, *arguments, **options)
        text = query.decode() if isinstance(query, bytes) else str(query)
        if text.split()[0] in ("SELECT", "BEGIN"):
            return done
        told.append(text)
        if len(told) >= number:
            self.pgconn.finish()
            raise Killed
        return done

    WatchedConnection.execute = counted  # type: ignore[method-assign, assignment]
    try:
        yield told
    finally:
        WatchedConnection.execute = execute  # type: ignore[method-assign]


@pytest.mark.proves("a copy that was killed")
async def test_kill_after_any_statement_leaves_no_usable_schema(places: Places, receipt: str) -> None:
    """
    After each kill, the target has no schema or an unfinished copy, and never a schema that a gateway would use.
    """
    before = await places.said("files")
    storage = places.options["postgres"].storage
    outcomes = []
    for number in some(range(1, 200), every=3):
        with killed_behind(number) as told, pytest.raises(Killed):
            # the copy works even over the remains of the attempt before
            await places.copy("files", "postgres")
        problem = str((await ADMINISTRATION.status(storage))["problem"])
        is_made = "does not exist yet" not in problem
        outcomes.append(is_made)
        assert "an unfinished copy" in problem or not is_made, told[-1]
        if is_made and outcomes.count(True) in (1, 2):
            with pytest.raises(UnfinishedCopy, match="Repeat the command that made it"):
                await places.open("postgres")
        if any(FILLING in one for one in told):
            break
    print(f"killed behind {len(outcomes)} statements; a schema was there after {sum(outcomes)} of them")
    assert {True, False} == set(outcomes)
    await places.copy("files", "postgres")
    assert before == await places.said("postgres")
