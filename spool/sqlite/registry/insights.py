"""
The insights of a registry and the comments on them; every change of a person with its audit row.

In registry.sqlite: what operators said must survive a ledger that is rebuilt, repriced or lost.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from spool.errors import NotAllowed, NotThere
from spool.listing import ListPage, ListQuery
from spool.registry.insights import (
    MAX_COMMENTS,
    MAX_INSIGHTS,
    NEW,
    Comment,
    Draft,
    Finding,
    Insight,
    Merged,
    checked,
    checked_comment,
    checked_status,
)
from spool.registry.operators import Actor
from spool.sqlite.lists import read_page
from spool.sqlite.registry.file import RegistryFile, audit

KEPT_S = 90 * 86400.0  # a finding that nobody touched and that is gone stays this long

_COLUMNS = tuple(Insight.__dataclass_fields__)
_INSERT = f"INSERT INTO insights ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
_UPDATE = f"UPDATE insights SET {', '.join(f'{name} = :{name}' for name in _COLUMNS[1:])} WHERE id = :id"
_ADD_COMMENT = """
    INSERT INTO comments (insight, text, author, created, last_updated)
    VALUES (:insight, :text, :author, :created, :last_updated) RETURNING *"""
_COMMENTS_OF = "SELECT * FROM comments WHERE insight = ? ORDER BY id"
# Findings that are over and were never anybody's: they go, so that the table stays bounded.
_FORGET = "DELETE FROM insights WHERE finding IS NOT NULL AND NOT present AND NOT touched AND found_at < ?"
_SAID = ("title", "description", "category", "link", "effort", "cost_impact")


class InsightTable:
    """All verbs of an insight's life. One that raises (Invalid, NotAllowed, NotThere) has changed nothing."""

    def __init__(self, file: RegistryFile) -> None:
        self._file = file

    async def get(self, id: str) -> Insight:
        [rows] = await self._file.select([("SELECT * FROM insights WHERE id = ?", (id,))])
        if not rows:
            raise _no_insight()
        return insight_of(rows[0])

    async def page(self, query: ListQuery) -> ListPage[Insight]:
        return await self._file.read(lambda connection: read_page(connection, "insights", query, insight_of))

    async def comments(self, id: str) -> list[Comment]:
        """Oldest first; NotThere when there is no such insight."""
        there, rows = await self._file.select([("SELECT id FROM insights WHERE id = ?", (id,)), (_COMMENTS_OF, (id,))])
        if not there:
            raise _no_insight()
        return [_comment(row) for row in rows]

    async def create(self, draft: Draft, *, status: str = NEW, actor: Actor) -> Insight:
        draft, now = checked(draft), self._file.clock.now()
        insight = replace(_fresh(draft, now), status=checked_status(status), touched=True)

        def work(connection: sqlite3.Connection) -> Insight:
            _insert(connection, insight)
            audit(connection, actor, now, "insight.create", insight.id, None, {**asdict(draft), "status": status})
            return insight

        return await self._file.change(work, lambda _: None)

    async def change(
        self, id: str, *, status: str | None = None, said: Mapping[str, str] | None = None, actor: Actor
    ) -> Insight:
        """A new status, or new words in fields of a draft. A detector's own words come again with its next look."""
        if status is not None:
            checked_status(status)
        now = self._file.clock.now()

        def work(connection: sqlite3.Connection) -> Insight:
            before = _read(connection, id)
            words = {name: getattr(before, name) for name in _SAID} | dict(said or {})
            after = replace(before, **asdict(checked(Draft(**words))), last_updated=now, touched=True)
            if status is not None:
                after = replace(after, status=status, status_at=now)
            connection.execute(_UPDATE, asdict(after))
            names = [name for name in ("status", *_SAID) if getattr(before, name) != getattr(after, name)]
            was, is_now = ({name: getattr(each, name) for name in names} for each in (before, after))
            audit(connection, actor, now, "insight.change", id, was, is_now)
            return after

        return await self._file.change(work, lambda _: None)

    async def delete(self, id: str, *, actor: Actor) -> tuple[str, list[int]]:
        """The ids of the insight and its comments. What a detector still finds comes back as a new insight."""

        def work(connection: sqlite3.Connection) -> list[int]:
            before = _read(connection, id)
            gone = connection.execute("DELETE FROM comments WHERE insight = ? RETURNING id", (id,)).fetchall()
            connection.execute("DELETE FROM insights WHERE id = ?", (id,))
            said = {"title": before.title, "status": before.status}
            audit(connection, actor, self._file.clock.now(), "insight.delete", id, said, None)
            return sorted(row["id"] for row in gone)

        return id, await self._file.change(work, lambda _: None)

    async def comment(self, id: str, text: str, *, actor: Actor) -> Comment:
        now = self._file.clock.now()
        row = {"insight": id, "text": checked_comment(text), "author": actor.name, "created": now, "last_updated": now}

        def work(connection: sqlite3.Connection) -> Comment:
            _touch(connection, id, now)
            [count] = connection.execute("SELECT COUNT(*) FROM comments WHERE insight = ?", (id,)).fetchone()
            if count >= MAX_COMMENTS:
                raise NotAllowed(f"an insight has at most {MAX_COMMENTS} comments")
            comment = _comment(connection.execute(_ADD_COMMENT, row).fetchone())
            audit(connection, actor, now, "insight.comment", id, None, {"comment": comment.id})
            return comment

        return await self._file.change(work, lambda _: None)

    async def change_comment(self, id: str, comment: int, text: str, *, actor: Actor) -> Comment:
        now = self._file.clock.now()
        values = {"id": comment, "insight": id, "text": checked_comment(text), "now": now}

        def work(connection: sqlite3.Connection) -> Comment:
            _touch(connection, id, now)
            row = connection.execute(
                "UPDATE comments SET text = :text, last_updated = :now"
                " WHERE id = :id AND insight = :insight RETURNING *",
                values,
            ).fetchone()
            if row is None:
                raise NotThere("this insight has no comment with this id")
            audit(connection, actor, now, "insight.comment.change", id, None, {"comment": comment})
            return _comment(row)

        return await self._file.change(work, lambda _: None)

    async def merge(self, findings: Sequence[Finding], *, looked_for: Collection[str]) -> Merged:
        """
        Everything that one look of the detectors `looked_for` found; a finding's key begins with its detector and ":".

        Status and comments stay. An addressed insight that returns is new again. What was not found stays, and is no
        longer present. Where there is no room for more insights, findings are left out and counted.
        """
        now = self._file.clock.now()
        found = {finding.key: finding for finding in findings}

        def work(connection: sqlite3.Connection) -> Merged:
            rows = connection.execute("SELECT * FROM insights WHERE finding IS NOT NULL").fetchall()
            known = {row["finding"]: insight_of(row) for row in rows}
            again = [_found_again(insight, found[key], now) for key, insight in known.items() if key in found]
            connection.executemany(_UPDATE, map(asdict, again))
            gone = [
                (insight.id,)
                for key, insight in known.items()
                if insight.present and key not in found and key.partition(":")[0] in looked_for
            ]
            connection.executemany("UPDATE insights SET present = 0 WHERE id = ?", gone)
            connection.execute(_FORGET, (now - KEPT_S,))
            new = [_found(finding, now) for key, finding in found.items() if key not in known]
            room = max(0, MAX_INSIGHTS - _count(connection))
            connection.executemany(_INSERT, map(asdict, new[:room]))
            return Merged(
                new=len(new[:room]),
                again=len(again),
                reopened=sum(after.status != known[after.finding].status for after in again),
                gone=len(gone),
                left_out=len(new[room:]),
            )

        return await self._file.change(work, lambda _: None)


