"""The resource of roles: what people may do, and which calls they see."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.core.fields import changes_struct, item_struct, one_item_answer_struct
from spool.registry.field_notes import example, words
from spool.registry.roles import NewRole

RoleChanges = changes_struct(
    NewRole,
    """
    Fields that are left out do not change; a list replaces the whole list. If `version` is sent, the change is refused
    if the role has changed since it was read.
    """,
)
RoleItem = item_struct(
    NewRole,
    """
    A role. Times are epoch seconds as text, and null for a built-in role.

    `broken` says why its filters match nothing: a dimension is no longer part of the totals.
    """,
    answer_only_fields={
        "is_builtin": Annotated[
            bool, words("Whether the role is built in and cannot be changed."), example(False)
        ],
        "broken": Annotated[
            str | None,
            words("Why its filters match nothing: a dimension is no longer part of the totals."),
            example(None),
        ],
        "created": Annotated[str | None, words("When the role was created."), example("1795743940.166")],
        "last_updated": Annotated[
            str | None, words("When the role was last changed."), example("1795743940.166")
        ],
        "last_updated_by": Annotated[
            str | None, words("Who changed the role last."), example("ada@example.com")
        ],
        "version": Annotated[
            str | None,
            words("The version of the role. Each edit changes it; send it back with your next edit."),
            example("26dd4ddbeacc79f07a421197", changed="c0c7ab7fb0146d1ab79562f2"),
        ],
    },
)
OneRole = one_item_answer_struct(NewRole, RoleItem)


class PermissionSetItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the permission set."), example("api_key_management")]
    name: Annotated[str, words("The name of the permission set."), example("API key management")]
    description: Annotated[
        str,
        words("What the permission set permits."),
        example("Create, edit, rotate, disable and delete API keys."),
    ]
    includes: Annotated[
        list[str], words("The ids of the permission sets that the set includes."), example(["view_operation"])
    ]
