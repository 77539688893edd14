"""The stored tables of verdicts on budgets, so that all gateways answer with the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spool.registry.changes import Changes
from spool.registry.registry_rows import RegistryRows

KIND = "verdicts"
VERSION = "version"  # member of a table that grows with each stored table


class VerdictTable:
    """One document for each list of states. `seed` is the secret from which the signing key is derived."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self.seed = changes.secret("budget verdicts")

    async def get(self, name: str) -> Mapping[str, Any] | None:
        return await self._changes.read(lambda rows: rows.document(KIND, name))

    async def put(self, name: str, table: Mapping[str, Any], *, after: int) -> Mapping[str, Any]:
        """
        Store a table that follows the version `after`, and return it. Return the stored table instead, if another
        gateway stored one in the meantime.
        """

        def work(rows: RegistryRows) -> Mapping[str, Any]:
            stored = rows.document(KIND, name)
            if stored is not None and stored[VERSION] != after:
                return stored
            new = {**table, VERSION: after + 1}
            rows.put_document(KIND, name, new)
            return new

        return await self._changes.change(work)
