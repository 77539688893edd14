"""Annotations: notes by people about a day, shown in charts on that day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

import msgspec
from msgspec import UNSET

from gateway.core.errors import Refusal
from gateway.core.fields import (
    KEPT,
    build_answer,
    changes_struct,
    given_fields,
    item_struct,
    one_item_answer_struct,
)
from gateway.core.visibility import SLICED
from gateway.http.lists import Filter, ListDefinition, Sort
from gateway.operations.files.declared import NoResourceFiles
from gateway.operations.managed import (
    CREATE,
    LIST,
    ByCommands,
    ByPeople,
    JsonAnswer,
    ManagedResource,
    OperationCaller,
)
from spool.errors import Invalid, NotAllowed
from spool.record import utc_iso
from spool.registry.document_table import ManagedTable, Sees
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import Option, example, example_id, words
from spool.registry.operators import Actor
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_text
from spool.registry.views import NO_VIEW, VIEWS

MAX_TEXT = 200


class NewAnnotation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    day: Annotated[
        str,
        words("The day on which charts show the annotation, such as 2026-11-20."),
        example("2026-11-20"),
        Option(metavar="DATE"),
    ]
    text: Annotated[
        str,
        words(f"A description of what happened, 1 to {MAX_TEXT} printable characters."),
        example("Checkout moved to gpt-4o", changed="Checkout moved from gpt-4.1 to gpt-4o"),
    ]
    view: Annotated[
        str,
        words(
            "The view whose calls it concerns, by id or name. Empty means all calls. People who may "
            "not see all of these calls do not see the annotation."
        ),
        example(example_id("view")),
    ] = ""


class Annotation(NewAnnotation, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """
    A stored annotation. Times are epoch seconds, and `author` is the creator. `view` is the view's id, or ""
    for a note about all calls.
    """

    view: str = msgspec.field(default="", name="view_id")
    id: str
    author: str
    created: float
    last_updated: float

    @property
    def name(self) -> str:
        return self.text

    @property
    def version(self) -> str:
        return row_version(self)


AnnotationItem = item_struct(
    NewAnnotation,
    "An annotation in a response. Times are RFC 3339.",
    answer_only_fields={
        "view_name": Annotated[
            str | None, words("The name of the view, or null without a view."), example("Search")
        ],
        "author": Annotated[str, words("The creator of the annotation."), example("ada@example.com")],
        **KEPT,
    },
)


class AnnotationTable(ManagedTable[Annotation]):
    """The table of annotations. A method that raises changes nothing."""

    kind = DocumentCollection("annotation", Annotation, "annotation")
    draft = NewAnnotation
    limit = "annotations.max"
    action = "annotation"

    def check_draft(self, draft: NewAnnotation) -> NewAnnotation:
        try:
            day = date.fromisoformat(draft.day)
        except ValueError:
            raise Invalid("day must be a date such as 2026-11-20") from None
        return replace_fields(draft, day=day.isoformat(), text=check_text("text", draft.text, MAX_TEXT))

    def creation_fields(self, actor: Actor, now: float) -> Mapping[str, Any]:
        return {"author": actor.name}

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, Annotation],
        row: Annotation,
        can_see_row: Sees[Annotation],
    ) -> None:
        """
        Raise NotAllowed if a newly set view does not exist. If the view of an annotation was deleted, the
        annotation may keep it.
        """
        before = stored.get(row.id)
        is_kept = before is not None and before.view == row.view
        if row.view and not is_kept and VIEWS.find(registry_rows, row.view) is None:
            raise NotAllowed(NO_VIEW)


Row = tuple[Annotation, str | None]  # row of the list: an annotation, and the name of its view


def _describe_annotation(row: Row) -> JsonAnswer:
    annotation, view = row
    return build_answer(
        AnnotationItem,
        annotation,
        view_name=view,
        created=utc_iso(annotation.created),
        last_updated=utc_iso(annotation.last_updated),
    )


class AnnotationResource(ManagedResource[Annotation, object]):
    noun = "annotation"
    files = NoResourceFiles("people note what happened; it is not a setting")
    table = AnnotationTable
    new = NewAnnotation
    changes = changes_struct(NewAnnotation)
    item = AnnotationItem
    one = one_item_answer_struct(NewAnnotation, AnnotationItem)
    lists: ListDefinition[Row] = ListDefinition(
        root="annotations",
        show=_describe_annotation,
        identity=Sort(value=lambda row: row[0].id),
        sorts={
            "day": Sort(value=lambda row: row[0].day),
            "text": Sort(value=lambda row: row[0].text),
            "author": Sort(value=lambda row: row[0].author),
        },
        default_sort=("day", "desc"),
        filters={
            "day": Filter(values=lambda row: (row[0].day,)),
            "author": Filter(values=lambda row: (row[0].author,)),
            "view": Filter(values=lambda row: (row[0].view,)),
        },
    )
    people = ByPeople(path="/annotations", reads=VIEW_COSTS, changes=MODIFY_VIEWS_AND_BUDGETS, shows=SLICED)
    commands = ByCommands(
        help="Note on charts what happened on a day. Examples: a release, an incident, a contract.",
        columns=("id", "day", "text", "view_name", "author", "last_updated"),
        words={LIST: "List the annotations.", CREATE: "Create an annotation for a day."},
        filters={
            "day": "Only this day, such as 2026-11-20.",
            "author": "Only annotations by this author.",
            "view": "Only annotations of this view, by id.",
        },
    )

    async def visibility_test(self, caller: OperationCaller[object]) -> Sees[Annotation]:
        """
        Return a predicate that is true for an annotation if this person may see all calls that it is about.
        """
        visible = await caller.sees()
        return lambda row: visible.can_see_view_id(row.view)

    async def convert_row_for_lists(self, caller: OperationCaller[object], row: Annotation) -> Row:
        view = caller.registry.views.find(row.view)
        return row, None if view is None else view.name

    async def draft_fields(self, caller: OperationCaller[object], new_values: Any) -> dict[str, Any]:
        """
        Return the given fields. Raises Refusal 403 for an annotation about calls that the person may not see.
        """
        stated_fields = given_fields(new_values)
        word = stated_fields.pop("view", UNSET)
        if word is UNSET:
            return stated_fields
        if not word and not (await caller.sees()).is_whole:
            raise Refusal(
                403, "limited_data", "you may see only some calls, so choose a view that contains only these"
            )
        return {**stated_fields, "view": (await caller.find_view(word)).id if word else ""}


ANNOTATION = AnnotationResource()
