"""Health depends on the spool's current state, never on a route or a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from gateway.monitoring import health as healths
from gateway.monitoring.health import ServerHealth
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import RouteState
from spool.errors import SpoolUnavailable
from spool.leases import NodeState, SoleNode, Work
from spool.ledger.ledger import LedgerComparisonState
from spool.log.protocols import RecordLog
from spool.log.values import LogStats
from tests.gateway.monitoring.test_metrics import ROUTE, STATS

DEAD = "the writer has stopped: restart Tollhouse"


@dataclass
class HealthSources(SoleNode):
    """The sources that `ServerHealth` reads, each of which a test may change."""

    stats_now: LogStats | Exception | None = STATS
    keys_read: bool = True
    closing: bool = False
    time: float = 1000.0
    reads: int = 0
    states: list[RouteState] | SpoolUnavailable = field(default_factory=list)
    gateways: list[NodeState] = field(default_factory=list)
    ledger: LedgerComparisonState | None = None

    async def stats(self) -> LogStats:
        self.reads += 1
        if self.stats_now is None:
            await asyncio.Event().wait()
        if isinstance(self.stats_now, Exception):
            raise self.stats_now
        assert self.stats_now is not None
        return self.stats_now

    async def route_states(self) -> Sequence[RouteState]:
        if isinstance(self.states, SpoolUnavailable):
            raise self.states
        return self.states

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def run_while_leased(
        self,
        lease_name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        raise AssertionError

    async def node_states(self) -> Sequence[NodeState]:
        if isinstance(self.states, SpoolUnavailable):
            raise self.states
        return self.gateways

    async def comparison_state(self) -> LedgerComparisonState:
        if self.ledger is None:
            raise SpoolUnavailable("gone")
        return self.ledger

    def health(self) -> ServerHealth:
        return ServerHealth(
            cast(RecordLog, self),
            cast(Deliveries, self),
            clock=self,
            keys_read=lambda: self.keys_read,
            closing=lambda: self.closing,
            leases=self,
            ledger=self.comparison_state,
        )


async def test_a_sound_sources_is_live_and_ready() -> None:
    """A server is live and ready if the last commit was flushed, space is free, and the keys are loaded."""
    health = HealthSources().health()
    assert await health.is_live() is True
    assert await health.is_ready() is True
    assert [] == (await health.build_report())["reasons"]


async def test_gateways_on_one_storage_are_shown() -> None:
    """
    The report lists each gateway with its leases. If a gateway is missing or its rows cannot be read, senders
    are still accepted.
    """
    gone = NodeState(
        id="1",
        name="a",
        version="1.2.3",
        started_at=900.0,
        seen_at=980.0,
        is_live=False,
        is_this=False,
        leases=(),
    )
    this = NodeState(
        id="2",
        name="b",
        version="1.2.3",
        started_at=990.0,
        seen_at=999.5,
        is_live=True,
        is_this=True,
        leases=["ledger"],
    )
    sources = HealthSources(gateways=[gone, this])
    report = await sources.health().build_report()
    assert report["ready"] is True
    assert [(node["live"], node["seen_s"], node["leases"]) for node in report["nodes"]] == [
        (False, 20.0, []),
        (True, 0.5, ["ledger"]),
    ]
    sources.states = SpoolUnavailable("gone")
    assert [] == (await sources.health().build_report())["nodes"]


@pytest.mark.parametrize(
    ("missed", "looked_for", "differing", "is_sound"),
    [(0, 0, 0, True), (3, 3, 0, True), (3, 0, 0, False), (0, 0, 1, False)],
)
async def test_what_the_ledger_lacks_changes_nothing_but_the_body(
    missed: int, looked_for: int, differing: int, is_sound: bool
) -> None:
    """
    Records that the ledger lacks change only the report, not the health. If they were already searched for,
    the ledger still counts as sound.
    """
    sources = HealthSources()
    sources.ledger = LedgerComparisonState(
        missed=missed, looked_for=looked_for, differing=differing, compared_at=None
    )
    report = await sources.health().build_report()
    assert report["ready"] is True
    assert report["reasons"] == []
    assert {"sound": is_sound, "missed": missed, "differing": differing, "compared_at": None} == report[
        "ledger"
    ]
    sources.ledger = None
    assert await sources.health().is_ready() is True
    assert (await sources.health().build_report())["ledger"] is None


async def test_paused_route_changes_only_the_health_report() -> None:
    """
    A parked route changes only the report, because problems of the upstream are no reason to refuse senders.
    """
    sources = HealthSources(states=[ROUTE])
    report = await sources.health().build_report()
    assert report["ready"] is True
    assert report["routes"][0]["state"] == "parked"
    assert report["routes"][0]["reason"] == "401"
    assert 3 == report["routes"][0]["unknown"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stats_now": replace(STATS, writable=False, last_error="the disk is full")}, "the disk is full"),
        ({"stats_now": replace(STATS, writable=False)}, "the spool cannot store anything"),
        (
            {"stats_now": replace(STATS, commit_s=healths.NOT_READY_S)},
            "the disk does not respond: the running commit has taken 5 s",
        ),
        ({"keys_read": False}, "the key table cannot be read"),
        ({"closing": True}, "stopping"),
        ({"stats_now": replace(STATS, alive=False)}, DEAD),
    ],
    ids=["disk full", "spool full", "hanging", "keys", "stopping", "dead writer"],
)
async def test_what_keeps_a_sources_from_being_ready(change: dict[str, object], reason: str) -> None:
    """
    If the server is not ready, the report names the reason. The server stays live unless only a restart can help.
    """
    health = HealthSources(**change).health()  # type: ignore[arg-type]
    assert await health.is_live() is (reason != DEAD)
    assert await health.is_ready() is False
    assert [reason] == (await health.build_report())["reasons"]


@pytest.mark.parametrize("trouble", [None, SpoolUnavailable("closed")], ids=["silent", "closed"])
async def test_a_dead_writer_is_not_live(trouble: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the spool does not respond in time, the server is not live."""
    monkeypatch.setattr(healths, "ANSWER_S", 0.01)
    health = HealthSources(stats_now=trouble).health()
    assert await health.is_live() is False
    assert await health.is_ready() is False
    assert ["the writer does not respond"] == (await health.build_report())["reasons"]


