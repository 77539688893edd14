"""
A copy into PostgreSQL is complete only when a standby has it. The command reports while it waits for the standby.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace

import pytest

from spool.errors import SpoolUnavailable, UnfinishedCopy
from spool.settings import REPLICATED
from spool.transfer.copying import CopiedStorage
from tests.spool.postgres.waiting_commits import commit_that_waits
from tests.spool.postgres_cluster import SUCCESSOR, Server, confirming
from tests.spool.transfer.places import Places


def need_standby(places: Places, *, commit_timeout_s: float) -> None:
    options = places.options["postgres"]
    storage = replace(options.storage, durability=REPLICATED, commit_timeout=commit_timeout_s)
    places.options["postgres"] = replace(options, storage=storage)


async def test_a_copy_counts_where_the_standby_has_it(
    places: Places, cluster: Server, waiting: asyncio.Task[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Without a standby nothing is copied. If the standby disappears during the copy, the command waits and
    reports the wait. If the server stops waiting for standbys, the copy is not complete. The same command
    completes the copy once there is a standby.
    """
    monkeypatch.setattr("spool.postgres.transfer.unfinished.TELL_S", 0.05)
    monkeypatch.setattr("spool.postgres.transfer.unfinished.PAUSE_S", 0.0)
    await (await places.open("files")).close()
    need_standby(places, commit_timeout_s=0.2)
    with pytest.raises(
        SpoolUnavailable, match=f"nothing was copied.*no synchronous standby.*start one of {SUCCESSOR}"
    ):
        await places.copy("files", "postgres")
    need_standby(places, commit_timeout_s=120.0)

    told: list[str] = []
    with ExitStack() as stack:
        receiver = stack.enter_context(confirming(cluster))
        await waiting

        def progress(what: str, rows: int) -> None:
            if what == "commits":
                receiver.kill()
                receiver.wait()
            elif what.startswith("waiting for the standby to confirm") and what not in told:
                told.append(what)
                if (
                    f"start one of {SUCCESSOR}" in what
                ):  # the server has noticed that the standby disconnected
                    cluster.change(synchronous_standby_names="")

        with pytest.raises(SpoolUnavailable, match=r"the copy is complete.*the standby is gone"):
            await places.copy("files", "postgres", progress)
    assert told
    with pytest.raises(UnfinishedCopy):
        await places.open("postgres")
    with pytest.raises(SpoolUnavailable, match=r"nothing was copied.*synchronous_standby_names is empty"):
        await places.copy("files", "postgres")

    cluster.change(synchronous_standby_names=SUCCESSOR)
    again = await commit_that_waits(cluster)
    with confirming(cluster):
        await again
        assert isinstance(await places.copy("files", "postgres"), CopiedStorage)
        await (await places.open("postgres")).close()
