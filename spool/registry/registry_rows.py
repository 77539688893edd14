"""The protocols that an engine implements for the registry. The rules are in `spool.registry.tables`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from spool.listing import ListPage, ListQuery
from spool.registry.audit import AuditRow
from spool.registry.connections import BillingConnection
from spool.registry.documents import DocumentRows
from spool.registry.following import RegistryNews
from spool.registry.insights import Comment, Insight
from spool.registry.keys import Key
from spool.registry.operators import Actor, ConsoleLink, Operator, Session
from spool.registry.viewings import Viewing

T = TypeVar("T")
# Row classes that engines store in the same way, and the id field of each class.
ROW_IDS: Mapping[type[Any], str] = {
    Operator: "email",
    Session: "digest",
    ConsoleLink: "digest",
    Insight: "id",
    Comment: "id",
    BillingConnection: "id",
}


# Returns new values of a row. It gets the table or the kind of a document, the id, and the values by name.
Rewriting = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]


class RegistryRows(DocumentRows, Protocol):
    """
    The rows within one transaction. `put...` adds a row, or replaces the row with the same id (see ROW_IDS).
    """

    def all(self, kind: type[T]) -> Sequence[T]:
        """Return the rows of a kind, ordered by id."""
        ...

    def find(self, kind: type[T], id: str | bytes) -> T | None: ...

    def put(self, row: object) -> None: ...

    def delete(self, kind: type[Any], id: str | bytes | int) -> None: ...

    def rewrite_texts(self, rewritten: Rewriting, skipped: Collection[str]) -> None:
        """
        Replace values of rows that have texts of people or names, in all tables and all kinds of documents but
        `skipped`. JSON values are decoded.
        """
        ...

    def check_actor(self, actor: Actor) -> None:
        """
        Raise KeyEnded if a key makes the change and that key has ended. `add_audit` checks this as well.
        """
        ...

    def keys(self) -> Sequence[Key]:
        """Return all keys ordered by id, each with its secrets in the order of their creation."""
        ...

    def key(self, name: str) -> Key | None: ...

    def key_by_folded_name(self, folded: str) -> Key | None:
        """Return the key whose folded name is `folded`, or None."""
        ...

    def add_key(self, key: Key) -> Key:
        """Add a key and return it with its new id. Ids are never reused."""
        ...

    def put_key(self, key: Key) -> None: ...

    def delete_key(self, id: int) -> None: ...

    def note_accesses(self, times: Mapping[int, float]) -> None:
        """
        Store the times of last access, by key id. Times that are earlier than the stored one, and unknown
        ids, are ignored.
        """
        ...

    def access_times(self, since: float) -> Mapping[int, float]:
        """Return the times of last access that are at or after `since`, by key id."""
        ...

    def touch_session(self, digest: bytes, seen_at: float) -> None:
        """Update the time when a session was last seen. Does nothing if the session is deleted."""
        ...

    def delete_sessions_of(self, account: str) -> None:
        """
        Delete the sessions of an operator account, the sessions that began with its console links, and
        its unused links.
        """
        ...

    def delete_sessions_before(self, *, created_at: float, seen_at: float) -> None:
        """Delete sessions that began at or before `created_at`, or were last seen at or before `seen_at`."""
        ...

    def take_link(self, digest: bytes) -> ConsoleLink | None:
        """Delete a link and return it. Return None if it does not exist."""
        ...

    def delete_links_before(self, ends_at: float) -> None: ...

    def count_insights(self) -> int: ...

    def findings(self) -> Sequence[Insight]:
        """Return the insights that a detector found."""
        ...

    def open_insights(self) -> Sequence[Insight]: ...

    def put_insights(self, insights: Iterable[Insight]) -> None: ...

    def delete_findings_before(self, found_at: float) -> None:
        """
        Delete findings that were last found before this time. Keep findings that are still present or that
        a person edited.
        """
        ...

    def insight_page(self, query: ListQuery) -> ListPage[Insight]: ...

    def comments(self, insight: str) -> Sequence[Comment]:
        """Return the comments on an insight, ordered by id."""
        ...

    def add_comment(self, comment: Comment) -> Comment:
        """Add a comment and return it with its new id. Ids are never reused."""
        ...

    def delete_comments(self, insight: str) -> None: ...

    def add_audit(
        self,
        at: float,
        actor: Actor,
        action: str,
        target: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        """Add an audit row. `before` and `after` are JSON objects. Raises KeyEnded like `check_actor`."""
        ...

    def audit_page(self, query: ListQuery) -> ListPage[AuditRow]: ...

    def add_viewing(self, viewing: Viewing) -> None:
        """Add a row, unless a row differs from it only in the id."""
        ...

    def delete_viewings_before(self, day: str) -> None: ...

    def viewed_people(self, day: str, viewer: str) -> set[str]: ...

    def viewings_naming(self, name: str) -> Sequence[Viewing]:
        """Return the rows of a viewer or a person with this name, oldest first."""
        ...

    def viewing_page(self, query: ListQuery) -> ListPage[Viewing]: ...


class RegistryStore(Protocol):
    """The registry's rows in an engine, read and changed in transactions."""

    @property
    def is_shared(self) -> bool:
        """Return True if other processes may change the rows as well."""
        ...

    @property
    def ends_keys(self) -> bool:
        """
        Return True if the newest change ended a key, because running commits of other processes may still
        use the key.
        """
        ...

    async def outlast_commits(self) -> None:
        """Wait until running commits that use ended keys are stored or rejected."""
        ...

    async def change(self, work: Callable[[RegistryRows], T], *, is_long: bool = False) -> T:
        """
        Run `work` in one transaction. When this returns, all its changes are durable. If it raises,
        nothing is changed. With `is_long`, `work` may compute for seconds between two statements.

        Raises SpoolUnavailable if the storage cannot be written now, and RegistryDamaged if the rows cannot
        be read. If `work` only reads, or raises, its result depends on the rows that it read. Unless these
        rows survive the loss of the database machine, NotCertain is raised.
        """
        ...

    async def overwrite(self) -> str:
        """Remove what deleted and replaced rows left behind. Return why some may be left, or ""."""
        ...

    async def wait_until_durable(self) -> None:
        """
        Wait until the current state survives the loss of the database machine. Call it before reporting state
        to a client that requested a change.

        Raises NotCertain if durability is unknown.
        """
        ...

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        """Run `work`, which must change nothing, on one consistent snapshot."""
        ...

    async def changes_since(self, since: int | None) -> RegistryNews:
        """
        Return the changes of other processes after position `since`. If `since` is None, return only
        the newest position.

        Must not be called while a change of this process runs.
        """
        ...

    async def close(self) -> None: ...
