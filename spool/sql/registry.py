"""The rows of the registry in SQL, read and written in the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from spool.errors import RowDamaged
from spool.listing import ListPage, ListQuery
from spool.registry.audit import AuditRow
from spool.registry.connections import BillingConnection, S3Bucket
from spool.registry.documents import split_into_portions
from spool.registry.following import CONNECTIONS, INSIGHTS, KEYS, OPERATORS, document_subject
from spool.registry.insights import OPEN, Comment, Insight
from spool.registry.keys import DISABLED, ApiKey, Secret, fold_name
from spool.registry.operators import Actor, ConsoleLink, Operator, SignInSession
from spool.registry.registry_rows import ROW_IDS, Rewriting
from spool.registry.viewings import Viewing
from spool.sql.columns import (
    JSON,
    JSON_TUPLE,
    ColumnForm,
    RowColumns,
    insert_sql,
    select_sql,
    update_sql,
    upsert_sql,
)
from spool.sql.connection import SqlConnection
from spool.sql.lists import read_page

Row = TypeVar("Row")

_OF_KEY = {"scopes": JSON_TUPLE, "use_cases": JSON_TUPLE, "labels": JSON}
_KEY = RowColumns(ApiKey, forms=_OF_KEY, without=("secrets",))
_BUCKET = ColumnForm(lambda bucket: json.dumps(asdict(bucket)), lambda text: S3Bucket(**json.loads(text)))
_AUDIT = RowColumns(AuditRow, forms={"before": JSON, "after": JSON})

_KEYS = select_sql("keys", _KEY.names)
_ADD_KEY = f"{insert_sql('keys', (*_KEY.names, 'folded'))} RETURNING id"
_NOT_CHANGED = ("id", "created_by", "last_accessed")
_PUT_KEY = update_sql("keys", [*(name for name in _KEY.names if name not in _NOT_CHANGED), "folded"], "id")
# an earlier time, written after a clock was set back, would make a key look unused for longer
_ACCESSED = """
    UPDATE {schema}.keys SET last_accessed = :at
     WHERE id = :id AND (last_accessed IS NULL OR last_accessed < :at)"""


class _Table(Generic[Row]):
    """
    A table that stores a row class. `news`: the kind under which its changes are announced to other
    processes.
    """

    def __init__(
        self, name: str, kind: type[Row], *, news: str = "", forms: Mapping[str, ColumnForm] = {}
    ) -> None:
        self.columns = RowColumns(kind, forms=forms)
        self.id = ROW_IDS[kind]
        self.name, self.news = name, news
        self.select = select_sql(name, self.columns.names)
        self.put = upsert_sql(name, self.columns.names, self.id)
        self.delete = f"DELETE FROM {{schema}}.{name} WHERE {self.id} = :id"


_LINK = _Table("links", ConsoleLink)
_INSIGHT = _Table("insights", Insight, news=INSIGHTS)
_COMMENT = _Table("comments", Comment, news=INSIGHTS)
_TABLES: Mapping[type[Any], _Table[Any]] = {
    Operator: _Table("operators", Operator, news=OPERATORS),
    SignInSession: _Table("sessions", SignInSession),
    ConsoleLink: _LINK,
    Insight: _INSIGHT,
    Comment: _COMMENT,
    BillingConnection: _Table(
        "connections", BillingConnection, news=CONNECTIONS, forms={"s3_bucket": _BUCKET}
    ),
}


class _Texts(NamedTuple):
    """
    A table that contains names or texts of people. `news`: the kind under which its changes are announced.
    """

    id: str
    columns: tuple[str, ...]
    news: str = ""


_TEXTS: Mapping[str, _Texts] = {
    "keys": _Texts("id", ("description", "labels", "created_by", "updated_by"), KEYS),
    "operators": _Texts("email", ("created_by",), OPERATORS),
    "sessions": _Texts("digest", ("actor",)),
    "links": _Texts("digest", ("actor",)),
    "audit": _Texts("id", ("actor", "target", "before", "after")),
    "insights": _Texts("id", ("finding", "title", "description", "concerns"), INSIGHTS),
    "comments": _Texts("id", ("text", "author"), INSIGHTS),
    "connections": _Texts("id", ("name",), CONNECTIONS),
    "viewings": _Texts("id", ("viewer", "person", "reason")),
}
_JSON = frozenset(("labels", "before", "after", "concerns"))
_DOCUMENT_KINDS = "SELECT DISTINCT kind FROM {schema}.documents ORDER BY kind"
_TOUCH_SESSION = update_sql("sessions", ["seen_at"], "digest")
_END_SESSIONS = "DELETE FROM {schema}.sessions WHERE created_at <= :created_at OR seen_at <= :seen_at"
_TAKE_LINK = f"{_LINK.delete} RETURNING {', '.join(_LINK.columns.names)}"
_DELETE_FINDINGS = """
    DELETE FROM {schema}.insights
     WHERE finding IS NOT NULL AND NOT present AND NOT touched AND found_at < :found_at"""
_OPEN_INSIGHTS = f"{_INSIGHT.select} WHERE status IN {OPEN}"
_COMMENTS = f"{_COMMENT.select} WHERE insight = :insight ORDER BY id"
_ADD_COMMENT = f"{insert_sql('comments', _COMMENT.columns.names)} RETURNING id"
_DOCUMENTS = "SELECT id, body FROM {schema}.documents WHERE kind = :kind"
_PAGE = 1000
_DOCUMENT_PAGE = f"{_DOCUMENTS} AND id > :after ORDER BY id LIMIT {_PAGE}"
_PUT_DOCUMENT = upsert_sql("documents", ("kind", "id", "body"), "kind", "id")
_DELETE_DOCUMENTS = "DELETE FROM {schema}.documents WHERE kind = :kind AND id IN :ids"
# rows are never deleted, so numbers have no gaps
_ADD_AUDIT = """
    INSERT INTO {schema}.audit (id, at, actor, address, action, target, before, after)
    VALUES ((SELECT coalesce(max(id), 0) + 1 FROM {schema}.audit),
            :at, :actor, :address, :action, :target, :before, :after)"""

_VIEWING = RowColumns(Viewing)
_ADD_VIEWING = """
    INSERT INTO {schema}.viewings (id, day, viewer, person, face, page, reason)
    VALUES ((SELECT coalesce(max(id), 0) + 1 FROM {schema}.viewings),
            :day, :viewer, :person, :face, :page, :reason)
    ON CONFLICT (day, viewer, person, face, page, reason) DO NOTHING"""
_PEOPLE_VIEWED = "SELECT DISTINCT person FROM {schema}.viewings WHERE day = :day AND viewer = :viewer"


class SqlRegistryRows:
    """
    Implements `spool.registry.registry_rows.RegistryRows`.

    A shared engine overrides `_announce_change`, `announce_changes_without_ids`, `_lock_key`,
    `require_valid_actor_key` and `_prepare_write`, and `_new_id` if tables assign no numbers.
    """

    facts: ClassVar = "facts"
    secret_names: ClassVar[Sequence[str]] = ("digest", "key_id", "ends_at")
    # order in which secrets were written
    secret_order: ClassVar = "rowid"

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self.is_audited = False

    def all(self, kind: type[Row]) -> Sequence[Row]:
        table = _TABLES[kind]
        return [table.columns.read_row(row) for row in self._read_rows(f"{table.select} ORDER BY {table.id}")]

    def find(self, kind: type[Row], id: str | bytes) -> Row | None:
        table = _TABLES[kind]
        row = self._first_row(f"{table.select} WHERE {table.id} = :id", id=id)
        return table.columns.read_row(row) if row else None

    def store_row(self, row: object) -> None:
        table = _TABLES[type(row)]
        values = table.columns.stored_values(row)
        self._write(table.put, **values)
        self._announce_changed_row(table, values[table.id])

    def delete(self, kind: type[Any], id: str | bytes | int) -> None:
        table = _TABLES[kind]
        self._write(table.delete, id=id)
        self._announce_changed_row(table, id)

    def keys(self) -> Sequence[ApiKey]:
        secrets: dict[int, list[Secret]] = {}
        for key_id, digest, ends_at in self._read_rows(
            f"{self._secrets_sql} ORDER BY key_id, {self.secret_order}"
        ):
            secrets.setdefault(key_id, []).append(Secret(digest, ends_at))
        return [_build_key(row, secrets.get(row[0], ())) for row in self._read_rows(f"{_KEYS} ORDER BY id")]

    def find_key_by_name(self, name: str) -> ApiKey | None:
        return self._find_key_where("name", name)

    def find_key_by_folded_name(self, folded: str) -> ApiKey | None:
        return self._find_key_where("folded", folded)

    def add_key(self, key: ApiKey) -> ApiKey:
        [id] = self._write_and_return_row(_ADD_KEY, **{**_key_values(key), "id": self._new_id("key")})
        added = replace(key, id=id)
        self._write_secrets(added)
        return added

    def put_key(self, key: ApiKey) -> None:
        self._lock_key(key.id, ends_all_secrets=key.status == DISABLED)
        self._write(_PUT_KEY, **_key_values(key))
        self._write_secrets(key)

    def delete_key(self, id: int) -> None:
        self._lock_key(id, ends_all_secrets=True)
        self._write("DELETE FROM {schema}.secrets WHERE key_id = :id", id=id)
        self._write("DELETE FROM {schema}.keys WHERE id = :id", id=id)
        self._announce_change(KEYS, str(id))

    def store_access_times(self, times: Mapping[int, float]) -> None:
        self._write_each(_ACCESSED, [{"id": id, "at": at} for id, at in sorted(times.items())])

    def key_access_times_by_id(self, since: float) -> Mapping[int, float]:
        statement = f"{select_sql('keys', ('id', 'last_accessed'))} WHERE last_accessed >= :since"
        return dict(self._read_rows(statement, since=since))

    def store_session_seen_at(self, digest: bytes, seen_at: float) -> None:
        self._write(_TOUCH_SESSION, digest=digest, seen_at=seen_at)

    def delete_sessions_of(self, account: str) -> None:
        self._write("DELETE FROM {schema}.sessions WHERE account = :account", account=account)
        self._write("DELETE FROM {schema}.links WHERE account = :account", account=account)

    def delete_sessions_before(self, *, created_at: float, seen_at: float) -> None:
        self._write(_END_SESSIONS, created_at=created_at, seen_at=seen_at)

    def find_and_delete_sign_in_link(self, digest: bytes) -> ConsoleLink | None:
        row = self._write_and_return_row(_TAKE_LINK, id=digest)
        return _LINK.columns.read_row(row) if row else None

    def delete_links_before(self, ends_at: float) -> None:
        self._write("DELETE FROM {schema}.links WHERE ends_at <= :ends_at", ends_at=ends_at)

    def count_insights(self) -> int:
        [count] = self._first_row("SELECT count(*) FROM {schema}.insights")
        return int(count)

    def detector_insights(self) -> Sequence[Insight]:
        rows = self._read_rows(f"{_INSIGHT.select} WHERE finding IS NOT NULL ORDER BY id")
        return [_INSIGHT.columns.read_row(row) for row in rows]

    def open_insights(self) -> Sequence[Insight]:
        return [_INSIGHT.columns.read_row(row) for row in self._read_rows(_OPEN_INSIGHTS)]

    def store_insights(self, insights: Iterable[Insight]) -> None:
        rows = [
            _INSIGHT.columns.stored_values(insight)
            for insight in sorted(insights, key=lambda insight: insight.id)
        ]
        if rows:
            self._write_each(_INSIGHT.put, rows)
            self._announce_change(INSIGHTS, "")

    def delete_findings_before(self, found_at: float) -> None:
        self._write(_DELETE_FINDINGS, found_at=found_at)

    def insight_page(self, query: ListQuery) -> ListPage[Insight]:
        return read_page(
            self._connection, "insights", _INSIGHT.columns.names, query, _INSIGHT.columns.read_row
        )

    def comments(self, insight: str) -> Sequence[Comment]:
        return [_COMMENT.columns.read_row(row) for row in self._read_rows(_COMMENTS, insight=insight)]

    def add_comment(self, comment: Comment) -> Comment:
        values = {**_COMMENT.columns.stored_values(comment), "id": self._new_id("comment")}
        [id] = self._write_and_return_row(_ADD_COMMENT, **values)
        self._announce_change(INSIGHTS, "")
        return replace(comment, id=id)

    def delete_comments(self, insight: str) -> None:
        self._write("DELETE FROM {schema}.comments WHERE insight = :insight", insight=insight)

    def rewrite_texts(self, rewritten: Rewriting, skipped: Collection[str]) -> None:
        for name, table in _TEXTS.items():
            self._rewrite_texts_of_table(name, table, rewritten)
        for kind in {kind for (kind,) in self._read_rows(_DOCUMENT_KINDS)} - {*skipped}:
            for id, before in self.documents(kind).items():
                if (after := rewritten(kind, id, before)) != before:
                    self.put_document(kind, id, after)

    def _rewrite_texts_of_table(self, name: str, table: _Texts, rewrite_row: Rewriting) -> None:
        for id, *values in self._read_rows(
            f"{select_sql(name, (table.id, *table.columns))} ORDER BY {table.id}"
        ):
            row = dict(zip(table.columns, values, strict=True))
            before = {column: _decode_column(column, value) for column, value in row.items()}
            after = rewrite_row(name, str(id), before)
            changed = {
                column: _encode_column(column, after[column])
                for column in row
                if after[column] != before[column]
            }
            if changed:
                self._write(update_sql(name, [*changed], table.id), **changed, **{table.id: id})
                if table.news:
                    self._announce_change(table.news, "" if table.news == INSIGHTS else str(id))

    def documents(self, kind: str, ids: Iterable[str] | None = None) -> Mapping[str, Mapping[str, Any]]:
        if ids is None:
            rows = self._read_rows(f"{_DOCUMENTS} ORDER BY id", kind=kind)
        else:
            rows = self._read_rows(f"{_DOCUMENTS} AND id IN :ids ORDER BY id", kind=kind, ids=list(ids))
        return {id: _decode_document(kind, body) for id, body in rows}

    def each_document(self, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        after, size = "", _PAGE
        while size == _PAGE:
            page = self._read_rows(_DOCUMENT_PAGE, kind=kind, after=after)
            for after, body in page:
                yield after, _decode_document(kind, body)
            size = len(page)

    def document(self, kind: str, id: str) -> Mapping[str, Any] | None:
        row = self._first_row(f"{_DOCUMENTS} AND id = :id", kind=kind, id=id)
        return _decode_document(kind, row[1]) if row else None

    def put_document(self, kind: str, id: str, body: Mapping[str, Any]) -> None:
        self.put_documents(kind, [(id, body)])

    def put_documents(self, kind: str, bodies: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        for portion in split_into_portions(bodies):
            rows = [{"kind": kind, "id": id, "body": json.dumps(body)} for id, body in portion]
            self._write_each(_PUT_DOCUMENT, rows)
            for id, _ in portion:
                self._announce_change(*document_subject(kind, id))

    def delete_document(self, kind: str, id: str) -> None:
        self.delete_documents(kind, [id])

    def delete_documents(self, kind: str, ids: Iterable[str]) -> None:
        for portion in split_into_portions(ids):
            self._write(_DELETE_DOCUMENTS, kind=kind, ids=portion)
            for id in portion:
                self._announce_change(*document_subject(kind, id))

    def add_audit(
        self,
        recorded_at: float,
        actor: Actor,
        action: str,
        target: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        self.require_valid_actor_key(actor)
        self.is_audited = True
        self._write(
            _ADD_AUDIT,
            at=recorded_at,
            actor=actor.name,
            address=actor.address,
            action=action,
            target=target,
            before=None if before is None else json.dumps(before),
            after=None if after is None else json.dumps(after),
        )

    def audit_page(self, query: ListQuery) -> ListPage[AuditRow]:
        return read_page(self._connection, "audit", _AUDIT.names, query, _AUDIT.read_row)

    def add_viewing(self, viewing: Viewing) -> None:
        values = _VIEWING.stored_values(viewing)
        del values["id"]
        self._write(_ADD_VIEWING, **values)

    def delete_viewings_before(self, day: str) -> None:
        self._write("DELETE FROM {schema}.viewings WHERE day < :day", day=day)

    def viewed_people(self, day: str, viewer: str) -> set[str]:
        return {person for (person,) in self._read_rows(_PEOPLE_VIEWED, day=day, viewer=viewer)}

    def viewings_naming(self, name: str) -> Sequence[Viewing]:
        statement = (
            f"{select_sql('viewings', _VIEWING.names)} WHERE person = :name OR viewer = :name ORDER BY id"
        )
        return [_VIEWING.read_row(row) for row in self._read_rows(statement, name=name)]

    def viewing_page(self, query: ListQuery) -> ListPage[Viewing]:
        return read_page(self._connection, "viewings", _VIEWING.names, query, _VIEWING.read_row)

    def _announce_change(self, kind: str, id: str) -> None:
        """
        Announce a change to processes that have the row in memory. The kinds are in
        `spool.registry.following`.
        """

    def _announce_changed_row(self, table: _Table[Any], id: object) -> None:
        if table.news:
            self._announce_change(table.news, "" if table.news == INSIGHTS else str(id))

    def _lock_key(self, id: int, *, ends_all_secrets: bool) -> None:
        """Lock a key's row in shared engines. `ends_all_secrets`: no secret of the key works after the change."""

    def announce_changes_without_ids(self) -> None:
        """Do nothing, because the only process announces nothing."""

    def require_valid_actor_key(self, actor: Actor) -> None:
        """Do nothing, because the only process has checked its keys."""

    def _prepare_write(self) -> None:
        """Prepare the next write. Shared engines override this."""

    def _new_id(self, kind: str) -> int | None:
        return None

    def _read_rows(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return self._connection.all(statement, **values)

    def _first_row(self, statement: str, **values: object) -> Any:
        return self._connection.first_row(statement, **values)

    def _write(self, statement: str, **values: object) -> None:
        self._prepare_write()
        self._connection.run(statement, **values)

    def _write_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        self._prepare_write()
        self._connection.run_each(statement, rows)

    def _write_and_return_row(self, statement: str, **values: object) -> Any:
        self._prepare_write()
        return self._connection.first_row(statement, **values)

    @property
    def _secrets_sql(self) -> str:
        return select_sql("secrets", ("key_id", "digest", "ends_at"))

    def _find_key_where(self, name: str, value: str) -> ApiKey | None:
        row = self._first_row(f"{_KEYS} WHERE {name} = :value", value=value)
        if row is None:
            return None
        secrets = self._read_rows(
            f"{self._secrets_sql} WHERE key_id = :id ORDER BY {self.secret_order}", id=row[0]
        )
        return _build_key(row, [Secret(digest, ends_at) for _, digest, ends_at in secrets])

    def _write_secrets(self, key: ApiKey) -> None:
        self._write("DELETE FROM {schema}.secrets WHERE key_id = :id", id=key.id)
        rows = [
            {"digest": secret.digest, "key_id": key.id, "ends_at": secret.ends_at, "place": index}
            for index, secret in enumerate(key.secrets)
        ]
        self._write_each(insert_sql("secrets", self.secret_names), rows)
        self._announce_change(KEYS, str(key.id))


def _decode_column(column: str, value: Any) -> Any:
    return json.loads(value) if column in _JSON and value else value


def _encode_column(column: str, value: Any) -> Any:
    return json.dumps(value) if column in _JSON and value is not None else value


def _decode_document(kind: str, body: str) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (TypeError, ValueError) as error:
        raise RowDamaged(f"a stored document of kind {kind} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise RowDamaged(f"a stored document of kind {kind} is not a JSON object")
    return document


def _build_key(row: Sequence[Any], secrets: Sequence[Secret]) -> ApiKey:
    return _KEY.read_row(row, secrets=tuple(secrets))


def _key_values(key: ApiKey) -> dict[str, Any]:
    return {**_KEY.stored_values(key), "folded": fold_name(key.name)}
