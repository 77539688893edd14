"""
Which billing connections take drops: those that exist and are enabled, one request at a time, within their months.

A drop to an unknown connection is refused with what to do. Rows of a connection go with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gateway.service.configuration.sections import BillingSettings
from gateway.service.errors import Refusal
from spool.billing import REPLACE_DROP, REPLACE_HOURLY, BillingDrops, MonthSize, hours_of
from spool.clock import Clock
from spool.errors import NotAllowed, SpoolUnavailable
from spool.record import BillingDrop
from spool.registry.connections import BillingConnection, ConnectionDraft
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.connections import ConnectionTable

DISABLED, PENDING, RECEIVING = "Disabled", "Pending Data", "Receiving Data"
STATES = (DISABLED, PENDING, RECEIVING)
CONFIGURATION: Final = Actor("configuration", "")
RETRY_S: Final = 300

_CREATE = "Use the id of one that exists, or have the operator create it: tollhouse connections create --id."
_ENABLE = "Have the operator enable it: tollhouse connections enable."

# What the upstream finds wrong with a drop; None if it does not answer.
Validate = Callable[[bytes], Awaitable["list[str] | None"]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShownConnection:
    """A connection with its state, which is derived."""

    connection: BillingConnection
    state: str
    in_costs: bool = False
    in_costs_reason: str | None = None


class BillingConnections:
    """The connections of a registry and the drops that they took. `configured` is `upstream.connection_id`."""

    def __init__(
        self,
        registry: Registry | None,
        drops: BillingDrops,
        clock: Clock,
        settings: BillingSettings,
        *,
        configured: str = "",
        validate: Validate | None = None,
    ) -> None:
        self._registry = registry
        self.drops = drops
        self._clock = clock
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self.configure(settings, configured=configured, validate=validate)

    def configure(self, settings: BillingSettings, *, configured: str, validate: Validate | None) -> None:
        self._settings = settings
        self._configured = configured
        self.validate = validate

    async def establish(self) -> None:
        """Add the connection that the configuration names, and remove rows whose connection is gone."""
        if self._registry is None:
            return
        if self._configured:
            draft = ConnectionDraft(
                name=f"upstream.connection_id {self._configured}"[:200], cloud_provider="Tollhouse"
            )
            await self.table.establish(self._configured, draft, actor=CONFIGURATION)
        with_rows = await self.drops.newest()
        known = await self.table.ids()
        for id in with_rows:
            if id not in known:
                await self.drops.forget(id)

    @property
    def table(self) -> ConnectionTable:
        if self._registry is None:
            message = "The registry cannot be read now; repeat later."
            raise Refusal(503, "unavailable", message, retry_after_s=30)
        return self._registry.connections

    def id_upstream(self, drop: BillingDrop) -> str:
        """
        Return the upstream's connection id for a drop: the connection's present one, or the one at arrival if
        the connection is gone.
        """
        connection = None if self._registry is None else self._registry.connections.find(drop.connection_id)
        return connection.id_upstream if connection else drop.upstream_id or drop.connection_id

    def is_open(self, id: str) -> bool:
        """True if nothing forbids sending over a connection."""
        connection = None if self._registry is None else self._registry.connections.find(id)
        return connection is None or connection.is_enabled

    async def shown(self, *connections: BillingConnection) -> list[ShownConnection]:
        newest = await self.drops.newest()
        return [
            ShownConnection(each, _state(each, newest), self.is_in_costs(each.id)) for each in connections
        ]

    def is_in_costs(self, id: str) -> bool:
        """True if rows of a connection are billed money; never of the one that takes AI cost by the hour."""
        registry = self._registry
        return registry is not None and id != self._configured and id in registry.connections_in_costs.all()

    async def put_in_costs(self, id: str, wanted: bool, *, actor: Actor) -> None:
        """
        Keep what was decided. NotAllowed for the connection that takes AI cost by the hour: its calls are counted.
        """
        if wanted and id == self._configured:
            raise NotAllowed("its rows are the cost of calls that are counted already")
        if self._registry is None:
            return
        counted = self._registry.connections_in_costs
        if wanted and id not in counted.all():
            shown = {"in_costs": True}
            await counted.add(id, shown, actor=actor, action="connection.in_costs", shown=shown)
        elif not wanted and id in counted.all():
            await counted.remove(id, actor=actor, action="connection.out_of_costs")

    async def create(self, draft: ConnectionDraft, *, id: str | None, actor: Actor) -> BillingConnection:
        return await self.table.create(draft, id=id, most=self._settings.max_connections, actor=actor)

    async def change(self, id: str, changes: dict[str, Any], *, actor: Actor) -> BillingConnection:
        if id == self._configured and changes.get("upstream_id", id) not in ("", id):
            raise NotAllowed("upstream.connection_id names this connection by its id upstream")
        return await self.table.change(id, changes, actor=actor)

    async def delete(self, id: str, *, actor: Actor) -> None:
        """The connection and its rows. Drops to it that wait are sent all the same."""
        self.table.get(id)
        if id == self._configured:
            raise NotAllowed("upstream.connection_id names this connection: change the configuration first")
        # first: who repeats a deletion that was not confirmed finds no connection, and ends there
        if self._registry and id in self._registry.connections_in_costs.all():
            await self._registry.connections_in_costs.remove(id, actor=actor, action="")
        async with self._turn(id):
            await self.table.delete(id, actor=actor)
            await self.drops.forget(id)

    @asynccontextmanager
    async def taking(self, id: str) -> AsyncIterator[BillingConnection]:
        """The turn of one drop. Refusal 404 or 409 if the connection takes none."""
        self._open(id)
        async with self._turn(id):
            yield self._open(id)

    async def check_room(self, drop: BillingDrop) -> None:
        """Refusal 409 if the month would be over its limits, 429 if all months are."""
        settings = self._settings
        month = drop.month or ""
        replaces_all = (drop.operation or REPLACE_DROP) == REPLACE_DROP
        size = MonthSize() if replaces_all else await self.drops.size(drop.connection_id, month)
        if not self._fits(size, drop) and drop.operation == REPLACE_HOURLY:
            replaced = [hour.hour for hour in hours_of(drop.body)]
            size = await self.drops.size(drop.connection_id, month, replaced)
        is_full = await self.drops.stored() >= settings.max_bytes
        if self._fits(size, drop) and not is_full:
            return
        if await self.drops.has(drop.connection_id, month, drop.id.hex()):
            return  # a repeat adds nothing
        if is_full:
            message = "Nothing was kept: the rows of all months take up what they may (billing.max_bytes)."
            raise Refusal(429, "too_many_rows", message, retry_after_s=RETRY_S)
        limits = f"{settings.max_month_rows} rows or {settings.max_month_bytes} bytes"
        message = f"Nothing was kept: the month would be over {limits}; replace it, or send coarser rows."
        raise Refusal(409, "month_full", message)

    async def trim(self) -> None:
        """Remove months that ended longer ago than they are kept. Errors of the disk wait for the next time."""
        before = datetime.fromtimestamp(self._clock.now() - self._settings.retention, UTC)
        try:
            gone = await self.drops.trim(f"{before:%Y-%m}")
        except SpoolUnavailable as error:
            _log.error("months of billing drops stay: %s", error, extra={"action": "billing_months_kept"})
            return
        if gone:
            _log.info(
                "removed months of billing drops", extra={"action": "billing_months_removed", "months": gone}
            )

    def _open(self, id: str) -> BillingConnection:
        connection = self.table.find(id)
        if connection is None:
            raise Refusal(
                404, "unknown_connection", f"Nothing was kept: there is no such connection. {_CREATE}"
            )
        if not connection.is_enabled:
            raise Refusal(
                409, "connection_disabled", f"Nothing was kept: this connection is disabled. {_ENABLE}"
            )
        return connection

    @property
    def max_tags(self) -> int:
        """Return how many different tags the rows of one drop may have."""
        return self._settings.max_tags

    def _fits(self, kept: MonthSize, drop: BillingDrop) -> bool:
        rows = kept.rows + drop.rows
        size = kept.bytes + len(drop.body)
        return rows <= self._settings.max_month_rows and size <= self._settings.max_month_bytes

    @asynccontextmanager
    async def _turn(self, id: str) -> AsyncIterator[None]:
        """Hold the lock of a connection, one caller at a time; a lock lives while somebody holds it or waits."""
        self._waiting[id] += 1
        try:
            async with self._turns.setdefault(id, asyncio.Lock()):
                yield
        finally:
            self._waiting[id] -= 1
            if not self._waiting[id]:
                del self._waiting[id], self._turns[id]


def _state(connection: BillingConnection, newest: Mapping[str, float]) -> str:
    if not connection.is_enabled:
        return DISABLED
    return RECEIVING if connection.id in newest else PENDING
