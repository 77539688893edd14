"""A node remembers what it acknowledged, and reports when the database no longer has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spool.postgres.database import CommitUnknown, Connection
from spool.postgres.log.confirmed import CONFIRMED_FILE, ConfirmedCommits, LostCommits
from spool.postgres.log.log import PostgresLog
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import NOON, add, call, everything
from tests.spool.postgres.logs import LogOpener, clock, open_log  # noqa: F401 - fixtures
from tests.spool.postgres.test_log import LostAnswers

LOST = LostCommits(first=2, last=3, commits=2, records=3, since=NOON + 1, until=NOON + 2)


async def go_back(log: PostgresLog) -> None:
    """Reset the database to the first commit, as on a standby that had received no more."""

    def lose(connection: Connection) -> None:
        for statement in (
            "DELETE FROM {schema}.commits WHERE id > 1", "DELETE FROM {schema}.entries WHERE first > 1",
            "DELETE FROM {schema}.books", "UPDATE {schema}.marks SET booked = 0",
        ):  # fmt: skip
            connection.execute(log._database.fill_in_table_names(statement))

    await log._database.transaction(lose)


@pytest.mark.parametrize("restarts", [False, True])
async def test_lost_acknowledged_records_are_reported(
    open_log: LogOpener,  # noqa: F811
    clock: MovedClock,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    restarts: bool,
) -> None:
    """
    A running node and a starting node report the loss with its counts, even if the numbers have been used again.
    """
    log = await open_log(hold=0, confirmed=ConfirmedCommits(tmp_path, "one"))
    for calls in ((call(1),), (call(2),), (call(3), call(4))):
        await add(log, *calls)
        clock.move(1)
    if restarts:
        await log.close()
    await go_back(log)
    other = await open_log(hold=0)
    await add(other, call(5))
    await add(other, call(6))

    log = await open_log(hold=0, confirmed=ConfirmedCommits(tmp_path, "one")) if restarts else log
    await add(log, call(7))

    assert [call(number)[0] for number in (1, 5, 6, 7)] == await everything(log)
    (told,) = [record.message for record in caplog.records if getattr(record, "action", "") == "commits_lost"]
    assert LOST.describe() == told
    assert "2 commits with 3 new records (commits 2 to 3" in told
    await log.close()
    assert [LOST] == await ConfirmedCommits(tmp_path, "one").find_losses(log._database)


async def test_a_loss_that_was_just_found_is_reported_once(open_log: LogOpener, tmp_path: Path) -> None:  # noqa: F811
    """
    `tollhouse doctor` reports a loss once, even if the node has recorded the loss but not yet the remaining
    commits.
    """
    node = ConfirmedCommits(tmp_path, "one")
    log = await open_log(hold=0, confirmed=node)
    await add(log, call(1))
    await log.close()
    database = log._database
    await database.run(lambda one: one.execute(database.fill_in_table_names("DELETE FROM {schema}.commits")))
    lost = await node.find_and_report_losses(database)
    assert lost is not None
    assert [lost] == await ConfirmedCommits(tmp_path, "one").find_losses(database)


async def test_what_was_removed_in_its_time_is_not_lost(open_log: LogOpener, tmp_path: Path) -> None:  # noqa: F811
    """
    Commits that disappear for a good reason are no loss: deletion by retention, commits of another installation,
    and a missing or damaged file.
    """
    log = await open_log(hold=0, confirmed=ConfirmedCommits(tmp_path, "one"))
    await add(log, call(1))
    await log.close()
    database = log._database
    await database.run(lambda one: one.execute(database.fill_in_table_names("DELETE FROM {schema}.commits")))
    assert 1 == len(await ConfirmedCommits(tmp_path, "one").find_losses(database))
    assert [] == await ConfirmedCommits(tmp_path, "other").find_losses(database)
    await database.run(
        lambda one: one.execute(database.fill_in_table_names("UPDATE {schema}.marks SET carried = 1"))
    )
    assert [] == await ConfirmedCommits(tmp_path, "one").find_losses(database)
    for content in (b"{", b'{"incarnation": "one", "commits": [[1, 2]]}', b"[]"):
        (tmp_path / CONFIRMED_FILE).write_bytes(content)
        assert [] == await ConfirmedCommits(tmp_path, "one").find_losses(database)


async def test_what_is_removed_while_it_is_looked_for_is_not_lost(
    open_log: LogOpener,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    If retention removes a commit while it is being looked for, it is no loss. Here retention carries the commit
    forward and deletes its row between two queries.
    """
    log = await open_log(hold=0, confirmed=ConfirmedCommits(tmp_path, "one"))
    await add(log, call(1))
    await log.close()
    database, read = log._database, log._database.read

    class Removing:
        """A connection on which retention runs after the first query."""

        def __init__(self, connection: Connection) -> None:
            self._connection = connection
            self._removes = ["UPDATE {schema}.marks SET carried = 1", "DELETE FROM {schema}.commits"]

        def execute(self, *question: Any) -> Any:
            answer = self._connection.execute(*question)
            while self._removes:
                self._connection.execute(database.fill_in_table_names(self._removes.pop(0)))
            return answer

    async def removing(work: Callable[[Any], Any]) -> Any:
        return await read(lambda connection: work(Removing(connection)))

    monkeypatch.setattr(database, "read", removing)
    assert [] == await ConfirmedCommits(tmp_path, "one").find_losses(database)


async def test_a_commit_that_was_looked_up_is_remembered(
    open_log: LogOpener,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A commit that was looked up is remembered as acknowledged, because its sender got an acknowledgement. So its
    disappearance counts as a loss.
    """
    log = await open_log(hold=0, confirmed=ConfirmedCommits(tmp_path, "one"))
    LostAnswers(log, monkeypatch).next = [CommitUnknown("lost")]
    await add(log, call(1), call(2))
    await log.close()
    database = log._database
    await database.run(lambda one: one.execute(database.fill_in_table_names("DELETE FROM {schema}.commits")))
    [lost] = await ConfirmedCommits(tmp_path, "one").find_losses(database)
    assert lost.first == 1
    assert lost.records == 2


async def test_a_copy_that_knows_no_tokens_has_lost_nothing(open_log: LogOpener, tmp_path: Path) -> None:  # noqa: F811
    """
    Commits in a database that was copied from files have no tokens, so they count as equal. A commit with a
    different token under the same number counts as lost.
    """
    log = await open_log(hold=0, confirmed=ConfirmedCommits(tmp_path, "one"))
    await add(log, call(1))
    await log.close()
    database = log._database
    for token, lost in ((0, 0), (1, 1)):
        change = database.fill_in_table_names(f"UPDATE {{schema}}.commits SET token = {token}")
        await database.run(lambda connection, change=change: connection.execute(change))  # type: ignore[misc]
        assert lost == len(await ConfirmedCommits(tmp_path, "one").find_losses(database))
