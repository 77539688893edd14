"""
What is known of things beside calls, as one kind of row: devices, clusters, connections, keys and the accounts of
statements. Nothing secret is among it: no secret of a key, no digest, no address of a device.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

from gateway.http.holders.senders import SenderServices
from gateway.mcp.tool import Asking
from spool.ledger import money
from spool.ledger.queries import TOTAL, CostQuery, CostRow, end_of_hour

DAYS = 30
# By kind the dimension of the ledger by which its rows have costs.
COSTED_BY: Mapping[str, str] = {"device": "device", "key": "sender"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRow:
    """Times are epoch seconds. `calls` and `cost` (units of money) are of the last 30 days, None if not known."""

    kind: str
    id: str
    name: str
    source: str
    state: str = ""
    provider: str = ""
    account: str = ""
    region: str = ""
    user: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    first_seen: float | None = None
    last_seen: float | None = None
    calls: int | None = None
    cost: int | None = None

    def value(self, name: str) -> str:
        """Return the value under the name of a filter; "" if there is none."""
        match name:
            case "state" | "provider" | "account":
                return str(getattr(self, name))
            case "user" | "region":
                return str(getattr(self, name)) or self.tags.get(name, "")
        return self.tags.get(name.removeprefix("tag:"), "")


async def _devices(services: SenderServices) -> Sequence[ResourceRow]:
    lifecycle = services.devices
    if lifecycle is None:
        return ()
    return [
        ResourceRow(
            kind="device",
            id=each.id,
            name=_shown_host(each.hostname) or each.id,
            source="devices",
            state=lifecycle.state_of(each),
            user=each.user,
            tags=each.all_labels,
            first_seen=each.enrolled_at,
            last_seen=each.last_seen or None,
        )
        for each in lifecycle.table.all()
    ]


async def _clusters(services: SenderServices) -> Sequence[ResourceRow]:
    clusters = services.clusters
    if clusters is None:
        return ()
    return [
        ResourceRow(
            kind="cluster",
            id=each.id,
            name=each.display_name or each.name,
            source="clusters",
            state=each.state if each.enabled else "disabled",
            account=each.account,
            region=each.region,
            tags=each.labels,
            first_seen=each.first_seen,
            last_seen=clusters.last_seen(each),
        )
        for each in clusters.table.all()
    ]


async def _connections(services: SenderServices) -> Sequence[ResourceRow]:
    return [
        ResourceRow(
            kind="connection",
            id=each.id,
            name=each.name,
            source="connections",
            state="enabled" if each.is_enabled else "disabled",
            provider=each.cloud_provider,
            account="" if each.s3_bucket is None else each.s3_bucket.cloud_account_id,
            first_seen=each.created,
        )
        for each in services.require_registry().connections.all()
    ]


async def _keys(services: SenderServices) -> Sequence[ResourceRow]:
    access = services.access
    return [
        ResourceRow(
            kind="key",
            id=each.name,
            name=each.name,
            source="keys",
            state=each.status.lower(),
            tags=each.labels,
            last_seen=each.last_accessed,
        )
        for each in access.keys()  # noqa: SIM118 - no mapping
    ]


async def _accounts(services: SenderServices) -> Sequence[ResourceRow]:
    """An account has a row for each source and provider that tells of it."""
    found: dict[str, ResourceRow] = {}
    for each in await services.require_registry().statements.statements():
        id = f"{each.source}/{each.provider}/{each.account}"
        known = found.get(id)
        found[id] = ResourceRow(
            kind="account",
            id=id,
            name=each.account or each.source,
            source=each.source,
            provider=each.provider,
            account=each.account,
            state="settled" if each.settled else "open",
            first_seen=min(each.start, known.first_seen or each.start) if known else each.start,
            last_seen=max(each.end, known.last_seen or each.end) if known else each.end,
        )
    return list(found.values())


KINDS: Mapping[str, Callable[[SenderServices], Awaitable[Sequence[ResourceRow]]]] = {
    "device": _devices,
    "cluster": _clusters,
    "connection": _connections,
    "key": _keys,
    "account": _accounts,
}


async def costs_of(asking: Asking[Any], kind: str) -> Mapping[str, tuple[int, int]]:
    """Calls and cost of the last 30 days by the id of a row; empty where a kind has none."""
    dimension = COSTED_BY.get(kind)
    if dimension is None:
        return {}
    until = end_of_hour(asking.shared.clock.now())
    query = CostQuery(
        since=until - timedelta(days=DAYS), until=until, granularity=TOTAL, group_by=[dimension]
    )
    return await asyncio.to_thread(_calls_and_cost, await asking.ledger.costs(query))


def _calls_and_cost(rows: Sequence[CostRow]) -> Mapping[str, tuple[int, int]]:
    return {row.group[0] or "": (row.calls, money.units(row.cost)) for row in rows}


def _shown_host(name: str) -> str:
    """A host name; empty for an address."""
    try:
        ip_address(name)
    except ValueError:
        return name
    return ""
