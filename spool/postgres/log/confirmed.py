"""
The newest commits that were confirmed to this node, in a file of its data directory.

A database that does not have them is an older state of itself, or a standby that had not received them. What
was acknowledged with them is lost then, and nothing in that database says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from spool.log.commits.following import UNKNOWN_TOKEN, CommitRow
from spool.log.planning.plan import Plan
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries

CONFIRMED_FILE = "confirmed-commits.json"
LOST_FILE = "lost-commits.json"  # of all that was found so far; an operator removes it
KEPT = 128  # commits

_log = logging.getLogger(__name__)


class ConfirmedCommit(NamedTuple):
    id: int
    token: int
    at: float
    records: int  # new ones


@dataclass(frozen=True, kw_only=True)
class LostCommits:
    """Commits that were confirmed here and are in the database no more. Others may be lost with them."""

    first: int
    last: int
    commits: int
    records: int
    since: float
    until: float

    def includes(self, commit: ConfirmedCommit) -> bool:
        """Compare numbers and times: a database in an older state assigns the same numbers again."""
        return self.first <= commit.id <= self.last and self.since <= commit.at <= self.until

    def words(self) -> str:
        """A sentence for the operator."""
        times = " to ".join(dict.fromkeys(_describe(at) for at in (self.since, self.until)))
        return (
            f"{self.commits} commits with {self.records} new records (commits {self.first} to {self.last}, "
            f"{times}) "
            "were acknowledged by this node and are not in the database any more: an older state of it was "
            "restored, "
            "or a standby that had not received them was promoted"
        )


class ConfirmedCommits:
    """Those of one node, of the installation with that `incarnation`."""

    def __init__(self, directory: Path, incarnation: str) -> None:
        self._directory = directory
        self._incarnation = incarnation
        self._commits = deque(_read_confirmed(directory, incarnation), maxlen=KEPT)
        self._is_written = True
        self._has_failed = False

    def note(self, row: CommitRow, plan: Plan) -> None:
        """A commit that acknowledged something is durable."""
        if plan.submissions:
            records = sum(map(len, plan.records.values()))
            self._commits.append(ConfirmedCommit(row.id, row.token, row.at, records))
            self._is_written = False

    async def write(self) -> None:
        """Write the commits noted since the last time. If the disk cannot be written, only this memory is lost."""
        if self._is_written:
            return
        self._is_written = True
        text = json.dumps({"incarnation": self._incarnation, "commits": list(self._commits)})
        try:
            await asyncio.to_thread(_write, self._directory / CONFIRMED_FILE, text)
        except OSError as error:
            if not self._has_failed:
                facts = {"action": "confirmed_not_written", "reason": error.strerror}
                _log.warning("the newest confirmed commits cannot be written down", extra=facts)
            self._has_failed = True
        else:
            self._has_failed = False

    async def check(self, database: Database) -> LostCommits | None:
        """
        Find commits that the database has lost since; report them once, and keep them in a file
        for `tollhouse doctor`.
        """
        missing = await self._missing(database)
        if not missing:
            return None
        self._commits = deque((one for one in self._commits if one not in missing), maxlen=KEPT)
        self._is_written = False
        lost = _summed(missing)
        _log.critical(lost.words(), extra={"action": "commits_lost", **asdict(lost)})
        path = self._directory / LOST_FILE
        text = json.dumps([*_read(path, []), asdict(lost)])
        try:
            await asyncio.to_thread(_write, path, text)
        except OSError as error:
            _log.error(
                "lost commits cannot be written down",
                extra={"action": "lost_not_written", "path": str(path), "reason": error.strerror},
            )
        return lost

    async def told(self, database: Database) -> Sequence[LostCommits]:
        """
        Return the losses found so far and those that a check finds now.

        The node writes down a loss first and the commits that it still knows later, so a loss may be in both files.
        """
        found = [LostCommits(**one) for one in _read(self._directory / LOST_FILE, [])]
        missing = [
            one for one in await self._missing(database) if not any(lost.includes(one) for lost in found)
        ]
        return [*found, _summed(missing)] if missing else found

    async def _missing(self, database: Database) -> Sequence[ConfirmedCommit]:
        commits = list(self._commits)

        def read(connection: Connection) -> tuple[int, set[tuple[int, int]]]:
            # In this order: retention first says what it carried forward, and then removes it. One snapshot
            # would not do: rows go with their partitions, for whoever looks at an older moment, too.
            there = set(
                connection.execute(database.sql(queries.TOKENS), {"ids": [one.id for one in commits]})
            )
            marks = connection.execute(database.sql(queries.MARKS)).fetchone()
            assert marks is not None
            return marks[1], there

        carried, there = await database.read(read) if commits else (0, set())
        return [
            one
            for one in commits
            if one.id > carried and there.isdisjoint([(one.id, one.token), (one.id, UNKNOWN_TOKEN)])
        ]


def _summed(missing: Sequence[ConfirmedCommit]) -> LostCommits:
    return LostCommits(
        first=missing[0].id,
        last=missing[-1].id,
        commits=len(missing),
        records=sum(one.records for one in missing),
        since=missing[0].at,
        until=missing[-1].at,
    )


def _read_confirmed(directory: Path, incarnation: str) -> Sequence[ConfirmedCommit]:
    """None of another installation."""
    path = directory / CONFIRMED_FILE
    found = _read(path, {})
    try:
        return (
            [ConfirmedCommit(*one) for one in found["commits"]] if found["incarnation"] == incarnation else []
        )
    except (KeyError, TypeError):
        if found != {}:
            _log.warning(
                "%s holds something else and is left aside", path, extra={"action": "file_unreadable"}
            )
        return []


def _read(path: Path, otherwise: Any) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return otherwise
    except (OSError, ValueError) as error:
        _log.warning(
            "%s cannot be read and is left aside: %s", path, error, extra={"action": "file_unreadable"}
        )
        return otherwise


def _write(path: Path, text: str) -> None:
    """Whole or not at all. After a crash of the machine an older one is as true."""
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.chmod(0o600)
    draft.replace(path)


def _describe(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
