"""
Annotations: a person's words about a day, shown in charts. Values, rules and their table, all of it in memory, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from spool.errors import Invalid, NotAllowed
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared import makers
from spool.registry.shared.document_table import DocumentTable, stated
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


class AnnotationTable(DocumentTable[Annotation]):
    """Create, change and delete them. One that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind = ANNOTATIONS
    draft = AnnotationDraft
    limit = makers.ANNOTATIONS
    action = "annotation"

    async def create(self, draft: AnnotationDraft, *, most: int, actor: Actor) -> Annotation:
        """NotAllowed when there are `most`."""
        now = self._changes.now()
        annotation = Annotation(
            id=secrets.token_hex(16),
            author=actor.name,
            created=now,
            last_updated=now,
            **stated(check_annotation(draft)),
        )
        return await self._add(annotation, check=_check, most=most, actor=actor)

    async def change(
        self, id: str, changes: Mapping[str, Any], *, version: str | None = None, actor: Actor
    ) -> Annotation:
        """NotAllowed if it is not of the `version` any more that was read."""

        def edit(before: Annotation) -> Annotation:
            return replace(before, **stated(check_annotation(self._redrafted(before, changes))))

        check = _check if "view_id" in changes else None
        return await self._edit(id, edit, check=check, version=version, actor=actor)

    async def delete(self, id: str, *, actor: Actor) -> None:
        await self._remove(id, actor=actor)


def _check(rows: RegistryRows, kept: Mapping[str, Annotation], annotation: Annotation) -> None:
    if annotation.view_id and VIEWS.find(rows, annotation.view_id) is None:
        raise NotAllowed(NO_VIEW)
