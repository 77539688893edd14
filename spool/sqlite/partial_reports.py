"""Waiting reports in spool.sqlite. The commit of a submission writes its changes to them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile

from spool.clock import Clock
from spool.log.partial_reports import SPANS, PartialReport, filter_by_kind
from spool.log.pending_spans import change_given_values
from spool.log.planning.plan import CommitPlan
from spool.log.recent_senders import CALLER_BYTES, KEPT_S, pack_senders, unpack_sender_keys
from spool.shares import UsedAmountByOwner
from spool.sql.erasing import StoredSpans
from spool.sqlite.database import Database

_PUT = "INSERT OR REPLACE INTO pending (key, at, body) VALUES (?, ?, ?)"

_FORGET = "DELETE FROM pending WHERE key = ?"

# ordered by the end of their waiting time
_ALL = "SELECT key, at, body FROM pending ORDER BY at, key"

_FIND = "SELECT key, at, body FROM pending WHERE key = ?"
_UNDER = "SELECT key, at, body FROM pending WHERE key >= ? AND substr(key, 1, ?) = ?"

STORED_SPANS = StoredSpans(
    "SELECT key, body, at FROM pending WHERE key > :after AND key < CAST('spans0' AS BLOB) ORDER BY key LIMIT :most",
    "UPDATE pending SET body = :packed WHERE key = :key",
    SPANS,
    change_given_values,
)


class SqlitePartialReports:
    """The waiting reports, which only one process writes."""

    is_shared = False

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Sequence[PartialReport]:
        return await self._database.read(
            lambda connection: [PartialReport(*row) for row in connection.execute(_ALL)]
        )

    async def find_reports(
        self, keys: Collection[bytes], *, key_prefixes: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        return await self._database.read(
            lambda connection: find_reports(connection, keys, key_prefixes=key_prefixes)
        )

    async def oldest_reports(
        self, kind: bytes, *, before_time: float, max_reports: int
    ) -> Sequence[PartialReport]:
        due = takewhile(lambda report: report.at <= before_time, filter_by_kind(await self.load(), kind))
        return list(islice(due, max_reports))

    async def count_reports_and_bytes(self, kind: bytes) -> tuple[int, int]:
        reports = list(filter_by_kind(await self.load(), kind))
        return len(reports), sum(len(report.body) for report in reports)


def find_reports(
    connection: sqlite3.Connection, keys: Collection[bytes], *, key_prefixes: Collection[bytes] = ()
) -> dict[bytes, PartialReport]:
    rows = [row for key in keys for row in connection.execute(_FIND, (key,))]
    rows += [row for begin in key_prefixes for row in connection.execute(_UNDER, (begin, len(begin), begin))]
    return {row[0]: PartialReport(*row) for row in rows}


def write_changes(connection: sqlite3.Connection, changes: Mapping[bytes, PartialReport | None]) -> None:
    connection.executemany(_FORGET, [(key,) for key, report in changes.items() if report is None])
    connection.executemany(_PUT, [report for report in changes.values() if report is not None])


# -- senders that reported calls -----------------------------------------------------------------------------


STEP = 500  # reports deleted per transaction

_NOTE = "INSERT INTO heard (at, key, count, senders) VALUES (?, ?, ?, ?)"
_HEARD = "SELECT at, senders FROM heard WHERE at >= ? ORDER BY id"
_OLDEST_HEARD = "SELECT id, at FROM heard ORDER BY id LIMIT ?"
_REMOVE_HEARD = "DELETE FROM heard WHERE id = ?"
_HELD = "SELECT key, SUM(count) FROM heard GROUP BY key"
_OLDEST_OF_KEY = "SELECT id, count FROM heard WHERE key = ? ORDER BY id LIMIT ?"

_log = logging.getLogger(__name__)


class SqliteStoredSenders:
    """
    The senders of recent calls. Beyond `max_senders`, the oldest sender of the key with the most is deleted.
    """

    is_shared = False

    def __init__(self, database: Database, clock: Clock, *, max_senders: int) -> None:
        self._database = database
        self._clock = clock
        self._max_senders = max_senders
        # stored senders of calls by caller, as read at the start
        self._of_callers: dict[bytes, list[tuple[bytes, float]]] = {}
        self._newest = 0.0

    async def open(self) -> None:
        await self._database.read(self._load)

    def _load(self, connection: sqlite3.Connection) -> None:
        damaged = 0
        for at, data in connection.execute(_HEARD, (self._clock.now() - KEPT_S,)):
            try:
                for sender in unpack_sender_keys(data):
                    self._of_callers.setdefault(sender[:CALLER_BYTES], []).append((sender, at))
            except ValueError:
                damaged += 1
            self._newest = max(self._newest, at)
        if damaged:
            _log.error(
                "%d unreadable groups of senders are ignored", damaged, extra={"action": "senders_damaged"}
            )

    @property
    def has_any_sender(self) -> bool:
        return bool(self._of_callers)

    async def find_senders_of_callers(self, callers: Collection[bytes]) -> Sequence[tuple[bytes, float]]:
        return [sender for caller in callers for sender in self._of_callers.get(caller, ())]

    async def delete_old(self, before_time: float) -> int:
        if self._newest < before_time:
            self._of_callers = {}
        forgotten = 0
        while removed := await self._database.transaction(
            partial(_delete_some_old_senders, before_time=before_time)
        ):
            forgotten += removed
        held = UsedAmountByOwner(
            dict(await self._database.read(lambda connection: connection.execute(_HELD).fetchall()))
        )
        over = sum(held.values()) - self._max_senders
        while over > 0:
            key = held.largest_owner()
            removed = await self._database.transaction(partial(_forget_senders_of_key, key=key, count=over))
            held.add_use(key, -removed)
            over -= removed
            forgotten += removed
        return forgotten


def store_senders(connection: sqlite3.Connection, plan: CommitPlan) -> None:
    """Store the senders of a commit's calls, in the same transaction."""
    rows = [
        (plan.at, key, len(senders), pack_senders(sorted(senders))) for key, senders in plan.heard.items()
    ]
    connection.executemany(_NOTE, rows)


def _delete_some_old_senders(connection: sqlite3.Connection, before_time: float) -> int:
    oldest = connection.execute(_OLDEST_HEARD, (STEP,)).fetchall()
    old = [(id,) for id, at in oldest if at < before_time]
    connection.executemany(_REMOVE_HEARD, old)
    return len(old)


def _forget_senders_of_key(connection: sqlite3.Connection, key: str, count: int) -> int:
    removed = 0
    for id, senders in connection.execute(_OLDEST_OF_KEY, (key, STEP)).fetchall():
        if removed >= count:
            break
        connection.execute(_REMOVE_HEARD, (id,))
        removed += senders
    return removed
