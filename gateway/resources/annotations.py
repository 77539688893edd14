"""An annotation: a person's words about a day, which charts show on that day."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.resources.declaration import Option, changes_of, item_of, one_of, words
from spool.registry.tables.annotations import MAX_TEXT


class NewAnnotation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    day: Annotated[str, words("The day on which charts show it, such as 2026-11-20."), Option(metavar="DATE")]
    text: Annotated[str, words(f"What happened on that day: 1 to {MAX_TEXT} printable characters.")]
    view: Annotated[
        str,
        words(
            "The view whose calls it is about, by its id or its name; empty: all calls. Who may not see all of "
            "these calls does not see it."
        ),
    ] = ""


AnnotationChanges = changes_of(
    NewAnnotation,
    "AnnotationChanges",
    """
    What is left out stays as it is. With the `version` that was read, the change is refused if
    somebody else made one since.
    """,
)
AnnotationItem = item_of(
    NewAnnotation,
    "AnnotationItem",
    "An annotation as it is answered; times are RFC 3339.",
    answered={
        "view_name": Annotated[str | None, words("The name of the view; null without one.")],
        "author": Annotated[str, words("Who made it.")],
        "created": str,
        "last_updated": str,
        "version": Annotated[str, words("Another one after each change; given back with an edit.")],
    },
)
OneAnnotation = one_of("OneAnnotation", annotation=AnnotationItem)
