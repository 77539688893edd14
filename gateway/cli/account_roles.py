"""The role of an account: people read and type its name, the API has a word of its own for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gateway.cli.output import JsonObject
from spool.registry.operators import NO_ROLE, ROLES
from spool.registry.roles import BASES

NAMES: Mapping[str, str] = {word: BASES[word].name if word in BASES else word for word in ROLES}
KNOWN = f"{', '.join(name for word, name in NAMES.items() if word != NO_ROLE)} or {NO_ROLE}"


class AccountRole(click.ParamType[str]):
    """The name of an account's role, whatever the case, or the word of the API for it."""

    name = "role"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        typed = str(value).casefold()
        found = next((word for word, name in NAMES.items() if typed in (word, name.casefold())), None)
        if found is None:
            self.fail(f"{value!r} is no role of accounts; they are {KNOWN}", param, ctx)
        return found


def role_named(row: JsonObject) -> dict[str, Any]:
    """Return a row with the name of its role in place of the API's word."""
    return {**row, "role": NAMES.get(row["role"], row["role"])}
