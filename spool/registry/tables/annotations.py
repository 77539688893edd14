"""
Annotations: a person's words about a day, shown in charts. Values, rules and their table, all of it in memory, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from spool.errors import Invalid, NotAllowed
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared import makers
from spool.registry.shared.document_table import ManagedTable, Sees
from spool.registry.shared.documents import DocumentKind
from spool.registry.shared.edits import version_of
from spool.registry.shared.texts import check_text
from spool.registry.views import VIEWS

MAX_TEXT = 200
NO_VIEW = "view: there is no view with this id or name"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationDraft:
    """What a person states. `day` is such as 2026-11-20; it is about the view's calls, with "" about all."""

    day: str
    text: str
    view_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation(AnnotationDraft):
    """As it is kept. Times are epoch seconds; `author` is who made it."""

    id: str
    author: str
    created: float
    last_updated: float

    @property
    def name(self) -> str:
        return self.text

    @property
    def version(self) -> str:
        return version_of(self)


ANNOTATIONS = DocumentKind("annotation", Annotation, "annotation")


def check_annotation(draft: AnnotationDraft) -> AnnotationDraft:
    """The draft in its stored form; Invalid names the field and the rule. Which views exist is asked elsewhere."""
    try:
        day = date.fromisoformat(draft.day)
    except ValueError:
        raise Invalid("day is a date such as 2026-11-20") from None
    return replace(draft, day=day.isoformat(), text=check_text("text", draft.text, MAX_TEXT))


class AnnotationTable(ManagedTable[Annotation]):
    """Create, change and delete them. One that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind = ANNOTATIONS
    draft = AnnotationDraft
    limit = makers.ANNOTATIONS
    action = "annotation"

    def checked(self, draft: AnnotationDraft) -> AnnotationDraft:
        return check_annotation(draft)

    def made(self, actor: Actor, now: float) -> Mapping[str, Any]:
        return {"author": actor.name}

    def check_place(
        self, rows: RegistryRows, stored: Mapping[str, Annotation], row: Annotation, sees: Sees[Annotation]
    ) -> None:
        """NotAllowed for a view that does not exist. One whose view is gone may keep it."""
        before = stored.get(row.id)
        is_kept = before is not None and before.view_id == row.view_id
        if row.view_id and not is_kept and VIEWS.find(rows, row.view_id) is None:
            raise NotAllowed(NO_VIEW)
