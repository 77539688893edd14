"""The registry's rows without a disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from spool.listing import ListPage, ListQuery, page_of
from spool.memory import transactions
from spool.registry.audit import AuditRow
from spool.registry.connections import BillingConnection
from spool.registry.insights import Comment, Insight
from spool.registry.keys import Key, folded
from spool.registry.operators import Actor, ConsoleLink, Operator, Session
from spool.registry.rows import RegistryRows
from spool.registry.shared.following import NO_NEWS, RegistryNews

T = TypeVar("T")


class MemoryRegistryRows:
    """See `spool.registry.rows.RegistryRows`."""

    def __init__(self) -> None:
        self._keys: dict[int, Key] = {}
        self._legacy_accessed: float | None = None
        self._operators: dict[str, Operator] = {}
        self._sessions: dict[bytes, Session] = {}
        self._links: dict[bytes, ConsoleLink] = {}
        self._insights: dict[str, Insight] = {}
        self._comments: dict[int, Comment] = {}
        self._connections: dict[str, BillingConnection] = {}
        self._documents: dict[tuple[str, str], str] = {}  # as JSON text, so that nobody holds what is kept
        self._audit: list[AuditRow] = []
        self._newest = {"key": 0, "comment": 0}  # ids are given once, also when the newest row is deleted

    def keys(self) -> Sequence[Key]:
        return list(self._keys.values())

    def key(self, name: str) -> Key | None:
        return next((key for key in self._keys.values() if key.name == name), None)

    def key_folded(self, folded_name: str) -> Key | None:
        return next((key for key in self._keys.values() if folded(key.name) == folded_name), None)

    def add_key(self, key: Key) -> Key:
        added = replace(key, id=self._next("key"))
        self._keys[added.id] = added
        return added

    def put_key(self, key: Key) -> None:
        self._keys[key.id] = key

    def delete_key(self, id: int) -> None:
        self._keys.pop(id, None)

    def note_accesses(self, times: Mapping[int, float]) -> None:
        for id, at in times.items():
            if (key := self._keys.get(id)) is not None:
                self._keys[id] = replace(key, last_accessed=max(at, key.last_accessed or 0.0))

    def accesses(self, since: float) -> Mapping[int, float]:
        found = ((key.id, key.last_accessed) for key in self._keys.values())
        return {id: at for id, at in found if at is not None and at >= since}

    def legacy_accessed(self) -> float | None:
        return self._legacy_accessed

    def note_legacy_access(self, at: float) -> None:
        self._legacy_accessed = at

    def operators(self) -> Sequence[Operator]:
        return sorted(self._operators.values(), key=lambda operator: operator.email)

    def operator(self, email: str) -> Operator | None:
        return self._operators.get(email)

    def put_operator(self, operator: Operator) -> None:
        self._operators[operator.email] = operator

    def delete_operator(self, email: str) -> None:
        self._operators.pop(email, None)

    def session(self, digest: bytes) -> Session | None:
        return self._sessions.get(digest)

    def put_session(self, session: Session) -> None:
        self._sessions[session.digest] = session

    def touch_session(self, digest: bytes, seen_at: float) -> None:
        if (session := self._sessions.get(digest)) is not None:
            self._sessions[digest] = replace(session, seen_at=seen_at)

    def delete_session(self, digest: bytes) -> None:
        self._sessions.pop(digest, None)

    def sessions(self) -> Sequence[Session]:
        return list(self._sessions.values())

    def delete_sessions_of(self, account: str) -> None:
        self._keep_sessions(lambda session: session.account != account)
        self._links = {digest: link for digest, link in self._links.items() if link.account != account}

    def delete_sessions_before(self, *, created_at: float, seen_at: float) -> None:
        self._keep_sessions(lambda session: session.created_at > created_at and session.seen_at > seen_at)

    def add_link(self, link: ConsoleLink) -> None:
        self._links[link.digest] = link

    def take_link(self, digest: bytes) -> ConsoleLink | None:
        return self._links.pop(digest, None)

    def delete_links_before(self, ends_at: float) -> None:
        self._links = {digest: link for digest, link in self._links.items() if link.ends_at > ends_at}

    def insight(self, id: str) -> Insight | None:
        return self._insights.get(id)

    def count_insights(self) -> int:
        return len(self._insights)

    def findings(self) -> Sequence[Insight]:
        return [insight for insight in self._insights.values() if insight.finding is not None]

    def put_insights(self, insights: Iterable[Insight]) -> None:
        self._insights.update({insight.id: insight for insight in insights})

    def delete_insight(self, id: str) -> None:
        self._insights.pop(id, None)

    def delete_findings_before(self, found_at: float) -> None:
        for insight in self.findings():
            over = not insight.present and not insight.touched
            if over and insight.found_at is not None and insight.found_at < found_at:
                del self._insights[insight.id]

    def insight_page(self, query: ListQuery) -> ListPage[Insight]:
        return page_of(self._insights.values(), query)

    def comments(self, insight: str) -> Sequence[Comment]:
        return [comment for comment in self._comments.values() if comment.insight == insight]

    def add_comment(self, comment: Comment) -> Comment:
        added = replace(comment, id=self._next("comment"))
        self._comments[added.id] = added
        return added

    def put_comment(self, comment: Comment) -> None:
        self._comments[comment.id] = comment

    def delete_comments(self, insight: str) -> None:
        self._comments = {id: comment for id, comment in self._comments.items() if comment.insight != insight}

    def connections(self) -> Sequence[BillingConnection]:
        return sorted(self._connections.values(), key=lambda connection: connection.id)

    def put_connection(self, connection: BillingConnection) -> None:
        self._connections[connection.id] = connection

    def delete_connection(self, id: str) -> None:
        self._connections.pop(id, None)

    def documents(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        return {id: json.loads(body) for (each, id), body in sorted(self._documents.items()) if each == kind}

    def document(self, kind: str, id: str) -> Mapping[str, Any] | None:
        body = self._documents.get((kind, id))
        return None if body is None else json.loads(body)

    def put_document(self, kind: str, id: str, body: Mapping[str, Any]) -> None:
        self._documents[kind, id] = json.dumps(body)

    def delete_document(self, kind: str, id: str) -> None:
        self._documents.pop((kind, id), None)

    def add_audit(
        self,
        at: float,
        actor: Actor,
        action: str,
        target: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        row = AuditRow(
            id=len(self._audit) + 1,
            at=at,
            actor=actor.name,
            address=actor.address,
            action=action,
            target=target,
            before=_as_json(before),
            after=_as_json(after),
        )
        self._audit.append(row)

    def audit_page(self, query: ListQuery) -> ListPage[AuditRow]:
        return page_of(self._audit, query)

    def _next(self, kind: str) -> int:
        self._newest[kind] += 1
        return self._newest[kind]

    def _keep_sessions(self, stays: Callable[[Session], bool]) -> None:
        self._sessions = {digest: session for digest, session in self._sessions.items() if stays(session)}


class MemoryRegistry:
    """See `spool.registry.rows.RegistryStore`."""

    is_shared = ends_keys = False

    def __init__(self) -> None:
        self._rows = MemoryRegistryRows()

    async def change(self, work: Callable[[RegistryRows], T]) -> T:
        return transactions.change(self._rows, work)

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        return work(self._rows)

    async def outlast_commits(self) -> None:
        """Nobody else keeps anything."""

    async def confirm(self) -> None:
        """What was kept is kept."""

    async def news(self, since: int | None) -> RegistryNews:
        return NO_NEWS

    async def close(self) -> None:
        """Nothing is open."""


def _as_json(fields: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """A copy, as an engine that keeps JSON would read it back."""
    return None if fields is None else json.loads(json.dumps(fields))
