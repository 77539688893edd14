"""The rows of the registry, as functions of a connection inside its transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from spool.listing import ListPage, ListQuery
from spool.registry.audit import AuditRow
from spool.registry.connections import BillingConnection, S3Bucket
from spool.registry.insights import Comment, Insight
from spool.registry.keys import DISABLED, Key, Secret, folded
from spool.registry.operators import Actor, ConsoleLink, Operator, Session
from spool.registry.shared.following import CONNECTIONS, DOCUMENTS, INSIGHTS, KEYS, OPERATORS
from spool.sql.columns import JSON, JSON_TUPLE, Columns, Form
from spool.sql.connection import SqlConnection
from spool.sql.lists import read_page
from spool.sql.statements import insert, select, update, upsert

_LEGACY_ACCESSED = "legacy_last_accessed"

_OF_KEY = {"scopes": JSON_TUPLE, "use_cases": JSON_TUPLE, "labels": JSON}
_KEY = Columns(Key, forms=_OF_KEY, without=("secrets",))
_OPERATOR = Columns(Operator)
_SESSION = Columns(Session)
_LINK = Columns(ConsoleLink)
_INSIGHT = Columns(Insight)
_COMMENT = Columns(Comment)
_BUCKET = Form(lambda bucket: json.dumps(asdict(bucket)), lambda text: S3Bucket(**json.loads(text)))
_CONNECTION = Columns(BillingConnection, forms={"s3_bucket": _BUCKET})
_AUDIT = Columns(AuditRow, forms={"before": JSON, "after": JSON})

_KEYS = select("keys", _KEY.names)
_ADD_KEY = f"{insert('keys', (*_KEY.names, 'folded'))} RETURNING id"
_NOT_CHANGED = ("id", "created_by", "last_accessed")
_PUT_KEY = update("keys", [*(name for name in _KEY.names if name not in _NOT_CHANGED), "folded"], "id")
# A clock that was moved back must not make a key look unused for longer than it is.
_ACCESSED = """
    UPDATE {schema}.keys SET last_accessed = :at
     WHERE id = :id AND (last_accessed IS NULL OR last_accessed < :at)"""
_OPERATORS = select("operators", _OPERATOR.names)
_PUT_OPERATOR = upsert("operators", _OPERATOR.names, "email")
_SESSIONS = select("sessions", _SESSION.names)
_PUT_SESSION = upsert("sessions", _SESSION.names, "digest")
_TOUCH_SESSION = update("sessions", ["seen_at"], "digest")
_END_SESSIONS = "DELETE FROM {schema}.sessions WHERE created_at <= :created_at OR seen_at <= :seen_at"
_PUT_LINK = upsert("links", _LINK.names, "digest")
_TAKE_LINK = f"DELETE FROM {{schema}}.links WHERE digest = :digest RETURNING {', '.join(_LINK.names)}"
_INSIGHTS = select("insights", _INSIGHT.names)
_PUT_INSIGHT = upsert("insights", _INSIGHT.names, "id")
_DELETE_FINDINGS = """
    DELETE FROM {schema}.insights
     WHERE finding IS NOT NULL AND NOT present AND NOT touched AND found_at < :found_at"""
_COMMENTS = f"{select('comments', _COMMENT.names)} WHERE insight = :insight ORDER BY id"
_ADD_COMMENT = f"{insert('comments', _COMMENT.names)} RETURNING id"
_PUT_COMMENT = update("comments", ["text", "last_updated"], "id")
_CONNECTIONS = f"{select('connections', _CONNECTION.names)} ORDER BY id"
_PUT_CONNECTION = upsert("connections", _CONNECTION.names, "id")
_DOCUMENTS = "SELECT id, body FROM {schema}.documents WHERE kind = :kind"
_PUT_DOCUMENT = upsert("documents", ("kind", "id", "body"), "kind", "id")
# Nothing deletes from this table, so that the numbers have no gap.
_ADD_AUDIT = """
    INSERT INTO {schema}.audit (id, at, actor, address, action, target, before, after)
    VALUES ((SELECT coalesce(max(id), 0) + 1 FROM {schema}.audit),
            :at, :actor, :address, :action, :target, :before, :after)"""


class SqlRegistryRows:
    """
    See `spool.registry.registry_rows.RegistryRows`.

    An engine that several processes share overrides `_tell`, `_lock_key`, `_check_actor` and `_wrote`, which
    do nothing here, and `_new_id` where a table does not number its rows by itself.
    """

    facts: ClassVar = "facts"
    secret_names: ClassVar[Sequence[str]] = ("digest", "key_id", "ends_at")
    secret_order: ClassVar = "rowid"  # the order in which the secrets of a key were written

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection

    def keys(self) -> Sequence[Key]:
        secrets: dict[int, list[Secret]] = {}
        for key_id, digest, ends_at in self._all(f"{self._secrets} ORDER BY key_id, {self.secret_order}"):
            secrets.setdefault(key_id, []).append(Secret(digest, ends_at))
        return [_key(row, secrets.get(row[0], ())) for row in self._all(f"{_KEYS} ORDER BY id")]

    def key(self, name: str) -> Key | None:
        return self._key_where("name", name)

    def key_folded(self, folded: str) -> Key | None:
        return self._key_where("folded", folded)

    def add_key(self, key: Key) -> Key:
        [id] = self._change(_ADD_KEY, **{**_key_values(key), "id": self._new_id("key")})
        added = replace(key, id=id)
        self._write_secrets(added)
        return added

    def put_key(self, key: Key) -> None:
        self._lock_key(key.id, shuts=key.status == DISABLED)
        self._run(_PUT_KEY, **_key_values(key))
        self._write_secrets(key)

    def delete_key(self, id: int) -> None:
        self._lock_key(id, shuts=True)
        self._run("DELETE FROM {schema}.secrets WHERE key_id = :id", id=id)
        self._run("DELETE FROM {schema}.keys WHERE id = :id", id=id)
        self._tell(KEYS, str(id))

    def note_accesses(self, times: Mapping[int, float]) -> None:
        self._run_each(_ACCESSED, [{"id": id, "at": at} for id, at in sorted(times.items())])

    def accesses(self, since: float) -> Mapping[int, float]:
        statement = f"{select('keys', ('id', 'last_accessed'))} WHERE last_accessed >= :since"
        return dict(self._all(statement, since=since))

    def legacy_accessed(self) -> float | None:
        row = self._one(f"{select(self.facts, ('value',))} WHERE name = :name", name=_LEGACY_ACCESSED)
        return float(row[0]) if row else None

    def note_legacy_access(self, at: float) -> None:
        self._run(upsert(self.facts, ("name", "value"), "name"), name=_LEGACY_ACCESSED, value=repr(at))

    def operators(self) -> Sequence[Operator]:
        return [_OPERATOR.read(row) for row in self._all(f"{_OPERATORS} ORDER BY email")]

    def operator(self, email: str) -> Operator | None:
        row = self._one(f"{_OPERATORS} WHERE email = :email", email=email)
        return _OPERATOR.read(row) if row else None

    def put_operator(self, operator: Operator) -> None:
        self._run(_PUT_OPERATOR, **_OPERATOR.values(operator))
        self._tell(OPERATORS, operator.email)

    def delete_operator(self, email: str) -> None:
        self._run("DELETE FROM {schema}.operators WHERE email = :email", email=email)
        self._tell(OPERATORS, email)

    def session(self, digest: bytes) -> Session | None:
        row = self._one(f"{_SESSIONS} WHERE digest = :digest", digest=digest)
        return _SESSION.read(row) if row else None

    def sessions(self) -> Sequence[Session]:
        return [_SESSION.read(row) for row in self._all(f"{_SESSIONS} ORDER BY digest")]

    def put_session(self, session: Session) -> None:
        self._run(_PUT_SESSION, **_SESSION.values(session))

    def touch_session(self, digest: bytes, seen_at: float) -> None:
        self._run(_TOUCH_SESSION, digest=digest, seen_at=seen_at)

    def delete_session(self, digest: bytes) -> None:
        self._run("DELETE FROM {schema}.sessions WHERE digest = :digest", digest=digest)

    def delete_sessions_of(self, account: str) -> None:
        self._run("DELETE FROM {schema}.sessions WHERE account = :account", account=account)
        self._run("DELETE FROM {schema}.links WHERE account = :account", account=account)

    def delete_sessions_before(self, *, created_at: float, seen_at: float) -> None:
        self._run(_END_SESSIONS, created_at=created_at, seen_at=seen_at)

    def add_link(self, link: ConsoleLink) -> None:
        self._run(_PUT_LINK, **_LINK.values(link))

    def take_link(self, digest: bytes) -> ConsoleLink | None:
        row = self._change(_TAKE_LINK, digest=digest)
        return _LINK.read(row) if row else None

    def delete_links_before(self, ends_at: float) -> None:
        self._run("DELETE FROM {schema}.links WHERE ends_at <= :ends_at", ends_at=ends_at)

    def insight(self, id: str) -> Insight | None:
        row = self._one(f"{_INSIGHTS} WHERE id = :id", id=id)
        return _INSIGHT.read(row) if row else None

    def count_insights(self) -> int:
        [count] = self._one("SELECT count(*) FROM {schema}.insights")
        return int(count)

    def findings(self) -> Sequence[Insight]:
        return [_INSIGHT.read(row) for row in self._all(f"{_INSIGHTS} WHERE finding IS NOT NULL ORDER BY id")]

    def put_insights(self, insights: Iterable[Insight]) -> None:
        rows = [_INSIGHT.values(insight) for insight in sorted(insights, key=lambda insight: insight.id)]
        if rows:
            self._run_each(_PUT_INSIGHT, rows)
            self._tell(INSIGHTS, "")

    def delete_insight(self, id: str) -> None:
        self._run("DELETE FROM {schema}.insights WHERE id = :id", id=id)
        self._tell(INSIGHTS, "")

    def delete_findings_before(self, found_at: float) -> None:
        self._run(_DELETE_FINDINGS, found_at=found_at)

    def insight_page(self, query: ListQuery) -> ListPage[Insight]:
        return read_page(self._connection, "insights", _INSIGHT.names, query, _INSIGHT.read)

    def comments(self, insight: str) -> Sequence[Comment]:
        return [_COMMENT.read(row) for row in self._all(_COMMENTS, insight=insight)]

    def add_comment(self, comment: Comment) -> Comment:
        [id] = self._change(_ADD_COMMENT, **{**_COMMENT.values(comment), "id": self._new_id("comment")})
        self._tell(INSIGHTS, "")
        return replace(comment, id=id)

    def put_comment(self, comment: Comment) -> None:
        self._run(_PUT_COMMENT, **_COMMENT.values(comment))
        self._tell(INSIGHTS, "")

    def delete_comment(self, id: int) -> None:
        self._run("DELETE FROM {schema}.comments WHERE id = :id", id=id)
        self._tell(INSIGHTS, "")

    def delete_comments(self, insight: str) -> None:
        self._run("DELETE FROM {schema}.comments WHERE insight = :insight", insight=insight)

    def connections(self) -> Sequence[BillingConnection]:
        return [_CONNECTION.read(row) for row in self._all(_CONNECTIONS)]

    def put_connection(self, connection: BillingConnection) -> None:
        self._run(_PUT_CONNECTION, **_CONNECTION.values(connection))
        self._tell(CONNECTIONS, connection.id)

    def delete_connection(self, id: str) -> None:
        self._run("DELETE FROM {schema}.connections WHERE id = :id", id=id)
        self._tell(CONNECTIONS, id)

    def documents(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        return {id: json.loads(body) for id, body in self._all(f"{_DOCUMENTS} ORDER BY id", kind=kind)}

    def document(self, kind: str, id: str) -> Mapping[str, Any] | None:
        row = self._one(f"{_DOCUMENTS} AND id = :id", kind=kind, id=id)
        return json.loads(row[1]) if row else None

    def put_document(self, kind: str, id: str, body: Mapping[str, Any]) -> None:
        self._run(_PUT_DOCUMENT, kind=kind, id=id, body=json.dumps(body))
        self._tell(DOCUMENTS, kind)

    def delete_document(self, kind: str, id: str) -> None:
        self._run("DELETE FROM {schema}.documents WHERE kind = :kind AND id = :id", kind=kind, id=id)
        self._tell(DOCUMENTS, kind)

    def add_audit(
        self,
        at: float,
        actor: Actor,
        action: str,
        target: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        self._check_actor(actor)
        self._run(
            _ADD_AUDIT,
            at=at,
            actor=actor.name,
            address=actor.address,
            action=action,
            target=target,
            before=None if before is None else json.dumps(before),
            after=None if after is None else json.dumps(after),
        )

    def audit_page(self, query: ListQuery) -> ListPage[AuditRow]:
        return read_page(self._connection, "audit", _AUDIT.names, query, _AUDIT.read)

    def _tell(self, kind: str, id: str) -> None:
        """A row changed that others keep in memory: (kind, id) of `spool.registry.shared.following`."""

    def _lock_key(self, id: int, *, shuts: bool) -> None:
        """A key is about to change. `shuts`: no secret of it opens any more."""

    def _check_actor(self, actor: Actor) -> None:
        """
        Raise KeyEnded if the change was sent under a key that has ended; a single process has no need to ask.
        """

    def _wrote(self) -> None:
        """A row of some table is about to change."""

    def _new_id(self, kind: str) -> int | None:
        """The number of a new "key" or "comment"; None: the table gives one."""
        return None

    def _all(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return self._connection.all(statement, **values)

    def _one(self, statement: str, **values: object) -> Any:
        return self._connection.one(statement, **values)

    def _run(self, statement: str, **values: object) -> None:
        self._wrote()
        self._connection.run(statement, **values)

    def _run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        self._wrote()
        self._connection.run_each(statement, rows)

    def _change(self, statement: str, **values: object) -> Any:
        """Run a statement that writes a row and returns it."""
        self._wrote()
        return self._connection.one(statement, **values)

    @property
    def _secrets(self) -> str:
        return select("secrets", ("key_id", "digest", "ends_at"))

    def _key_where(self, name: str, value: str) -> Key | None:
        row = self._one(f"{_KEYS} WHERE {name} = :value", value=value)
        if row is None:
            return None
        secrets = self._all(f"{self._secrets} WHERE key_id = :id ORDER BY {self.secret_order}", id=row[0])
        return _key(row, [Secret(digest, ends_at) for _, digest, ends_at in secrets])

    def _write_secrets(self, key: Key) -> None:
        self._run("DELETE FROM {schema}.secrets WHERE key_id = :id", id=key.id)
        rows = [
            {"digest": secret.digest, "key_id": key.id, "ends_at": secret.ends_at, "place": place}
            for place, secret in enumerate(key.secrets)
        ]
        self._run_each(insert("secrets", self.secret_names), rows)
        self._tell(KEYS, str(key.id))


def _key(row: Sequence[Any], secrets: Sequence[Secret]) -> Key:
    return _KEY.read(row, secrets=tuple(secrets))


def _key_values(key: Key) -> dict[str, Any]:
    return {**_KEY.values(key), "folded": folded(key.name)}
