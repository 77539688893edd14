"""
Changes of other processes to a shared registry, of which each process has a part in memory.

An engine with one process reports no changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

ChangedRowId = tuple[str, str]  # kind (see below) and id of a changed row, or "" for all ids

KEYS = "key"
CONNECTIONS = "connection"
OPERATORS = "operator"
INSIGHTS = "insight"  # this kind also covers comments on insights
DOCUMENTS = "documents"  # here, the id of a changed row is the kind of the document
# changes of people are announced by person, and of other documents by kind, because there may be many people
PERSON = "person"
DEVICES = "device"
CLUSTERS = "cluster"
NAMED = frozenset((PERSON, OPERATORS))  # kinds whose ids are names of people


def document_subject(kind: str, id: str) -> ChangedRowId:
    return (kind, id) if kind == PERSON else (DOCUMENTS, kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryNews:
    """
    The changes after a position. `seq`: position of the newest.

    `changed`: None if there were too many to list, so that everything must be read again.
    """

    seq: int
    changed: Collection[ChangedRowId] | None = ()

    def has_changed(self, about: Collection[ChangedRowId]) -> bool:
        if self.changed is None:
            return True
        return any(change in about or (change[0], "") in about for change in self.changed)

    def changed_ids(self, kind: str) -> Collection[str] | None:
        if self.changed is None or (kind, "") in self.changed:
            return None
        return {id for changed_kind, id in self.changed if changed_kind == kind}


NO_NEWS = RegistryNews(seq=0)
