"""A namespace: owns the dimensions of a definition of its own."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.http.resources.declaration import changes_of, item_of, one_of, words
from spool.registry.allocation import MAX_DESCRIPTION, MAX_NAME


class NewNamespace(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`name` is the id where none is given."""

    name: Annotated[str | None, words(f"What it is called, the id if null: 1 to {MAX_NAME} characters.")] = (
        None
    )
    description: Annotated[str, words(f"What it is for: at most {MAX_DESCRIPTION} printable characters.")] = (
        ""
    )


class NewNamespaceOfId(NewNamespace):
    id: Annotated[str, words("1 to 64 small letters, digits, _ and -, a letter first; not `default`.")]


NamespaceChanges = changes_of(
    NewNamespace,
    "What is left out stays as it is.",
    types={"name": str},
    has_version=False,
)
NamespaceItem = item_of(
    NewNamespace,
    "A namespace as it is answered. `version` is its newest; `broken` says why that is not in force.",
    types={"name": str},
    answered={
        "version": Annotated[str | None, words("The newest version of its definition.")],
        "dimensions": list[str],
        "broken": Annotated[str | None, words("Why its newest version is not in force.")],
        "created": str,
        "last_updated": str,
        "definition": Annotated[
            str | msgspec.UnsetType | None, words("The text of its newest version, when read.")
        ],
    },
)
OneNamespace = one_of(NewNamespace, NamespaceItem)
