"""
What an engine owes the registry: its rows, in transactions. Every rule stands above, in `spool.registry.tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from spool.listing import ListPage, ListQuery
from spool.registry.audit import AuditRow
from spool.registry.connections import BillingConnection
from spool.registry.documents import DocumentRows
from spool.registry.following import RegistryNews
from spool.registry.insights import Comment, Insight
from spool.registry.keys import Key
from spool.registry.operators import Actor, ConsoleLink, Operator, Session

T = TypeVar("T")
# Rows that are kept alike, and the field by which each is found.
ROW_IDS: Mapping[type[Any], str] = {
    Operator: "email",
    Session: "digest",
    ConsoleLink: "digest",
    Insight: "id",
    Comment: "id",
    BillingConnection: "id",
}


class RegistryRows(DocumentRows, Protocol):
    """The rows within one transaction. `put...` adds a row or replaces the one with its id (ROW_IDS)."""

    def all(self, kind: type[T]) -> Sequence[T]:
        """Return the rows of a kind, ordered by id."""
        ...

    def find(self, kind: type[T], id: str | bytes) -> T | None: ...

    def put(self, row: object) -> None: ...

    def delete(self, kind: type[Any], id: str | bytes | int) -> None: ...

    def check_actor(self, actor: Actor) -> None:
        """Raise KeyEnded if the change is made under a key that has ended. `add_audit` checks this as well."""
        ...

    def keys(self) -> Sequence[Key]:
        """All of them by id, with their secrets in the order in which they were made."""
        ...

    def key(self, name: str) -> Key | None: ...

    def key_folded(self, folded: str) -> Key | None:
        """The key whose folded name this is."""
        ...

    def add_key(self, key: Key) -> Key:
        """The key with its id, which no key had before."""
        ...

    def put_key(self, key: Key) -> None: ...

    def delete_key(self, id: int) -> None: ...

    def note_accesses(self, times: Mapping[int, float]) -> None:
        """Last accesses by key id. An earlier time than the kept one changes nothing, nor does an unknown id."""
        ...

    def accesses(self, since: float) -> Mapping[int, float]:
        """The last accesses at or after this time, by key id."""
        ...

    def touch_session(self, digest: bytes, seen_at: float) -> None:
        """Note when a session was last seen; nothing if it is gone."""
        ...

    def delete_sessions_of(self, account: str) -> None:
        """
        Delete the sessions of an operator's account and of the console links that it made, and its unused links.
        """
        ...

    def delete_sessions_before(self, *, created_at: float, seen_at: float) -> None:
        """Delete the sessions that began, or were last seen, at or before these times."""
        ...

    def take_link(self, digest: bytes) -> ConsoleLink | None:
        """Remove a link and return it."""
        ...

    def delete_links_before(self, ends_at: float) -> None:
        """Delete the links that end at or before this time."""
        ...

    def count_insights(self) -> int: ...

    def findings(self) -> Sequence[Insight]:
        """The insights that a detector found."""
        ...

    def put_insights(self, insights: Iterable[Insight]) -> None: ...

    def delete_findings_before(self, found_at: float) -> None:
        """Findings that are not present, that nobody touched, and that were last found before this time."""
        ...

    def insight_page(self, query: ListQuery) -> ListPage[Insight]: ...

    def comments(self, insight: str) -> Sequence[Comment]:
        """Return them ordered by id."""
        ...

    def add_comment(self, comment: Comment) -> Comment:
        """The comment with its id, which no comment had before."""
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
        """`before` and `after` are JSON objects."""
        ...

    def audit_page(self, query: ListQuery) -> ListPage[AuditRow]: ...


class RegistryStore(Protocol):
    """The rows on whatever the engine keeps them."""

    @property
    def is_shared(self) -> bool:
        """True if other processes change the rows, too."""
        ...

    @property
    def ends_keys(self) -> bool:
        """True if the newest change ended a key under which others may still keep something."""
        ...

    async def outlast_commits(self) -> None:
        """Wait until what was begun under keys before they ended is kept or refused."""
        ...

    async def change(self, work: Callable[[RegistryRows], T]) -> T:
        """
        Run `work` in one transaction: all that it did is kept when this returns; when it raises, nothing is.

        SpoolUnavailable when it cannot be written now, RegistryDamaged when the rows cannot be read. What
        `work` refuses or leaves as it is rests on what is there: NotCertain unless that outlives this machine.
        """
        ...

    async def confirm(self) -> None:
        """
        Wait until what stands now outlives this machine, as changes have to: before somebody who asked for
        one is told what is there, or is not. NotCertain if that is not known.
        """
        ...

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        """Run `work`, which changes nothing, on the rows of one moment."""
        ...

    async def news(self, since: int | None) -> RegistryNews:
        """
        Return what other processes changed after this place; with None, only the newest place.

        While a change of this process runs, nobody asks.
        """
        ...

    async def close(self) -> None: ...
