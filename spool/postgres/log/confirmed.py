"""
The newest commits that were confirmed to this node, in a file of its data directory.

If the database does not have them, it was restored to an earlier state, or a standby without them was
promoted. Acknowledged data are then lost, and nothing in the database shows this.
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
from spool.log.planning.plan import CommitPlan
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries

CONFIRMED_FILE = "confirmed-commits.json"
LOST_FILE = "lost-commits.json"  # all losses found so far; an operator deletes the file
KEPT = 128  # maximum number of commits in the file

_log = logging.getLogger(__name__)


class ConfirmedCommit(NamedTuple):
    id: int
    token: int
    at: float
    records: int


@dataclass(frozen=True, kw_only=True)
class LostCommits:
    """
    Commits that were confirmed to this node and that the database no longer has. Commits of other nodes may
    be lost as well.
    """

    first: int
    last: int
    commits: int
    records: int
    since: float
    until: float

    def has_commit(self, commit: ConfirmedCommit) -> bool:
        """
        Return whether a commit is among the lost ones. The time is compared as well, because a restored
        database uses the same numbers again.
        """
        return self.first <= commit.id <= self.last and self.since <= commit.at <= self.until

    def describe(self) -> str:
        times = " to ".join(dict.fromkeys(_format_time(at) for at in (self.since, self.until)))
        return (
            f"{self.commits} commits with {self.records} new records (commits {self.first} to "
            f"{self.last}, {times}) were acknowledged by this node but are missing from the database: "
            "an earlier state was restored, or a standby without them was promoted"
        )


class ConfirmedCommits:
    """The newest commits confirmed to this node, in one incarnation of the log."""

    def __init__(self, directory: Path, incarnation: str) -> None:
        self._directory = directory
        self._incarnation = incarnation
        self._commits = deque(_read_confirmed(directory, incarnation), maxlen=KEPT)
        self._is_written = True
        self._has_failed = False

    def note_commit(self, row: CommitRow, plan: CommitPlan) -> None:
        if plan.submissions:
            records = sum(map(len, plan.records.values()))
            self._commits.append(ConfirmedCommit(row.id, row.token, row.at, records))
            self._is_written = False

    async def write_file(self) -> None:
        """Write the list. If this fails, the file keeps the earlier list."""
        if self._is_written:
            return
        self._is_written = True
        text = json.dumps({"incarnation": self._incarnation, "commits": list(self._commits)})
        try:
            await asyncio.to_thread(_replace_text, self._directory / CONFIRMED_FILE, text)
        except OSError as error:
            if not self._has_failed:
                facts = {"action": "confirmed_not_written", "reason": error.strerror}
                _log.warning("the list of confirmed commits cannot be written", extra=facts)
            self._has_failed = True
        else:
            self._has_failed = False

    async def find_and_report_losses(self, database: Database) -> LostCommits | None:
        """Log each loss of commits once, and store it in a file for `tollhouse doctor`."""
        missing = await self._find_missing_commits(database)
        if not missing:
            return None
        self._commits = deque((commit for commit in self._commits if commit not in missing), maxlen=KEPT)
        self._is_written = False
        lost = _sum_losses(missing)
        _log.critical(lost.describe(), extra={"action": "commits_lost", **asdict(lost)})
        path = self._directory / LOST_FILE
        text = json.dumps([*_read_json(path, []), asdict(lost)])
        try:
            await asyncio.to_thread(_replace_text, path, text)
        except OSError as error:
            _log.error(
                "the list of lost commits cannot be written",
                extra={"action": "lost_not_written", "path": str(path), "reason": error.strerror},
            )
        return lost

    async def find_losses(self, database: Database) -> Sequence[LostCommits]:
        """
        Return all known losses: stored ones, and commits of the list that the database lacks.

        A node stores a loss before it removes the commits from its list, so both files may have the same
        loss.
        """
        losses = [LostCommits(**loss) for loss in _read_json(self._directory / LOST_FILE, [])]
        missing = [
            loss
            for loss in await self._find_missing_commits(database)
            if not any(lost.has_commit(loss) for lost in losses)
        ]
        return [*losses, _sum_losses(missing)] if missing else losses

    async def _find_missing_commits(self, database: Database) -> Sequence[ConfirmedCommit]:
        commits = list(self._commits)

        def read_existing_commits(connection: Connection) -> tuple[int, set[tuple[int, int]]]:
            # Read in this order, because retention first marks commits as carried forward and then
            # deletes them. A snapshot would not help, because dropped partitions disappear from older
            # snapshots as well.
            existing = set(
                connection.execute(
                    database.fill_in_table_names(queries.TOKENS), {"ids": [commit.id for commit in commits]}
                )
            )
            marks = connection.execute(database.fill_in_table_names(queries.MARKS)).fetchone()
            assert marks is not None
            return marks[1], existing

        carried, existing = await database.read(read_existing_commits) if commits else (0, set())
        return [
            commit
            for commit in commits
            if commit.id > carried
            and existing.isdisjoint([(commit.id, commit.token), (commit.id, UNKNOWN_TOKEN)])
        ]


def _sum_losses(missing: Sequence[ConfirmedCommit]) -> LostCommits:
    return LostCommits(
        first=missing[0].id,
        last=missing[-1].id,
        commits=len(missing),
        records=sum(commit.records for commit in missing),
        since=missing[0].at,
        until=missing[-1].at,
    )


def _read_confirmed(directory: Path, incarnation: str) -> Sequence[ConfirmedCommit]:
    """Return the list of confirmed commits in the file. A list of another installation is ignored."""
    path = directory / CONFIRMED_FILE
    contents = _read_json(path, {})
    try:
        return (
            [ConfirmedCommit(*commit_fields) for commit_fields in contents["commits"]]
            if contents["incarnation"] == incarnation
            else []
        )
    except (KeyError, TypeError):
        if contents != {}:
            _log.warning(
                "%s has unexpected contents and is ignored", path, extra={"action": "file_unreadable"}
            )
        return []


def _read_json(path: Path, otherwise: Any) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return otherwise
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read and is ignored: %s", path, error, extra={"action": "file_unreadable"})
        return otherwise


def _replace_text(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text)  # unflushed: after a machine crash, the older list is still correct
    draft.chmod(0o600)
    draft.replace(path)


def _format_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
