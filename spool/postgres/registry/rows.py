"""The rows of the registry, as functions of a connection inside its transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from spool.listing import ListPage, ListQuery
from spool.postgres.database import Connection
from spool.postgres.lists import read_page
from spool.postgres.registry.bearers import check_bearers
from spool.registry.audit import AuditRow
from spool.registry.connections import BillingConnection, S3Bucket
from spool.registry.insights import Comment, Insight
from spool.registry.keys import DISABLED, Key, Secret, folded
from spool.registry.operators import Actor, ConsoleLink, Operator, Session
from spool.registry.shared.following import CONNECTIONS, DOCUMENTS, INSIGHTS, KEYS, OPERATORS

_LEGACY_ACCESSED = "legacy_last_accessed"
_JSON_OF_KEY = ("scopes", "use_cases", "labels")


def _names(row: type[Any], *without: str) -> tuple[str, ...]:
    return tuple(each.name for each in fields(row) if each.name not in without)


def _select(table: str, names: Sequence[str]) -> str:
    return f"SELECT {', '.join(names)} FROM {{schema}}.{table}"


def _upsert(table: str, names: Sequence[str], id: str) -> str:
    """The statement that adds a row, or replaces the one with its id."""
    values = ", ".join(f"%({name})s" for name in names)
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name != id)
    return f"""
        INSERT INTO {{schema}}.{table} ({", ".join(names)}) VALUES ({values})
            ON CONFLICT ({id}) DO UPDATE SET {changed}"""


_KEY = _names(Key, "secrets")
_OPERATOR = _names(Operator)
_SESSION = _names(Session)
_LINK = _names(ConsoleLink)
_INSIGHT = _names(Insight)
_COMMENT = _names(Comment)
_CONNECTION = _names(BillingConnection)
_AUDIT = _names(AuditRow)

_KEYS = _select("keys", _KEY)
_SECRETS = "SELECT key_id, digest, ends_at FROM {schema}.secrets"
_ADD_KEY = """
    INSERT INTO {schema}.keys (id, name, folded, status, description, scopes, use_cases, labels, created_by, updated_by,
                               last_modified, last_accessed)
    VALUES (%(id)s, %(name)s, %(folded)s, %(status)s, %(description)s, %(scopes)s, %(use_cases)s, %(labels)s,
            %(created_by)s, %(updated_by)s, %(last_modified)s, %(last_accessed)s)"""
_PUT_KEY = """
    UPDATE {schema}.keys
       SET name = %(name)s, folded = %(folded)s, status = %(status)s, description = %(description)s,
           scopes = %(scopes)s, use_cases = %(use_cases)s, labels = %(labels)s, updated_by = %(updated_by)s,
           last_modified = %(last_modified)s
     WHERE id = %(id)s"""
_LOCK_KEY = "SELECT id FROM {schema}.keys WHERE id = %s FOR UPDATE"
_NEXT_KEY = "UPDATE {schema}.registry_head SET newest_key = newest_key + 1 RETURNING newest_key"
_NEXT_COMMENT = "UPDATE {schema}.registry_head SET newest_comment = newest_comment + 1 RETURNING newest_comment"
# A clock that was moved back must not make a key look unused for longer than it is.
_ACCESSED = """
    UPDATE {schema}.keys k SET last_accessed = greatest(k.last_accessed, a.at)
      FROM (SELECT * FROM unnest(%(ids)s::bigint[], %(times)s::float8[]) AS a (id, at)) AS a
     WHERE k.id = a.id"""
_PUT_FACT = """
    INSERT INTO {schema}.registry_facts (name, value) VALUES (%s, %s)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
_OPERATORS = _select("operators", _OPERATOR)
_PUT_OPERATOR = _upsert("operators", _OPERATOR, "email")
_SESSIONS = _select("sessions", _SESSION)
_PUT_SESSION = _upsert("sessions", _SESSION, "digest")
_PUT_LINK = _upsert("links", _LINK, "digest")
_INSIGHTS = _select("insights", _INSIGHT)
_PUT_INSIGHT = _upsert("insights", _INSIGHT, "id")
_COMMENTS = _select("comments", _COMMENT)
_PUT_CONNECTION = _upsert("connections", _CONNECTION, "id")
_PUT_DOCUMENT = """
    INSERT INTO {schema}.documents (kind, id, body) VALUES (%s, %s, %s)
        ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body"""
