"""
Billing connections, and the rules for the hourly files that they accept.

A connection accepts files if it exists and is enabled. It handles one request at a time, within its monthly
limits. A file for an unknown connection is refused, and the message says how to create the connection.
Deleting a connection deletes its rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gateway.configuration.sections import BillingSettings
from gateway.core.errors import Refusal
from spool.billing import REPLACE_DROP, REPLACE_HOURLY, HourlyBillingFiles, MonthSize, split_by_hour
from spool.clock import Clock
from spool.errors import NotAllowed
from spool.record import HourlyBillingFile
from spool.registry.connections import MAX_NAME, BillingConnection, ConnectionDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.connections import ConnectionTable

DISABLED, PENDING, RECEIVING = "Disabled", "Pending Data", "Receiving Data"
STATES = (DISABLED, PENDING, RECEIVING)
CONFIGURATION: Final = Actor("configuration", "")
RETRY_S: Final = 300

_CREATE = "Use an existing connection id, or let the operator create it: tollhouse connections create --id."
_ENABLE = "Let the operator enable it: tollhouse connections enable."

# function that validates a body at the upstream; None means that the upstream did not answer
Validate = Callable[[bytes], Awaitable["list[str] | None"]]

_log = logging.getLogger(__name__)


def draft_of_configured_connection(id: str) -> ConnectionDraft:
    return ConnectionDraft(name=f"upstream.connection_id {id}"[:MAX_NAME], cloud_provider="Tollhouse")


@dataclass(frozen=True, slots=True)
class ShownConnection:
    """A billing connection with its state, which is derived from its files."""

    connection: BillingConnection
    state: str
    in_costs: bool = False
    in_costs_reason: str | None = None


class BillingConnections:
    """
    The billing connections and their stored rows. `configured_connection_id` is the id in
    `upstream.connection_id`.
    """

    def __init__(
        self,
        registry: Registry | None,
        billing_files: HourlyBillingFiles,
        clock: Clock,
        settings: BillingSettings,
        *,
        configured_connection_id: str = "",
        validate: Validate | None = None,
    ) -> None:
        self._registry = registry
        self.drops = billing_files
        self._clock = clock
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self.configure(settings, configured_connection_id=configured_connection_id, validate=validate)

    def configure(
        self, settings: BillingSettings, *, configured_connection_id: str, validate: Validate | None
    ) -> None:
        self._settings = settings
        self._configured = configured_connection_id
        self.validate = validate

    async def create_configured_and_clean_up(self) -> None:
        """Create the configured connection, and delete rows whose connection no longer exists."""
        if self._registry is None:
            return
        if self._configured:
            draft = draft_of_configured_connection(self._configured)
            await self.table.add_configured(self._configured, draft, actor=CONFIGURATION)
        await self.delete_orphaned_rows()

    async def delete_orphaned_rows(self) -> None:
        with_rows = await self.drops.last_billing_drop_at_by_connection()
        existing_ids = await self.table.current_ids()
        for id in with_rows:
            if id not in existing_ids:
                async with self._hold_lock(id):
                    await self.drops.delete_connection(id)

    def with_registry(self, registry: Registry) -> BillingConnections:
        drafted = copy(self)
        drafted._registry = registry
        return drafted

    @property
    def table(self) -> ConnectionTable:
        if self._registry is None:
            message = "The registry cannot be read now. Repeat the request later."
            raise Refusal(503, "unavailable", message, retry_after_s=30)
        return self._registry.connections

    def upstream_connection_id_of_drop(self, billing_file: HourlyBillingFile) -> str:
        """
        Return the id of a file's connection at the cost service. If the connection was deleted, it is the id
        from the time when the file arrived.
        """
        connection = (
            None if self._registry is None else self._registry.connections.find(billing_file.connection_id)
        )
        return (
            connection.connection_id_upstream
            if connection
            else billing_file.upstream_id or billing_file.connection_id
        )

    def is_open(self, id: str) -> bool:
        """
        Return whether files of a connection may be sent. That is so if the connection is enabled or unknown.
        """
        connection = None if self._registry is None else self._registry.connections.find(id)
        return connection is None or connection.is_enabled

    async def to_shown_connections(self, *connections: BillingConnection) -> list[ShownConnection]:
        newest = await self.drops.last_billing_drop_at_by_connection()
        return [
            ShownConnection(
                connection, _connection_state(connection, newest), self.is_in_costs(connection.id)
            )
            for connection in connections
        ]

    def is_in_costs(self, id: str) -> bool:
        """
        Return whether costs include a connection's rows. Always False for the connection that receives hourly
        AI cost.
        """
        registry = self._registry
        return registry is not None and id != self._configured and id in registry.connections_in_costs.all()

    async def set_in_costs(self, id: str, is_in_costs: bool, *, actor: Actor) -> None:
        """
        Include the rows of a connection in costs or not. Raises NotAllowed for the connection that receives
        hourly AI cost, because its rows are the cost of calls that are already counted.
        """
        if is_in_costs and id == self._configured:
            raise NotAllowed("the rows of this connection are the cost of calls that are already counted")
        if self._registry is None or is_in_costs == (id in self._registry.connections_in_costs.all()):
            return
        self._registry.file_owners.check_unmanaged("connection", id)
        counted = self._registry.connections_in_costs
        if is_in_costs:
            await counted.add(id, {"in_costs": True}, actor=actor, action="connection.in_costs")
        else:
            await counted.remove(id, actor=actor, action="connection.out_of_costs")

    async def create(self, draft: ConnectionDraft, *, id: str | None, actor: Actor) -> BillingConnection:
        return await self.table.create(draft, id=id, max_rows=self._settings.max_connections, actor=actor)

    async def change(self, id: str, changes: dict[str, Any], *, actor: Actor) -> BillingConnection:
        if id == self._configured and changes.get("upstream_id", id) not in ("", id):
            raise NotAllowed("upstream.connection_id already sets the upstream id of this connection")
        return await self.table.change(id, changes, actor=actor)

    async def delete(self, id: str, *, actor: Actor) -> None:
        """Delete a connection and its rows. Files that wait for delivery are still sent upstream."""
        async with self._hold_lock(id):
            await self.delete_but_keep_rows(id, actor=actor)
            await self.drops.delete_connection(id)

    async def delete_but_keep_rows(self, id: str, *, actor: Actor) -> None:
        self.table.get(id)
        if id == self._configured:
            raise NotAllowed("upstream.connection_id names this connection; change the configuration first")
        # Remove the connection from the costs before it is deleted. If the deletion is not confirmed, the
        # caller repeats it. The connection may no longer exist by then, so the repetition would end before
        # a later removal.
        if self._registry and id in self._registry.connections_in_costs.all():
            self._registry.file_owners.check_unmanaged("connection", id)
            await self._registry.connections_in_costs.remove(id, actor=actor, action="")
        await self.table.delete(id, actor=actor)

    @asynccontextmanager
    async def hold_lock_for_billing_file(self, id: str) -> AsyncIterator[BillingConnection]:
        """Hold the lock of a connection for a file. Raises Refusal 404 or 409 if it accepts no files."""
        self._require_open(id)
        async with self._hold_lock(id):
            yield self._require_open(id)

    async def check_limits(self, billing_file: HourlyBillingFile) -> None:
        """
        Check a file against the limits. Raises Refusal 409 for a limit of the month, 429 for that of all
        months together.
        """
        settings = self._settings
        month = billing_file.month or ""
        replaces_all = (billing_file.operation or REPLACE_DROP) == REPLACE_DROP
        size = MonthSize() if replaces_all else await self.drops.month_size(billing_file.connection_id, month)
        if not self._fits_in_month(size, billing_file) and billing_file.operation == REPLACE_HOURLY:
            replaced = [hour.hour for hour in split_by_hour(billing_file.body)]
            size = await self.drops.month_size(billing_file.connection_id, month, replaced)
        is_full = await self.drops.stored_bytes() >= settings.max_bytes
        if self._fits_in_month(size, billing_file) and not is_full:
            return
        if await self.drops.has_billing_drop(billing_file.connection_id, month, billing_file.id.hex()):
            return  # a repeated file adds no rows, so there is nothing to do
        if is_full:
            message = (
                "Nothing was stored: the billing rows of all months have reached the limit "
                "(billing.max_bytes)."
            )
            raise Refusal(429, "too_many_rows", message, retry_after_s=RETRY_S)
        limits = f"{settings.max_month_rows} rows or {settings.max_month_bytes} bytes"
        message = (
            f"Nothing was stored: the month would exceed {limits}. Replace the month, or send fewer, "
            "coarser rows."
        )
        raise Refusal(409, "month_full", message)

    async def delete_old_months(self) -> None:
        oldest_kept = datetime.fromtimestamp(self._clock.now() - self._settings.retention, UTC)
        deleted_months = await self.drops.delete_old_months(f"{oldest_kept:%Y-%m}")
        if deleted_months:
            _log.info(
                "deleted old months of billing rows",
                extra={"action": "billing_months_removed", "months": deleted_months},
            )

    def _require_open(self, id: str) -> BillingConnection:
        connection = self.table.find(id)
        if connection is None:
            raise Refusal(
                404, "unknown_connection", f"Nothing was stored: this connection does not exist. {_CREATE}"
            )
        if not connection.is_enabled:
            raise Refusal(
                409, "connection_disabled", f"Nothing was stored: this connection is disabled. {_ENABLE}"
            )
        return connection

    @property
    def max_tags(self) -> int:
        return self._settings.max_tags

    def _fits_in_month(self, size_before: MonthSize, billing_file: HourlyBillingFile) -> bool:
        rows = size_before.rows + billing_file.rows
        size = size_before.bytes + len(billing_file.body)
        return rows <= self._settings.max_month_rows and size <= self._settings.max_month_bytes

    @asynccontextmanager
    async def _hold_lock(self, id: str) -> AsyncIterator[None]:
        """Hold the lock of a connection. It is deleted when no caller holds it or waits for it."""
        self._waiting[id] += 1
        try:
            async with self._turns.setdefault(id, asyncio.Lock()):
                yield
        finally:
            self._waiting[id] -= 1
            if not self._waiting[id]:
                del self._waiting[id], self._turns[id]


def _connection_state(connection: BillingConnection, newest_time_by_connection: Mapping[str, float]) -> str:
    if not connection.is_enabled:
        return DISABLED
    return RECEIVING if connection.id in newest_time_by_connection else PENDING
