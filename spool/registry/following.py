"""
Changes that other processes made to a shared registry. Each process has some of the rows in memory.

An engine with only one process reports no changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

Subject = tuple[str, str]  # kind of a changed row (a constant below), and the row's id, or "" for all ids

KEYS = "key"
CONNECTIONS = "connection"
OPERATORS = "operator"
INSIGHTS = "insight"  # this kind also covers comments on insights
DOCUMENTS = "documents"  # the id of such a subject is the kind of the documents
PERSON = (
    "person"  # the kind of documents whose subjects have the id of the document, because there may be many
)
DEVICES = "device"
CLUSTERS = "cluster"


def document_subject(kind: str, id: str) -> Subject:
    """Return the subject of a change of a document."""
    return (kind, id) if kind == PERSON else (DOCUMENTS, kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryNews:
    """
    The changes of other processes after a position in the order of changes. `seq` is the newest position.

    If `changed` is None, there were too many changes to list, so everything must be read again.
    """

    seq: int
    changed: Collection[Subject] | None = ()

    def has_changed(self, about: Collection[Subject]) -> bool:
        """Return True if one of the subjects in `about` has changed."""
        if self.changed is None:
            return True
        return any(change in about or (change[0], "") in about for change in self.changed)

    def changed_ids(self, kind: str) -> Collection[str] | None:
        """Return the changed ids of a kind. Return None if any id may have changed."""
        return (
            None
            if self.changed is None
            else {id for changed_kind, id in self.changed if changed_kind == kind}
        )


NO_NEWS = RegistryNews(seq=0)
