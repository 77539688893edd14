"""
`/livez` and `/readyz`. Their answers come from the last real commit, not from a flag.

Ready means only that Tollhouse can accept and store records. The reports also show routes, keys, clock and
totals, but these never change the result: a paused route is no reason to refuse senders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec

from spool.clock import Clock, clock_ahead_and_deletion_delay_s
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import ORPHANED, PARKED, RouteState
from spool.errors import SpoolError
from spool.leases import Leases, NodeState, SoleNode
from spool.ledger.ledger import LedgerComparisonState
from spool.log.protocols import RecordLog
from spool.log.values import LogStats
from spool.record import utc_iso
from spool.registry.field_notes import example, words

# seconds to wait for the storage's writer; after that, the writer counts as dead
ANSWER_S = 10.0
# duration of a commit in seconds after which the server reports "not ready", so that senders use another
# server
NOT_READY_S = 5.0
# Seconds of a commit after which the server is not alive. The writer will not recover, and the supervisor
# should restart the process.
NOT_ALIVE_S = 60.0
NEARLY_FULL = 0.8  # share of spool.max_bytes; above this share, health lists all routes that keep records
_ADVICE = {
    ORPHANED: ": add its destination to the configuration again, or delete it with `tollhouse spool route delete`",
    PARKED: ": run `tollhouse check` to see why; nothing is lost meanwhile",
}
# seconds for which disk figures are cached, because anybody may request health
CACHE_S = 1.0


class RouteStatus(msgspec.Struct, kw_only=True):
    route: Annotated[str, words("The route that sends the records."), example("archive/ai-telemetry")]
    state: Annotated[str, words("The state of the route."), example("running")]
    reason: Annotated[str | None, words("The reason for the state of the route, or null."), example(None)]
    since: Annotated[str | None, words("When the state began."), example(None)]
    progress: Annotated[int, words("The number of the first record that is not settled."), example(62585)]
    queued: Annotated[int, words("The number of waiting records."), example(0)]
    oldest_age_s: Annotated[
        float | None, words("The age of the oldest waiting record in seconds."), example(None)
    ]
    unknown: Annotated[
        int, words("The number of records in deliveries that were sent without an answer."), example(0)
    ]
    ambiguous: Annotated[
        int, words("The number of records in deliveries whose first request got no clear answer."), example(0)
    ]


class GatewayNode(msgspec.Struct, kw_only=True):
    node: Annotated[str, words("The id of the gateway.")]
    name: Annotated[str, words("The host name of the gateway.")]
    version: Annotated[str, words("The version of Tollhouse on the gateway.")]
    live: Annotated[bool, words("Whether the gateway renewed its leases in the last seconds.")]
    this: Annotated[bool, words("Whether this gateway made the answer.")]
    up_s: Annotated[float, words("The seconds since the gateway started.")]
    seen_s: Annotated[float, words("The seconds since the gateway was last seen.")]
    leases: Annotated[list[str], words("The tasks that only this gateway does.")]


class StoredKeys(msgspec.Struct, kw_only=True):
    read: Annotated[bool, words("Whether the keys can be read."), example(True)]


class ServerTime(msgspec.Struct, kw_only=True):
    now: Annotated[float, words("The time that the server uses, in epoch seconds."), example(1795743903.36)]
    up_s: Annotated[float, words("The seconds since the start."), example(28.374)]
    step_s: Annotated[float, words("How far the clock of the machine is ahead, in seconds."), example(0.0)]
    held_s: Annotated[float, words("How long deletion still waits, in seconds."), example(0.0)]


class QueueSize(msgspec.Struct, kw_only=True):
    bytes: Annotated[int, words("The size of the queue in bytes."), example(8133272)]
    max_bytes: Annotated[int, words("The maximum size of the queue in bytes."), example(10737418240)]
    free_bytes: Annotated[int, words("The free disk space in bytes."), example(10729284968)]
    wal_problem: Annotated[
        str | None, words("Why the write-ahead log cannot shrink, or null."), example(None)
    ]


class QueueOnDisk(QueueSize, kw_only=True):
    wal_bytes: Annotated[int, words("The size of the write-ahead log in bytes."), example(10820504)]
    kept_by: Annotated[list[str], words("The routes that still need the oldest records."), example([])]


class StorageMount(msgspec.Struct, kw_only=True):
    mount: Annotated[str | None, words("The type of the file system; null for a database."), example("ext4")]
    durability: Annotated[str, words("How writes reach the disk."), example("fsync")]
    warning: Annotated[str | None, words("A risk of the storage, or null."), example(None)]


class TotalsState(msgspec.Struct, kw_only=True):
    sound: Annotated[bool, words("Whether the totals match the records."), example(True)]
    missed: Annotated[int, words("The number of records that could not be counted."), example(0)]
    differing: Annotated[int, words("The number of totals that differ from the records."), example(0)]
    compared_at: Annotated[
        float | None,
        words("When the totals were last compared with the records, in epoch seconds, or null."),
        example(1795743891.0),
    ]


class ReadinessReport(msgspec.Struct, kw_only=True):
    ready: Annotated[bool, words("Whether the server accepts records."), example(True)]
    reasons: Annotated[list[str], words("Why the server does not accept records."), example([])]
    routes: list[RouteStatus]
    keys: Annotated[StoredKeys, words("The stored keys.")]
    clock: Annotated[ServerTime, words("The clock of the server.")]
    space: Annotated[QueueOnDisk | None, words("The disk space of the queue.")]
    storage: Annotated[StorageMount | None, words("The file system of the storage.")]
    nodes: Annotated[list[GatewayNode], words("The gateways that share the storage."), example([])]
    ledger: Annotated[TotalsState | None, words("The state of the totals.")]


class ServerHealth:
    """
    The health of a server. `keys_read` means that the key table could be read, and `closing` that the process
    is stopping.
    """

    def __init__(
        self,
        record_log: RecordLog,
        deliveries: Deliveries,
        *,
        clock: Clock,
        keys_read: Callable[[], bool],
        closing: Callable[[], bool],
        syncs: Callable[[], Sequence[RouteState]] = tuple,
        leases: Leases | None = None,
        ledger: Callable[[], Awaitable[LedgerComparisonState]] | None = None,
    ) -> None:
        self._leases = leases or SoleNode()
        self._log = record_log
        self._deliveries = deliveries
        self._clock = clock
        self._keys_read = keys_read
        self._closing = closing
        self._syncs = syncs
        self._ledger = ledger
        self._lock = asyncio.Lock()
        self._stats: LogStats | None = None
        self._good_until = float("-inf")
        self._started = clock.now()

    async def is_live(self) -> bool:
        """Return False only if the writer is dead or hangs. A dead event loop sends no response."""
        stats = await self._read_stats()
        return stats is not None and stats.alive and stats.commit_s < NOT_ALIVE_S

    async def is_ready(self) -> bool:
        return not self._reasons_not_ready(await self._read_stats())

    async def build_report(self) -> dict[str, Any]:
        """Report why the server is not ready, and the state of routes, keys, clock, space and ledger."""
        stats = await self._read_stats()
        obstacles = self._reasons_not_ready(stats)
        routes = await self._read_routes() if stats else []
        now = self._clock.now()
        step_s, held_s = clock_ahead_and_deletion_delay_s(self._clock)
        return {
            "ready": not obstacles,
            "reasons": obstacles,
            "routes": [describe_route(route) for route in routes],
            "keys": {"read": self._keys_read()},
            "clock": {"now": now, "up_s": now - self._started, "step_s": step_s, "held_s": held_s},
            "space": stats
            and {
                **describe_queue_size(stats),
                "wal_bytes": stats.wal_bytes,
                "kept_by": describe_routes_keeping_records(stats, routes),
            },
            "storage": stats and _describe_mount(stats),
            "nodes": await describe_nodes(self._leases, now),
            "ledger": await self._describe_ledger(),
        }

    async def _describe_ledger(self) -> dict[str, object] | None:
        """
        Describe the records that the totals lack, or return None if the ledger cannot be read. Records are
        accepted anyway.
        """
        if self._ledger is None:
            return None
        try:
            ledger_state = await self._ledger()
        except SpoolError:
            return None
        return {
            "sound": ledger_state.is_consistent_with_log,
            "missed": ledger_state.missed,
            "differing": ledger_state.differing,
            "compared_at": ledger_state.compared_at and ledger_state.compared_at.timestamp(),
        }

    async def _read_routes(self) -> list[RouteState]:
        """
        Return the routes, or an empty list if they cannot be read, because that is no reason to refuse senders.
        """
        try:
            return [*await self._deliveries.route_states(), *self._syncs()]
        except SpoolError:
            return []

    def _reasons_not_ready(self, stats: LogStats | None) -> list[str]:
        reasons = []
        if self._closing():
            reasons.append("stopping")
        if stats is None:
            reasons.append("the writer does not respond")
        elif not stats.alive:
            reasons.append("the writer has stopped: restart Tollhouse")
        elif not stats.writable:
            reasons.append(stats.last_error or _full_reason(stats))
        elif stats.commit_s >= NOT_READY_S:
            reasons.append(f"the disk does not respond: the running commit has taken {stats.commit_s:.0f} s")
        if not self._keys_read():
            reasons.append("the key table cannot be read")
        return reasons

    async def _read_stats(self) -> LogStats | None:
        async with self._lock:
            if self._clock.monotonic() >= self._good_until:
                try:
                    async with asyncio.timeout(ANSWER_S):
                        self._stats = await self._log.stats()
                except (TimeoutError, SpoolError):
                    self._stats = None
                self._good_until = self._clock.monotonic() + CACHE_S
            return self._stats


def _full_reason(stats: LogStats) -> str:
    if stats.free_bytes:
        return "the spool cannot store anything"
    return "the spool is full (spool.max_bytes): space.kept_by lists the routes that still need its records"


def describe_routes_keeping_records(stats: LogStats, routes: Sequence[RouteState]) -> list[str]:
    """
    Describe the required routes whose records cannot be deleted yet, the route with the most records first.

    The list has all such routes if the spool is nearly full, and otherwise only routes without a destination.
    """
    is_nearly_full = stats.bytes >= NEARLY_FULL * stats.max_bytes
    keeping = [route for route in routes if route.required and route.queued]
    return [
        f"{route.name} is {route.state} and still needs {route.queued} records{_ADVICE.get(route.state, '')}"
        for route in sorted(keeping, key=lambda route: -route.queued)
        if is_nearly_full or route.state == ORPHANED
    ]


def _describe_mount(stats: LogStats) -> dict[str, object]:
    if stats.mount is None:
        return {"mount": None, "durability": stats.durability, "warning": None}
    mount = stats.mount
    return {"mount": mount.kind, "durability": mount.flush_durability, "warning": mount.warning or None}


def describe_queue_size(stats: LogStats) -> dict[str, object]:
    return {
        "bytes": stats.bytes,
        "max_bytes": stats.max_bytes,
        "free_bytes": stats.free_bytes,
        "wal_problem": stats.wal_problem or None,
    }


def describe_route(route: RouteState) -> dict[str, object]:
    """Describe a route, or a sync (a table whose newest rows are sent), as all operator responses show it."""
    return {
        "route": route.name,
        "state": route.state,
        "reason": route.reason,
        "since": None if route.since is None else utc_iso(route.since),
        "progress": route.progress,
        "queued": route.queued,
        "oldest_age_s": route.oldest_age_s,
        "unknown": route.unknown,
        "ambiguous": route.ambiguous,
    }


def describe_node(node: NodeState, now: float) -> dict[str, object]:
    """Describe a gateway. `leases` are the routes and tasks that run only on this gateway."""
    return {
        "node": node.id,
        "name": node.name,
        "version": node.version,
        "live": node.is_live,
        "this": node.is_this,
        "up_s": max(0.0, now - node.started_at),
        "seen_s": max(0.0, now - node.seen_at),
        "leases": list(node.leases),
    }


async def describe_nodes(leases: Leases, now: float) -> Sequence[dict[str, object]]:
    """Describe the gateways on this storage. Return () if there is only one, or if they cannot be read."""
    try:
        return [describe_node(node, now) for node in await leases.node_states()]
    except SpoolError:
        return []