def insight_of(row: Any) -> Insight:
    """A row of the table `insights`."""
    values = {name: row[name] for name in _COLUMNS}
    return Insight(**{**values, "present": bool(row["present"]), "touched": bool(row["touched"])})


def _fresh(draft: Draft, now: float) -> Insight:
    return Insight(
        id=secrets.token_hex(16),
        finding=None,
        **asdict(draft),
        status=NEW,
        status_at=now,
        created=now,
        last_updated=now,
        found_at=None,
        present=False,
        touched=False,
    )


def _found(finding: Finding, now: float) -> Insight:
    return replace(_fresh(checked(finding.draft), now), finding=finding.key, found_at=now, present=True)


def _found_again(before: Insight, finding: Finding, now: float) -> Insight:
    after = replace(before, **asdict(checked(finding.draft)))
    if before.returns(finding.newest):
        after = replace(after, status=NEW, status_at=now)
    if after != before:
        after = replace(after, last_updated=now)
    return replace(after, found_at=now, present=True)


def _insert(connection: sqlite3.Connection, insight: Insight) -> None:
    if _count(connection) >= MAX_INSIGHTS:
        raise NotAllowed(f"there are {MAX_INSIGHTS} insights; delete some that are addressed or ignored")
    connection.execute(_INSERT, asdict(insight))


def _count(connection: sqlite3.Connection) -> int:
    [count] = connection.execute("SELECT COUNT(*) FROM insights").fetchone()
    return int(count)


def _touch(connection: sqlite3.Connection, id: str, now: float) -> None:
    if not connection.execute("UPDATE insights SET touched = 1, last_updated = ? WHERE id = ?", (now, id)).rowcount:
        raise _no_insight()


def _read(connection: sqlite3.Connection, id: str) -> Insight:
    row = connection.execute("SELECT * FROM insights WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise _no_insight()
    return insight_of(row)


def _comment(row: sqlite3.Row) -> Comment:
    return Comment(**dict(row))


def _no_insight() -> NotThere:
    return NotThere("there is no insight with this id")
