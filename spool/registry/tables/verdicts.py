"""Stored tables of verdicts on budgets, so that all gateways respond with the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from spool.registry.changes import RegistryChangeWriter
from spool.registry.notices import Notice, add_notices
from spool.registry.registry_rows import RegistryRows

KIND = "verdicts"
NUMBER_KIND = "verdicts_number"  # kind of the document with a table's version, which is read often
STATES_KIND = "verdict_states"  # kind of the document with the states that channels received last
REPORTED = "reported"
VERSION = "version"  # field of the table's version, which grows with each change

# by budget: number of changes, and states by owner
ReportedStates: TypeAlias = "dict[str, tuple[int, Mapping[str, str]]]"
Report: TypeAlias = (
    "Callable[[ReportedStates], tuple[ReportedStates, Sequence[tuple[Notice, tuple[str, ...]]]]]"
)


class VerdictTable:
    """
    The stored tables of budget verdicts, and the budget states that were last reported. The keys that sign
    the tables derive from `seed` and `bundle_seed`.
    """

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self.seed = change_writer.derive_secret("budget verdicts")
        self.bundle_seed = change_writer.derive_secret("budget verdict bundles")

    async def version(self, verdict_set_name: str) -> int:
        stored = await self._changes.read(lambda rows: rows.document(NUMBER_KIND, verdict_set_name))
        return 0 if stored is None else int(stored[VERSION])

    async def get(self, name: str) -> Mapping[str, Any] | None:
        return await self._changes.read(lambda rows: rows.document(KIND, name))

    async def store_unless_newer(
        self, name: str, table: Mapping[str, Any], *, previous_version: int
    ) -> Mapping[str, Any]:
        """
        Store a table as the version after `previous_version`. If another gateway has stored that version, return its
        table instead.
        """

        def store_verdicts_if_unchanged(registry_rows: RegistryRows) -> Mapping[str, Any]:
            stored = registry_rows.document(KIND, name)
            if stored is not None and stored[VERSION] != previous_version:
                return stored
            new = {**table, VERSION: previous_version + 1}
            registry_rows.put_document(KIND, name, new)
            registry_rows.put_document(NUMBER_KIND, name, {VERSION: previous_version + 1})
            return new

        return await self._changes.change_rows(store_verdicts_if_unchanged)

    async def update_reported_states(self, report: Report) -> None:
        """
        Call `report` with the budget states that the last notices reported. Store the new states and notices
        that it returns, in one transaction.
        """

        def store_reported_states(registry_rows: RegistryRows) -> None:
            document = registry_rows.document(STATES_KIND, REPORTED) or {}
            before = {budget: (number, states) for budget, (number, states) in document.items()}
            after, notices = report(before)
            if after != before:
                registry_rows.put_document(STATES_KIND, REPORTED, after)
            for notice, channels in notices:
                add_notices(registry_rows, [notice], channels)

        await self._changes.change_rows(store_reported_states)