async def test_probes_query_the_disk_once_a_second() -> None:
    """
    Health checks need no key, so many of them must cost nothing. They query the disk at most once a second.
    """
    sources = HealthSources()
    health = sources.health()
    await asyncio.gather(*(health.is_ready() for _ in range(50)))
    assert 1 == sources.reads
    sources.time += 1
    await health.is_ready()
    assert 2 == sources.reads


async def test_readiness_follows_the_commit_in_hand() -> None:
    """
    A commit that runs for 5 s ends readiness, and one that runs for 60 s ends liveness, because the disk will
    not recover without help.
    """
    figures = [(4.9, True, True), (5.0, False, True), (59.9, False, True), (60.0, False, False)]
    for commit_s, ready, live in figures:
        health = HealthSources(stats_now=replace(STATS, commit_s=commit_s)).health()
        assert await health.is_ready() == ready, commit_s
        assert await health.is_live() == live, commit_s


async def test_a_full_spool_says_what_fills_it() -> None:
    """
    If the server is not ready because space is missing, the report names the routes that use the space and
    says what to do.
    """
    orphan = replace(ROUTE, name="old/ai-telemetry", state="orphaned", queued=70)
    optional = replace(ROUTE, name="archive/ai-telemetry", required=False, queued=900)
    full = replace(STATS, writable=False, bytes=5096, free_bytes=0)
    report = await HealthSources(stats_now=full, states=[ROUTE, orphan, optional]).health().build_report()
    assert [
        "the spool is full (spool.max_bytes): space.kept_by lists the routes that still need its records"
    ] == (report["reasons"])
    first, second = report["space"]["kept_by"]
    assert first.startswith("old/ai-telemetry is orphaned and still needs 70 records: add its destination")
    assert "tollhouse spool route delete" in first
    assert second.startswith("upstream/ai-telemetry is parked and still needs 5 records")


async def test_an_orphaned_route_is_named_before_it_fills_the_spool() -> None:
    """
    While space is free, the report names only an orphaned route, because its records will never be sent.
    """
    orphan = replace(ROUTE, name="old/ai-telemetry", state="orphaned", queued=70)
    roomy = replace(STATS, max_bytes=100_000, free_bytes=95_904)
    report = await HealthSources(stats_now=roomy, states=[ROUTE, orphan]).health().build_report()
    assert report["ready"]
    assert ["old/ai-telemetry"] == [line.split()[0] for line in report["space"]["kept_by"]]


async def test_routes_that_cannot_be_read_change_nothing() -> None:
    """If the routes cannot be read, the report has no routes. The server still accepts records."""
    report = await HealthSources(states=SpoolUnavailable("disk I/O error")).health().build_report()
    assert report["ready"] is True
    assert report["routes"] == []
