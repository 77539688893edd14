"""The registry: a table for each kind of object, and the audit list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from spool.clock import Clock
from spool.listing import ListPage, ListQuery
from spool.registry.assistant_tools import AssistantToolTable, ToolCallTable
from spool.registry.audit import AuditedChange, AuditRow
from spool.registry.changes import DraftChanges, RegistryChangeWriter, run_without_waiting
from spool.registry.document_table import (
    INSIGHTS,
    DocumentTable,
    ImmutableDocumentTable,
    MemoryTable,
    row_counts_by_creator_key,
)
from spool.registry.enrolment_tokens import EnrolmentTokenTable
from spool.registry.file_owners import FileOwnerTable
from spool.registry.following import RegistryNews
from spool.registry.notices import NoticeTable
from spool.registry.operators import Actor
from spool.registry.org_context import OrgContextTable
from spool.registry.registry_rows import RegistryRows, RegistryStore
from spool.registry.roles import RoleTable
from spool.registry.tables.cluster_configs import ClusterConfigTable
from spool.registry.tables.cluster_settings import ClusterSettingsTable
from spool.registry.tables.connections import ConnectionTable
from spool.registry.tables.enforcers import EnforcerTable
from spool.registry.tables.expired_tries import ExpiredKeyUseTable
from spool.registry.tables.export_tests import ExportTestTable
from spool.registry.tables.insights import InsightTable
from spool.registry.tables.inventory import InventoryTable
from spool.registry.tables.kept_channels import KeptChannelTable
from spool.registry.tables.keys import KeyTable
from spool.registry.tables.late_reports import LateReportTable
from spool.registry.tables.operators import OperatorTable
from spool.registry.tables.persons import PersonTable
from spool.registry.tables.recommendations import RecommendationTable
from spool.registry.tables.sender_fields import SenderFieldTable
from spool.registry.tables.sender_hours import SenderHoursTable
from spool.registry.tables.statements import StatementTable
from spool.registry.tables.verdicts import VerdictTable
from spool.registry.tables.viewings import ViewingTable
from spool.registry.views import ViewTable
from spool.statements import StatementStore


class DeclaredTable(MemoryTable, Protocol):
    """A table that a higher package defines, and passes when the registry is opened."""

    def __init__(self, change_writer: RegistryChangeWriter) -> None: ...


if TYPE_CHECKING:
    from spool.erasure import Erasure
    from spool.registry.erasing import ErasedRows

T = TypeVar("T")
Table = TypeVar("Table", bound=DeclaredTable)


class _DraftRolledBack(Exception):
    """Raised to end a transaction without a change."""

    def __init__(self, result: Any) -> None:
        super().__init__("nothing was changed")
        self.result = result


class Registry:
    """All tables of the registry, opened once by the server process."""

    def __init__(
        self, change_writer: RegistryChangeWriter, declared: Iterable[type[DeclaredTable]] = ()
    ) -> None:
        self._changes = change_writer
        self.is_shared = change_writer.is_shared
        self.people = change_writer.people
        self.persons = PersonTable(change_writer)
        self.file_owners = FileOwnerTable(change_writer)
        self.keys = KeyTable(change_writer)
        self.enrolment_tokens = EnrolmentTokenTable(change_writer)
        self.operators = OperatorTable(change_writer)
        self.roles = RoleTable(change_writer)
        self.notices = NoticeTable(change_writer)
        self.kept_channels = KeptChannelTable(change_writer, self.notices)
        self.insights = InsightTable(change_writer, self.notices)
        self.connections = ConnectionTable(change_writer)
        self.views = ViewTable(change_writer)
        self.org_context = OrgContextTable(change_writer)
        self.assistant_tools = AssistantToolTable(change_writer)
        self.tool_calls = ToolCallTable(change_writer)
        self.viewings = ViewingTable(change_writer)
        self.late_reports = LateReportTable(change_writer)
        self.sender_fields = SenderFieldTable(change_writer)
        self.verdicts = VerdictTable(change_writer)
        self.enforcers = EnforcerTable(change_writer)
        self.sender_hours = SenderHoursTable(change_writer)
        self.export_tests = ExportTestTable(change_writer)
        self.expired_tries = ExpiredKeyUseTable(change_writer)
        self.cluster_configs = ClusterConfigTable(change_writer)
        self.cluster_settings = ClusterSettingsTable(change_writer)
        self.inventory = InventoryTable(change_writer)
        self.recommendations = RecommendationTable(change_writer)
        self.statements: StatementStore = StatementTable(change_writer)
        # exchange rates by month
        self.frozen_rates = ImmutableDocumentTable(change_writer, "frozen_rates", unaudited=("days",))
        self.billed_invoices = ImmutableDocumentTable(change_writer, "billed_invoice")
        # costs of groups of people (see spool.ledger.groups)
        self.group_costs = ImmutableDocumentTable(change_writer, "group_costs", unaudited=("cells",))
        # closed months of a provider's bills
        self.closed_months = ImmutableDocumentTable(change_writer, "closed_month")
        self.connections_in_costs = ImmutableDocumentTable(change_writer, "connection_in_costs")
        self._declared: dict[type[DeclaredTable], DeclaredTable] = {
            kind: kind(change_writer) for kind in declared
        }
        self._documents: Sequence[DocumentTable[Any]] = [
            table
            for table in (*vars(self).values(), *self._declared.values())
            if isinstance(table, DocumentTable)
        ]

    @classmethod
    async def open(
        cls,
        store: RegistryStore,
        *,
        secret: bytes,
        clock: Clock,
        declared: Iterable[type[DeclaredTable]] = (),
    ) -> Registry:
        """
        Open the registry with the tables `declared`. If the rows cannot be read, the store is closed.

        `secret`: from spool.installation.installation_secret.
        """
        try:
            registry = cls(RegistryChangeWriter(store, clock=clock, secret=secret), declared)
            # later loads then include at least every change up to this position
            await registry.catch_up()
            for table in registry._memory_tables():
                await registry._changes.load_and_keep_fresh(table.load, *table.announced_subjects)
        except BaseException:
            await store.close()
            raise
        return registry

    def _memory_tables(self) -> Sequence[MemoryTable]:
        return (
            self.persons,
            self.file_owners,
            self.keys,
            self.assistant_tools,
            self.cluster_configs,
            self.cluster_settings,
            self.inventory,
            self.frozen_rates,
            self.billed_invoices,
            self.group_costs,
            self.closed_months,
            self.connections_in_costs,
            *self._documents,
            *self._declared.values(),
        )

    async def run_on_draft(
        self, work: Callable[[Registry], Coroutine[Any, Any, T]], keeps: Callable[[T], bool]
    ) -> T:
        """
        Run `work` on a draft of the registry in one transaction. If it raises, or `keeps` returns False for
        its result, nothing changes.

        `work` runs on the transaction's thread and must wait only for methods of the draft's tables. The
        tables of this registry show all changes once they are stored, never only some.
        """

        def run_draft_or_undo(registry_rows: RegistryRows) -> T:
            result = run_without_waiting(self._run_on_registry_in_transaction(registry_rows, work))
            if not keeps(result):
                raise _DraftRolledBack(result)
            return result

        try:
            return await self._changes.change_any_table(run_draft_or_undo)
        except _DraftRolledBack as undone:
            result: T = undone.result
            return result

    async def run_on_empty_draft(
        self, work: Callable[[Registry], Coroutine[Any, Any, T]], empty_store: RegistryStore
    ) -> T:
        """
        Run `work` on a draft that begins with the rows of `empty_store`, a store in memory, outside of the event loop.
        `work` must wait only for methods of the draft's tables. Nothing of this registry changes.
        """

        def run_on_store() -> T:
            return run_without_waiting(
                empty_store.change(
                    lambda rows: run_without_waiting(self._run_on_registry_in_transaction(rows, work))
                )
            )

        return await asyncio.to_thread(run_on_store)

    async def _run_on_registry_in_transaction(
        self, registry_rows: RegistryRows, work: Callable[[Registry], Coroutine[Any, Any, T]]
    ) -> T:
        draft = Registry(DraftChanges(self._changes, registry_rows), self._declared)
        for table in draft._memory_tables():
            await table.load()
        return await work(draft)

    async def erase_person(
        self, erasure: Erasure, labels: Collection[str], actor: Actor, *, is_trial: bool = False
    ) -> ErasedRows:
        from spool.registry import erasing

        erased = await erasing.erase_in_registry(self._changes, erasure, labels, actor, is_trial=is_trial)
        self.viewings.forget_stored_viewings()
        return erased

    async def overwrite_deleted_data(self) -> str:
        return await self._changes.overwrite_deleted_data()

    def set_email_policy(self, policy: str) -> None:
        self.people.policy = policy
        self.persons.notify_watchers_of_persons()

    def set_min_group_size(self, min_people: int, dimension_order: Sequence[str] = ()) -> None:
        self.people.min_group = min_people
        self.people.group_order = dimension_order

    def declared_table(self, kind: type[Table]) -> Table:
        """Return the table of this class. Raises KeyError if it was not declared."""
        declared_table = self._declared[kind]
        assert isinstance(declared_table, kind)
        return declared_table

    def max_rows_by_limit(self) -> Mapping[str, int]:
        return {table.limit: table.most for table in self._documents if table.most}

    async def row_counts_by_limit_and_key(self) -> Mapping[str, Mapping[str, int]]:
        counts = {table.limit: table.count() for table in self._documents}

        def count_rows_by_limit_and_key(registry_rows: RegistryRows) -> Mapping[str, Mapping[str, int]]:
            numbers = {**counts, INSIGHTS: registry_rows.count_insights()}
            return {
                limit: row_counts_by_creator_key(registry_rows, limit, number)
                for limit, number in numbers.items()
            }

        shares = dict(await self._changes.read(count_rows_by_limit_and_key))
        for table in self._documents:
            shares |= table.item_counts_by_limit_and_key()
        return shares

    def document_name(self, kind: str, id: str) -> str | None:
        table = next((candidate for candidate in self._documents if candidate.action == kind), None)
        row = None if table is None else table.find(id)
        return None if row is None else str(row.name)

    @property
    def version(self) -> int:
        return self._changes.version

    async def wait_for_change(self) -> None:
        """Wait for a change. This may return without one if other processes also write."""
        await self._changes.wait_for_change()

    @property
    def is_memory_fresh(self) -> bool:
        """Return whether memory has the changes of other processes up to a second ago."""
        return self._changes.is_memory_fresh

    async def catch_up(self) -> RegistryNews:
        """Read and apply every change that was committed before this call. Return these changes."""
        return await self._changes.catch_up()

    async def wait_until_caught_up(self) -> None:
        """
        Wait until memory has all changes before this call, without causing a read. Raises SpoolUnavailable
        after a second.
        """
        await self._changes.wait_until_caught_up()

    async def wait_until_durable(self) -> None:
        """
        Wait until the state survives the loss of the database machine. Call this before a change is reported
        to its author. Raises NotCertain.
        """
        await self._changes.wait_until_durable()

    async def audit_change(
        self, actor: Actor, action: str, target: str, *, after: Mapping[str, object] | None = None
    ) -> None:
        """Add an audit row for a change stored elsewhere, such as a deleted route."""
        await self.audit_changes([AuditedChange(actor=actor, action=action, target=target, after=after)])

    async def audit_changes(self, changes: Sequence[AuditedChange]) -> None:
        at = self._changes.now()

        def add_audit_entries(registry_rows: RegistryRows) -> None:
            for change in changes:
                registry_rows.add_audit(
                    at, change.actor, change.action, change.target, change.before, change.after
                )

        await self._changes.change_rows(add_audit_entries)

    async def audit_page(self, query: ListQuery) -> ListPage[AuditRow]:
        return await self._changes.read(lambda rows: rows.audit_page(query))

    async def close(self) -> None:
        await self._changes.close()
