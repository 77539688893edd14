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
from spool.registry.keys import ApiKey
from spool.registry.operators import Actor, ConsoleLink, Operator, SignInSession
from spool.registry.viewings import Viewing

T = TypeVar("T")
# Rows that engines store in the same way, with their id field.
ROW_IDS: Mapping[type[Any], str] = {
    Operator: "email",
    SignInSession: "digest",
    ConsoleLink: "digest",
    Insight: "id",
    Comment: "id",
    BillingConnection: "id",
}


# function that gets a table or kind of document, an id, and values by name; it returns new values
Rewriting = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]


class RegistryRows(DocumentRows, Protocol):
    """The rows within one transaction. `put...` methods replace the row with the same id (see ROW_IDS)."""

    def all(self, kind: type[T]) -> Sequence[T]: ...  # all rows of a kind, ordered by id

    def find(self, kind: type[T], id: str | bytes) -> T | None: ...

    def store_row(self, row: object) -> None: ...

    def delete(self, kind: type[Any], id: str | bytes | int) -> None: ...

    def rewrite_texts(self, rewritten: Rewriting, skipped: Collection[str]) -> None:
        """
        Rewrite values that have texts or names of people, in all tables and kinds of documents except
        `skipped`. JSON values are passed decoded.
        """
        ...

    def announce_changes_without_ids(self) -> None:
        """
        Do not announce the ids of rows changed so far, because ids of the kinds in NAMED are names of people.
        Other processes then read everything.
        """
        ...

    def require_valid_actor_key(self, actor: Actor) -> None:
        """Raise KeyEnded if the actor's key has ended. `add_audit` does the same."""
        ...

    def keys(self) -> Sequence[ApiKey]:
        """Return the keys by id, each with its secrets in order of creation."""
        ...

    def find_key_by_name(self, name: str) -> ApiKey | None: ...

    def find_key_by_folded_name(self, folded: str) -> ApiKey | None: ...

    def add_key(self, key: ApiKey) -> ApiKey:
        """Add a key. Return it with its new id, which is never reused."""
        ...

    def put_key(self, key: ApiKey) -> None: ...

    def delete_key(self, id: int) -> None: ...

    def store_access_times(self, times: Mapping[int, float]) -> None:
        """Store when keys were last used. Times before the stored one, and unknown ids, are ignored."""
        ...

    def key_access_times_by_id(self, since: float) -> Mapping[int, float]: ...

    def store_session_seen_at(self, digest: bytes, seen_at: float) -> None: ...  # ignores deleted sessions

    def delete_sessions_of(self, account: str) -> None:
        """Delete the account's sessions, the sessions of its console links, and its unused links."""
        ...

    def delete_sessions_before(self, *, created_at: float, seen_at: float) -> None:
        """Delete sessions that began, or were last seen, at or before a time."""
        ...

    def find_and_delete_sign_in_link(self, digest: bytes) -> ConsoleLink | None: ...  # deletes the link

    def delete_links_before(self, ends_at: float) -> None: ...

    def count_insights(self) -> int: ...

    def detector_insights(self) -> Sequence[Insight]: ...

    def open_insights(self) -> Sequence[Insight]: ...

    def store_insights(self, insights: Iterable[Insight]) -> None: ...

    def delete_findings_before(self, found_at: float) -> None:
        """
        Delete insights that a detector last found before a time, except those marked as present or edited by
        a person.
        """
        ...

    def insight_page(self, query: ListQuery) -> ListPage[Insight]: ...

    def comments(self, insight: str) -> Sequence[Comment]: ...  # comments ordered by id

    def add_comment(self, comment: Comment) -> Comment:
        """Add a comment. Return it with its new id, which is never reused."""
        ...

    def delete_comments(self, insight: str) -> None: ...

    def add_audit(
        self,
        recorded_at: float,
        actor: Actor,
        action: str,
        target: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        """Add an audit row. `before` and `after` are JSON objects. Raises KeyEnded if the actor's key has ended."""
        ...

    def audit_page(self, query: ListQuery) -> ListPage[AuditRow]: ...

    def add_viewing(self, viewing: Viewing) -> None:
        """Add a viewing, unless a stored one differs only in the id."""
        ...

    def delete_viewings_before(self, day: str) -> None: ...

    def viewed_people(self, day: str, viewer: str) -> set[str]: ...

    def viewings_naming(self, name: str) -> Sequence[Viewing]:
        """Return viewings that name someone as viewer or person, oldest first."""
        ...

    def viewing_page(self, query: ListQuery) -> ListPage[Viewing]: ...


class RegistryStore(Protocol):
    @property
    def is_shared(self) -> bool: ...

    @property
    def ends_keys(self) -> bool:
        """
        Return whether the newest change ended a key that running commits of other processes may still use.
        """
        ...

    async def wait_for_running_commits(self) -> None:
        """Wait until running commits that use ended keys have finished."""
        ...

    async def change(self, work: Callable[[RegistryRows], T], *, is_long: bool = False) -> T:
        """
        Run `work` in one durable transaction. If it raises, nothing changes. `is_long`: it may compute for
        seconds between statements.

        Raises SpoolUnavailable or RegistryDamaged. Raises NotCertain if `work` wrote nothing, but the rows
        that it read may not survive the loss of the database machine.
        """
        ...

    async def overwrite_deleted_data(self) -> str:
        """Overwrite what deleted and replaced rows left on disk. Return why some may remain, or ""."""
        ...

    async def wait_until_durable(self) -> None:
        """Wait until the state survives the loss of the database machine. Raises NotCertain."""
        ...

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        """Run `work`, which must not change rows, on one snapshot."""
        ...

    async def changes_since(self, since_sequence_number: int | None) -> RegistryNews:
        """
        Return the changes by other processes after the position `since_sequence_number`. If it is None, return only the
        newest position.

        Do not call this while a change of this process runs.
        """
        ...

    async def close(self) -> None: ...
