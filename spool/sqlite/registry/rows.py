"""The rows of registry.sqlite, as functions of a connection inside its transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from spool.listing import ListPage, ListQuery
from spool.registry.audit import AuditRow
from spool.registry.connections import BillingConnection, S3Bucket
from spool.registry.insights import Comment, Insight
from spool.registry.keys import Key, Secret, folded
from spool.registry.operators import Actor, ConsoleLink, Operator, Session
from spool.sqlite.lists import read_page

_LEGACY_ACCESSED = "legacy_last_accessed"
_JSON_OF_KEY = ("scopes", "use_cases", "labels")


def _upsert(table: str, row: type[Any], id: str) -> str:
    """The statement that adds a row, by the fields of its class, or replaces the one with its id."""
    names = [each.name for each in fields(row)]
    values = ", ".join(f":{name}" for name in names)
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name != id)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) ON CONFLICT ({id}) DO UPDATE SET {changed}"


_ADD_KEY = """
    INSERT INTO keys (name, folded, status, description, scopes, use_cases, labels, created_by, updated_by,
                      last_modified, last_accessed)
    VALUES (:name, :folded, :status, :description, :scopes, :use_cases, :labels, :created_by, :updated_by,
            :last_modified, :last_accessed)
    RETURNING id"""
_PUT_KEY = """
    UPDATE keys
       SET name = :name, folded = :folded, status = :status, description = :description, scopes = :scopes,
           use_cases = :use_cases, labels = :labels, updated_by = :updated_by, last_modified = :last_modified
     WHERE id = :id"""
# A clock that was moved back must not make a key look unused for longer than it is.
_ACCESSED = "UPDATE keys SET last_accessed = MAX(?, COALESCE(last_accessed, 0)) WHERE id = ?"
_PUT_OPERATOR = _upsert("operators", Operator, "email")
_PUT_SESSION = _upsert("sessions", Session, "digest")
_PUT_LINK = _upsert("links", ConsoleLink, "digest")
_PUT_INSIGHT = _upsert("insights", Insight, "id")
_PUT_CONNECTION = _upsert("connections", BillingConnection, "id")
_ADD_COMMENT = """
    INSERT INTO comments (insight, text, author, created, last_updated)
    VALUES (:insight, :text, :author, :created, :last_updated)
    RETURNING id"""
_ADD_AUDIT = """
    INSERT INTO audit (at, actor, address, action, target, before, after)
    VALUES (:at, :actor, :address, :action, :target, :before, :after)"""


class SqliteRegistryRows:
    """See `spool.registry.rows.RegistryRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.row_factory = sqlite3.Row
        self._connection = connection

    def keys(self) -> Sequence[Key]:
        secrets: dict[int, list[Secret]] = {}
        for row in self._all("SELECT key_id, digest, ends_at FROM secrets ORDER BY rowid"):
            secrets.setdefault(row["key_id"], []).append(Secret(row["digest"], row["ends_at"]))
        return [_key(row, secrets.get(row["id"], ())) for row in self._all("SELECT * FROM keys ORDER BY id")]

    def key(self, name: str) -> Key | None:
        return self._key_where("name = ?", name)

    def key_folded(self, folded: str) -> Key | None:
        return self._key_where("folded = ?", folded)

    def add_key(self, key: Key) -> Key:
        [id] = self._connection.execute(_ADD_KEY, _key_row(key)).fetchone()
        added = replace(key, id=id)
        self._write_secrets(added)
        return added

    def put_key(self, key: Key) -> None:
        self._connection.execute(_PUT_KEY, _key_row(key))
        self._write_secrets(key)

    def delete_key(self, id: int) -> None:
        self._connection.execute("DELETE FROM secrets WHERE key_id = ?", (id,))
        self._connection.execute("DELETE FROM keys WHERE id = ?", (id,))

    def note_accesses(self, times: Mapping[int, float]) -> None:
        self._connection.executemany(_ACCESSED, [(at, id) for id, at in times.items()])

    def accesses(self, since: float) -> Mapping[int, float]:
        rows = self._all("SELECT id, last_accessed FROM keys WHERE last_accessed >= ?", since)
        return {row["id"]: row["last_accessed"] for row in rows}

    def legacy_accessed(self) -> float | None:
        row = self._one("SELECT value FROM facts WHERE name = ?", _LEGACY_ACCESSED)
        return float(row["value"]) if row else None

    def note_legacy_access(self, at: float) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (_LEGACY_ACCESSED, str(at)))

    def operators(self) -> Sequence[Operator]:
        return [_operator(row) for row in self._all("SELECT * FROM operators ORDER BY email")]

    def operator(self, email: str) -> Operator | None:
        row = self._one("SELECT * FROM operators WHERE email = ?", email)
        return _operator(row) if row else None

    def put_operator(self, operator: Operator) -> None:
        self._connection.execute(_PUT_OPERATOR, asdict(operator))

    def delete_operator(self, email: str) -> None:
        self._connection.execute("DELETE FROM operators WHERE email = ?", (email,))

    def session(self, digest: bytes) -> Session | None:
        row = self._one("SELECT * FROM sessions WHERE digest = ?", digest)
        return _session(row) if row else None

    def sessions(self) -> Sequence[Session]:
        return [_session(row) for row in self._all("SELECT * FROM sessions")]

    def put_session(self, session: Session) -> None:
        self._connection.execute(_PUT_SESSION, asdict(session))

    def touch_session(self, digest: bytes, seen_at: float) -> None:
        self._connection.execute("UPDATE sessions SET seen_at = ? WHERE digest = ?", (seen_at, digest))

    def delete_session(self, digest: bytes) -> None:
        self._connection.execute("DELETE FROM sessions WHERE digest = ?", (digest,))

    def delete_sessions_of(self, account: str) -> None:
        self._connection.execute("DELETE FROM sessions WHERE account = ?", (account,))
        self._connection.execute("DELETE FROM links WHERE account = ?", (account,))

    def delete_sessions_before(self, *, created_at: float, seen_at: float) -> None:
        self._connection.execute("DELETE FROM sessions WHERE created_at <= ? OR seen_at <= ?", (created_at, seen_at))

    def add_link(self, link: ConsoleLink) -> None:
        self._connection.execute(_PUT_LINK, asdict(link))

    def take_link(self, digest: bytes) -> ConsoleLink | None:
        row = self._one("DELETE FROM links WHERE digest = ? RETURNING *", digest)
        return ConsoleLink(**dict(row)) if row else None

    def delete_links_before(self, ends_at: float) -> None:
        self._connection.execute("DELETE FROM links WHERE ends_at <= ?", (ends_at,))

    def insight(self, id: str) -> Insight | None:
        row = self._one("SELECT * FROM insights WHERE id = ?", id)
        return _insight(row) if row else None

    def count_insights(self) -> int:
        [count] = self._connection.execute("SELECT COUNT(*) FROM insights").fetchone()
        return int(count)

    def findings(self) -> Sequence[Insight]:
        return [_insight(row) for row in self._all("SELECT * FROM insights WHERE finding IS NOT NULL")]

    def put_insights(self, insights: Iterable[Insight]) -> None:
        self._connection.executemany(_PUT_INSIGHT, map(asdict, insights))

    def delete_insight(self, id: str) -> None:
        self._connection.execute("DELETE FROM insights WHERE id = ?", (id,))

    def delete_findings_before(self, found_at: float) -> None:
        self._connection.execute(
            "DELETE FROM insights WHERE finding IS NOT NULL AND NOT present AND NOT touched AND found_at < ?",
            (found_at,),
        )

    def insight_page(self, query: ListQuery) -> ListPage[Insight]:
        return read_page(self._connection, "insights", query, _insight)

    def comments(self, insight: str) -> Sequence[Comment]:
        rows = self._all("SELECT * FROM comments WHERE insight = ? ORDER BY id", insight)
        return [Comment(**dict(row)) for row in rows]

    def add_comment(self, comment: Comment) -> Comment:
        [id] = self._connection.execute(_ADD_COMMENT, asdict(comment)).fetchone()
        return replace(comment, id=id)

    def put_comment(self, comment: Comment) -> None:
        self._connection.execute(
            "UPDATE comments SET text = :text, last_updated = :last_updated WHERE id = :id", asdict(comment)
        )

    def delete_comments(self, insight: str) -> None:
        self._connection.execute("DELETE FROM comments WHERE insight = ?", (insight,))

    def connections(self) -> Sequence[BillingConnection]:
        return [_connection(row) for row in self._all("SELECT * FROM connections ORDER BY id")]

    def put_connection(self, connection: BillingConnection) -> None:
        row = asdict(connection)
        row["s3_bucket"] = row["s3_bucket"] and json.dumps(row["s3_bucket"])
        self._connection.execute(_PUT_CONNECTION, row)

    def delete_connection(self, id: str) -> None:
        self._connection.execute("DELETE FROM connections WHERE id = ?", (id,))

    def documents(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        rows = self._all("SELECT id, body FROM documents WHERE kind = ? ORDER BY id", kind)
        return {row["id"]: json.loads(row["body"]) for row in rows}

    def document(self, kind: str, id: str) -> Mapping[str, Any] | None:
        row = self._one("SELECT body FROM documents WHERE kind = ? AND id = ?", kind, id)
        return json.loads(row["body"]) if row else None

    def put_document(self, kind: str, id: str, body: Mapping[str, Any]) -> None:
        self._connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (kind, id, json.dumps(body)))

    def delete_document(self, kind: str, id: str) -> None:
        self._connection.execute("DELETE FROM documents WHERE kind = ? AND id = ?", (kind, id))

    def add_audit(
        self,
        at: float,
        actor: Actor,
        action: str,
        target: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        row = dict[str, object](at=at, actor=actor.name, address=actor.address, action=action, target=target)
        row["before"] = None if before is None else json.dumps(before)
        row["after"] = None if after is None else json.dumps(after)
        self._connection.execute(_ADD_AUDIT, row)

    def audit_page(self, query: ListQuery) -> ListPage[AuditRow]:
        return read_page(self._connection, "audit", query, _audit_row)

    def _all(self, statement: str, *values: object) -> list[sqlite3.Row]:
        return self._connection.execute(statement, values).fetchall()

    def _one(self, statement: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._connection.execute(statement, values).fetchone()
        return row

    def _key_where(self, condition: str, value: str) -> Key | None:
        row = self._one(f"SELECT * FROM keys WHERE {condition}", value)
        if row is None:
            return None
        secrets = self._all("SELECT digest, ends_at FROM secrets WHERE key_id = ? ORDER BY rowid", row["id"])
        return _key(row, [Secret(each["digest"], each["ends_at"]) for each in secrets])

    def _write_secrets(self, key: Key) -> None:
        self._connection.execute("DELETE FROM secrets WHERE key_id = ?", (key.id,))
        self._connection.executemany(
            "INSERT INTO secrets (digest, key_id, ends_at) VALUES (?, ?, ?)",
            [(secret.digest, key.id, secret.ends_at) for secret in key.secrets],
        )


def _operator(row: sqlite3.Row) -> Operator:
    return Operator(**{**dict(row), "disabled": bool(row["disabled"])})


def _session(row: sqlite3.Row) -> Session:
    return Session(**{**dict(row), "operator": bool(row["operator"]), "refreshes": bool(row["refreshes"])})


def _key(row: sqlite3.Row, secrets: Sequence[Secret]) -> Key:
    values = dict(row)
    del values["folded"]
    scopes, use_cases, labels = (json.loads(values.pop(name)) for name in _JSON_OF_KEY)
    return Key(**values, scopes=tuple(scopes), use_cases=tuple(use_cases), labels=labels, secrets=tuple(secrets))


def _key_row(key: Key) -> dict[str, object]:
    names = [each.name for each in fields(key) if each.name != "secrets"]
    row: dict[str, object] = {name: getattr(key, name) for name in names}
    row.update({name: json.dumps(row[name]) for name in _JSON_OF_KEY})
    return {**row, "folded": folded(key.name)}


def _connection(row: sqlite3.Row) -> BillingConnection:
    values = dict(row)
    bucket = values.pop("s3_bucket")
    values["is_enabled"] = bool(values["is_enabled"])
    return BillingConnection(**values, s3_bucket=None if bucket is None else S3Bucket(**json.loads(bucket)))


def _insight(row: sqlite3.Row) -> Insight:
    values: dict[str, Any] = {each.name: row[each.name] for each in fields(Insight)}
    return Insight(**{**values, "present": bool(row["present"]), "touched": bool(row["touched"])})


def _audit_row(row: sqlite3.Row) -> AuditRow:
    values: dict[str, Any] = {each.name: row[each.name] for each in fields(AuditRow)}
    for name in ("before", "after"):
        values[name] = None if row[name] is None else json.loads(row[name])
    return AuditRow(**values)
