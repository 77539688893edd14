"""The resource of roles: what people may do, and which calls they see."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.core.fields import changes_of, item_of, one_of
from spool.registry.field_notes import Option, example, words
from spool.registry.permission_sets import PERMISSION_SETS
from spool.registry.roles import DATA_ACCESS, IS, MAX_DESCRIPTION, MAX_NAME, ROLE_COST_TYPES


class FilterOfRole(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A condition of a role. A null value means the unknown value. `mode` is `is` or `except`."""

    dimension: str
    values: list[str | None]
    mode: str = IS


class NewRole(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A new role. `data_access` is `full`, `limited` or `none`. A `limited` role needs filters, and its members
    see only calls that match all of them.

    `members` are e-mail addresses; `groups` are groups of the OpenID provider. Without `cost_types`, members
    see all types.
    """

    name: Annotated[
        str,
        words(f"Unique among roles, ignoring case: 1 to {MAX_NAME} printable characters."),
        example("Search leads"),
    ]
    data_access: Annotated[
        str,
        words("Calls that its members see: `full`, `limited` or `none`."),
        example("limited"),
        Option(choices=DATA_ACCESS, help="Calls that members see: full, limited (by --where) or none."),
    ]
    description: Annotated[
        str, words(f"Purpose of the role: at most {MAX_DESCRIPTION} printable characters.")
    ] = ""
    filters: Annotated[
        list[FilterOfRole],
        words("Conditions that a call must all meet, limited by `roles.max_filters` and `roles.max_values`."),
        example([{"dimension": "team", "values": ["search"], "mode": "is"}]),
    ] = []
    cost_types: Annotated[
        list[str],
        words("Kinds of cost that members see; if empty, all."),
        Option(
            "--cost-type", choices=ROLE_COST_TYPES, help="Kind of cost that members see; without it, all."
        ),
    ] = []
    permission_sets: Annotated[
        list[str],
        words("Permission sets of its members, by id."),
        example(["view_costs"]),
        Option("--permission-set", choices=tuple(PERMISSION_SETS), help="Permission set of its members."),
    ] = []
    members: Annotated[
        list[str],
        words("E-mail addresses; together with groups at most `roles.max_members`."),
        example(["bob@example.com"], changed=["bob@example.com", "eve@example.com"]),
        Option("--member", "EMAIL", help="E-mail address of a member."),
    ] = []
    groups: Annotated[
        list[str],
        words("Groups of the OpenID provider."),
        Option("--group", "GROUP", help="Group of the OpenID provider whose members have the role."),
    ] = []


RoleChanges = changes_of(
    NewRole,
    """
    Fields that are left out do not change; a list replaces the whole list. If `version` is sent, the change is refused
    if the role has changed since it was read.
    """,
)
RoleItem = item_of(
    NewRole,
    """
    A role. Times are epoch seconds as text, and null for a built-in role.

    `broken` says why its filters match nothing: a dimension is no longer part of the totals.
    """,
    answered={
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
            words("Changes with each edit; send it back with your edit."),
            example("26dd4ddbeacc79f07a421197", changed="c0c7ab7fb0146d1ab79562f2"),
        ],
    },
)
OneRole = one_of(NewRole, RoleItem)


class PermissionSetItem(msgspec.Struct, kw_only=True):
    """A permission set. `includes` are the ids of the permission sets that it includes."""

    id: str
    name: str
    description: str
    includes: list[str]