_ADD_COMMENT = """
    INSERT INTO {schema}.comments (id, insight, text, author, created, last_updated)
    VALUES (%(id)s, %(insight)s, %(text)s, %(author)s, %(created)s, %(last_updated)s)"""
# Whoever changes the registry holds its head, and nothing deletes from this table: the numbers have no gap.
_ADD_AUDIT = """
    INSERT INTO {schema}.audit (id, at, actor, address, action, target, before, after)
    SELECT coalesce(max(id), 0) + 1, %(at)s::float8, %(actor)s::text, %(address)s::text, %(action)s::text,
           %(target)s::text, %(before)s::text, %(after)s::text
      FROM {schema}.audit"""


class PostgresRegistryRows:
    """
    See `spool.registry.rows.RegistryRows`. `sql` fills in the schema's name.

    `changed` is what the other nodes must hear of: (kind, id) of `spool.registry.shared.following`. `ends_keys`: a
    secret may open no more, so that a commit that began before must be waited for. `shuts_key`: no secret of a key
    opens any more. `is_audited`: somebody asked for it. `has_written`: a row was changed, of whatever table.
    """

    def __init__(self, connection: Connection, sql: Callable[[str], Any], *, now: float | None = None) -> None:
        self._connection = connection
        self._sql = sql
        self._now = now
        self.changed: set[tuple[str, str]] = set()
        self.ends_keys = self.shuts_key = False
        self.is_audited = self.has_written = False

    def keys(self) -> Sequence[Key]:
        secrets: dict[int, list[Secret]] = {}
        for key_id, digest, ends_at in self._all(f"{_SECRETS} ORDER BY key_id, place"):
            secrets.setdefault(key_id, []).append(Secret(digest, ends_at))
        return [_key(row, secrets.get(row[0], ())) for row in self._all(f"{_KEYS} ORDER BY id")]

    def key(self, name: str) -> Key | None:
        return self._key_where("name = %s", name)

    def key_folded(self, folded: str) -> Key | None:
        return self._key_where("folded = %s", folded)

    def add_key(self, key: Key) -> Key:
        added = replace(key, id=self._next(_NEXT_KEY))
        self._run(_ADD_KEY, _key_row(added))
        self._write_secrets(added)
        return added

    def put_key(self, key: Key) -> None:
        self._lock_key(key.id)
        self.shuts_key = self.shuts_key or key.status == DISABLED
        self._run(_PUT_KEY, _key_row(key))
        self._write_secrets(key)

    def delete_key(self, id: int) -> None:
        self._lock_key(id)
        self.shuts_key = True
        self._run("DELETE FROM {schema}.secrets WHERE key_id = %s", (id,))
        self._run("DELETE FROM {schema}.keys WHERE id = %s", (id,))
        self.changed.add((KEYS, str(id)))

    def _lock_key(self, id: int) -> None:
        """Let no other transaction keep anything under the key, and wait for those that do."""
        self._run(_LOCK_KEY, (id,))
        self.ends_keys = True

    def note_accesses(self, times: Mapping[int, float]) -> None:
        ids = sorted(times)
        self._run(_ACCESSED, {"ids": ids, "times": [times[id] for id in ids]})

    def accesses(self, since: float) -> Mapping[int, float]:
        return dict(self._all("SELECT id, last_accessed FROM {schema}.keys WHERE last_accessed >= %s", since))

    def legacy_accessed(self) -> float | None:
        row = self._one("SELECT value FROM {schema}.registry_facts WHERE name = %s", _LEGACY_ACCESSED)
        return float(row[0]) if row else None

    def note_legacy_access(self, at: float) -> None:
        self._run(_PUT_FACT, (_LEGACY_ACCESSED, repr(at)))

    def operators(self) -> Sequence[Operator]:
        return [_operator(row) for row in self._all(f"{_OPERATORS} ORDER BY email")]

    def operator(self, email: str) -> Operator | None:
        row = self._one(f"{_OPERATORS} WHERE email = %s", email)
        return _operator(row) if row else None

    def put_operator(self, operator: Operator) -> None:
        self._run(_PUT_OPERATOR, asdict(operator))
        self.changed.add((OPERATORS, operator.email))

    def delete_operator(self, email: str) -> None:
        self._run("DELETE FROM {schema}.operators WHERE email = %s", (email,))
        self.changed.add((OPERATORS, email))

    def session(self, digest: bytes) -> Session | None:
        row = self._one(f"{_SESSIONS} WHERE digest = %s", digest)
        return _session(row) if row else None

    def sessions(self) -> Sequence[Session]:
        return [_session(row) for row in self._all(f"{_SESSIONS} ORDER BY digest")]

    def put_session(self, session: Session) -> None:
        self._run(_PUT_SESSION, asdict(session))

    def touch_session(self, digest: bytes, seen_at: float) -> None:
        self._run("UPDATE {schema}.sessions SET seen_at = %s WHERE digest = %s", (seen_at, digest))

    def delete_session(self, digest: bytes) -> None:
        self._run("DELETE FROM {schema}.sessions WHERE digest = %s", (digest,))

    def delete_sessions_of(self, account: str) -> None:
        self._run("DELETE FROM {schema}.sessions WHERE account = %s", (account,))
        self._run("DELETE FROM {schema}.links WHERE account = %s", (account,))

    def delete_sessions_before(self, *, created_at: float, seen_at: float) -> None:
        self._run("DELETE FROM {schema}.sessions WHERE created_at <= %s OR seen_at <= %s", (created_at, seen_at))

    def add_link(self, link: ConsoleLink) -> None:
        self._run(_PUT_LINK, asdict(link))

    def take_link(self, digest: bytes) -> ConsoleLink | None:
        self.has_written = True
        row = self._one(f"DELETE FROM {{schema}}.links WHERE digest = %s RETURNING {', '.join(_LINK)}", digest)
        return ConsoleLink(**dict(zip(_LINK, row, strict=True))) if row else None

    def delete_links_before(self, ends_at: float) -> None:
        self._run("DELETE FROM {schema}.links WHERE ends_at <= %s", (ends_at,))

    def insight(self, id: str) -> Insight | None:
        row = self._one(f"{_INSIGHTS} WHERE id = %s", id)
        return _insight(row) if row else None

    def count_insights(self) -> int:
        [[count]] = self._all("SELECT count(*) FROM {schema}.insights")
        return int(count)

    def findings(self) -> Sequence[Insight]:
        return [_insight(row) for row in self._all(f"{_INSIGHTS} WHERE finding IS NOT NULL ORDER BY id")]

    def put_insights(self, insights: Iterable[Insight]) -> None:
        rows = sorted(map(asdict, insights), key=lambda row: str(row["id"]))
        if not rows:
            return
        self.has_written = True
        with self._connection.cursor() as cursor:
            cursor.executemany(self._sql(_PUT_INSIGHT), rows)
        self.changed.add((INSIGHTS, ""))

    def delete_insight(self, id: str) -> None:
        self._run("DELETE FROM {schema}.insights WHERE id = %s", (id,))
        self.changed.add((INSIGHTS, ""))

    def delete_findings_before(self, found_at: float) -> None:
        self._run(
            "DELETE FROM {schema}.insights WHERE finding IS NOT NULL AND NOT present AND NOT touched AND found_at < %s",
            (found_at,),
        )

    def insight_page(self, query: ListQuery) -> ListPage[Insight]:
        return read_page(self._connection, "insights", _INSIGHT, query, _insight, sql=self._sql)

    def comments(self, insight: str) -> Sequence[Comment]:
        return [_comment(row) for row in self._all(f"{_COMMENTS} WHERE insight = %s ORDER BY id", insight)]

    def add_comment(self, comment: Comment) -> Comment:
        added = replace(comment, id=self._next(_NEXT_COMMENT))
        self._run(_ADD_COMMENT, asdict(added))
        self.changed.add((INSIGHTS, ""))
        return added

    def put_comment(self, comment: Comment) -> None:
        self._run(
            "UPDATE {schema}.comments SET text = %(text)s, last_updated = %(last_updated)s WHERE id = %(id)s",
            asdict(comment),
        )
        self.changed.add((INSIGHTS, ""))

    def delete_comments(self, insight: str) -> None:
        self._run("DELETE FROM {schema}.comments WHERE insight = %s", (insight,))

    def connections(self) -> Sequence[BillingConnection]:
        return [_connection(row) for row in self._all(f"{_select('connections', _CONNECTION)} ORDER BY id")]

    def put_connection(self, connection: BillingConnection) -> None:
        row = asdict(connection)
        row["s3_bucket"] = row["s3_bucket"] and json.dumps(row["s3_bucket"])
        self._run(_PUT_CONNECTION, row)
        self.changed.add((CONNECTIONS, connection.id))

    def delete_connection(self, id: str) -> None:
        self._run("DELETE FROM {schema}.connections WHERE id = %s", (id,))
        self.changed.add((CONNECTIONS, id))

    def documents(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        rows = self._all("SELECT id, body FROM {schema}.documents WHERE kind = %s ORDER BY id", kind)
        return {id: json.loads(body) for id, body in rows}

    def document(self, kind: str, id: str) -> Mapping[str, Any] | None:
        row = self._one("SELECT body FROM {schema}.documents WHERE kind = %s AND id = %s", kind, id)
        return json.loads(row[0]) if row else None

    def put_document(self, kind: str, id: str, body: Mapping[str, Any]) -> None:
        self._run(_PUT_DOCUMENT, (kind, id, json.dumps(body)))
        self.changed.add((DOCUMENTS, kind))

    def delete_document(self, kind: str, id: str) -> None:
        self._run("DELETE FROM {schema}.documents WHERE kind = %s AND id = %s", (kind, id))
        self.changed.add((DOCUMENTS, kind))

    def add_audit(
        self,
        at: float,
        actor: Actor,
        action: str,
        target: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        if actor.expects:
            check_bearers(self._connection, self._sql, actor.expects, now=self._now)
        row = dict[str, object](at=at, actor=actor.name, address=actor.address, action=action, target=target)
        row["before"] = None if before is None else json.dumps(before)
        row["after"] = None if after is None else json.dumps(after)
        self._run(_ADD_AUDIT, row)
        self.is_audited = True

    def audit_page(self, query: ListQuery) -> ListPage[AuditRow]:
        return read_page(self._connection, "audit", _AUDIT, query, _audit_row, sql=self._sql)

    def _run(self, statement: str, values: Sequence[object] | Mapping[str, object]) -> None:
        self.has_written = True
        self._connection.execute(self._sql(statement), values)

    def _all(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(self._sql(statement), values).fetchall()

    def _one(self, statement: str, *values: object) -> Any:
        return self._connection.execute(self._sql(statement), values).fetchone()

    def _next(self, statement: str) -> int:
        self.has_written = True
        [number] = self._one(statement)
        return int(number)

    def _key_where(self, condition: str, value: str) -> Key | None:
        row = self._one(f"{_KEYS} WHERE {condition}", value)
        if row is None:
            return None
        secrets = self._all(f"{_SECRETS} WHERE key_id = %s ORDER BY place", row[0])
        return _key(row, [Secret(digest, ends_at) for _, digest, ends_at in secrets])

    def _write_secrets(self, key: Key) -> None:
        self._run("DELETE FROM {schema}.secrets WHERE key_id = %s", (key.id,))
        for place, secret in enumerate(key.secrets):
            self._run(
                "INSERT INTO {schema}.secrets (digest, key_id, place, ends_at) VALUES (%s, %s, %s, %s)",
                (secret.digest, key.id, place, secret.ends_at),
            )
        self.changed.add((KEYS, str(key.id)))


def _operator(row: Sequence[Any]) -> Operator:
    return Operator(**dict(zip(_OPERATOR, row, strict=True)))


def _session(row: Sequence[Any]) -> Session:
    return Session(**dict(zip(_SESSION, row, strict=True)))


def _key(row: Sequence[Any], secrets: Sequence[Secret]) -> Key:
    values = dict(zip(_KEY, row, strict=True))
    scopes, use_cases, labels = (json.loads(values.pop(name)) for name in _JSON_OF_KEY)
    return Key(**values, scopes=tuple(scopes), use_cases=tuple(use_cases), labels=labels, secrets=tuple(secrets))


def _key_row(key: Key) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(key, name) for name in _KEY}
    row.update({name: json.dumps(row[name]) for name in _JSON_OF_KEY})
    return {**row, "folded": folded(key.name)}


def _connection(row: Sequence[Any]) -> BillingConnection:
    values = dict(zip(_CONNECTION, row, strict=True))
    bucket = values.pop("s3_bucket")
    return BillingConnection(**values, s3_bucket=None if bucket is None else S3Bucket(**json.loads(bucket)))


def _insight(row: Sequence[Any]) -> Insight:
    return Insight(**dict(zip(_INSIGHT, row, strict=True)))


def _comment(row: Sequence[Any]) -> Comment:
    return Comment(**dict(zip(_COMMENT, row, strict=True)))


def _audit_row(row: Sequence[Any]) -> AuditRow:
    values = dict(zip(_AUDIT, row, strict=True))
    for name in ("before", "after"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return AuditRow(**values)
