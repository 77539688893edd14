"""The request and response types for views, which are saved filters of costs."""

from __future__ import annotations

from typing import Annotated

from gateway.core.fields import KEPT, changes_struct, item_struct, one_item_answer_struct
from spool.registry.field_notes import example, words
from spool.registry.views import NewView

ViewChanges = changes_struct(NewView)
ViewItem = item_struct(
    NewView,
    "A view in a response. Times are epoch seconds as text. `broken` is the reason why it cannot be used.",
    answer_only_fields={
        "broken": Annotated[
            str | None,
            words("Why the view cannot be used: a dimension of its filter no longer exists."),
            example(None),
        ],
        **KEPT,
    },
)
OneView = one_item_answer_struct(NewView, ViewItem)
