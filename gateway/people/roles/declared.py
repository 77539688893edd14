"""A role: what people may do, and of which calls they see anything."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.http.resources.declaration import Option, changes_of, item_of, one_of, words
from spool.registry.permission_sets import PERMISSION_SETS
from spool.registry.roles import DATA_ACCESS, IS, MAX_DESCRIPTION, MAX_NAME, ROLE_COST_TYPES


class FilterOfRole(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A null value is the unknown one. `mode` is `is` or `except`."""

    dimension: str
    values: list[str | None]
    mode: str = IS


class NewRole(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    `data_access` is `full`, `limited` or `none`; `limited` needs filters, which must all pass.

    `members` are e-mail addresses, `groups` those of the OpenID provider. Without `cost_types` all are shown.
    """

    name: Annotated[
        str, words(f"Unique among roles, whatever the case: 1 to {MAX_NAME} printable characters.")
    ]
    data_access: Annotated[
        str,
        words("Which calls its members see: `full`, `limited` or `none`."),
        Option(choices=DATA_ACCESS, help="Which calls it shows; limited by --where."),
    ]
    description: Annotated[str, words(f"What it is for: at most {MAX_DESCRIPTION} printable characters.")] = (
        ""
    )
    filters: Annotated[
        list[FilterOfRole],
        words("What a call must have, all of them; `roles.max_filters` and `roles.max_values` bound them."),
    ] = []
    cost_types: Annotated[
        list[str],
        words("In which money calls are shown, by cost types; empty: in every one."),
        Option("--cost-type", choices=ROLE_COST_TYPES, help="The money that it shows; not given: all."),
    ] = []
    permission_sets: Annotated[
        list[str],
        words("What its members may do, by the ids of permission sets."),
        Option("--permission-set", choices=tuple(PERMISSION_SETS), help="What it allows."),
    ] = []
    members: Annotated[
        list[str],
        words("E-mail addresses, with groups at most `roles.max_members`."),
        Option("--member", "EMAIL", help="Who has it."),
    ] = []
    groups: Annotated[
        list[str],
        words("Groups of the OpenID provider."),
        Option("--group", "GROUP", help="A group of the OpenID provider that has it."),
    ] = []


RoleChanges = changes_of(
    NewRole,
    """
    What is left out stays as it is; a list replaces the whole list. With the `version` that was read, the change is
    refused if somebody else made one since.
    """,
)
RoleItem = item_of(
    NewRole,
    """
    A role as it is answered; times are epoch seconds as text, null for a built-in role.

    `broken` says why its filters show nothing: the ledger lost a dimension.
    """,
    answered={
        "is_builtin": Annotated[bool, words("Whether it comes with Tollhouse, and cannot be changed.")],
        "broken": Annotated[str | None, words("Why its filters show nothing: the ledger lost a dimension.")],
        "created": str | None,
        "last_updated": str | None,
        "last_updated_by": str | None,
        "version": Annotated[str | None, words("Changes with each edit; send it back with your edit.")],
    },
)
OneRole = one_of(NewRole, RoleItem)


class PermissionSetItem(msgspec.Struct, kw_only=True):
    """`includes` are the ids of sets that come with it."""

    id: str
    name: str
    description: str
    includes: list[str]
