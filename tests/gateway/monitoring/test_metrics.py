"""Metrics: the names on which dashboards rely, and the values that they count."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.http.error_table import refusal_for_error
from gateway.monitoring import metrics
from gateway.monitoring.metrics import MAX_DETAILS, Exposition, ProcessMetrics
from gateway.monitoring.snapshot import FIGURES, Limit, Snapshot
from spool.container_files.values import WaitingFiles
from spool.deliveries.values import RouteState
from spool.errors import SpoolUnavailable
from spool.log.values import Commit, LogStats
from spool.registry.notices import CHANNEL_STATES, ChannelCounts, ChannelState
from spool.storage import DatabaseHealth, Standby
from spool.turns.fair_turns import FairTurnScheduler
from tests.waiting import until

STATS = LogStats(
    entries=7,
    bytes=4096,
    free_bytes=1000,
    max_bytes=5096,
    duplicate_window_s=604800.0,
    duplicate_ids=12,
    writable=True,
    last_error=None,
)
ROUTE = RouteState(
    name="upstream/ai-telemetry",
    topic="ai-telemetry",
    required=True,
    state="parked",
    reason="401",
    progress=1,
    queued=5,
    oldest_age_s=2.5,
    delivered=40,
    refused=2,
    dead=1,
    stuck=0,
    unknown=3,
)

CHANNEL = ChannelState(
    name="on-call",
    type="slack",
    state="parked",
    reason="404",
    insights="none",
    counts=ChannelCounts(waiting=2, sent=7, failed=1),
    oldest=100.0,
)


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_a_commit_moves_the_counters_by_topic_and_source() -> None:
    """
    Each term of a commit increases its counter, by topic and source. Terms that only the accounting needs
    have no counter.
    """
    metrics = ProcessMetrics()
    terms = {
        ("ai-telemetry", "received", ""): 10,
        ("ai-telemetry", "accepted", "litellm"): 6,
        ("ai-telemetry", "duplicates", "litellm"): 1,
        ("ai-telemetry", "ignored", "not_ai"): 2,
        ("ai-telemetry", "rejected", "malformed"): 1,
        ("ai-telemetry", "pending", ""): -1,
        ("ai-telemetry", "left_out", ""): 7,
    }
    metrics.note_commit(Commit(seconds=0.004, flush_seconds=0.002, terms=terms))
    metrics.note_commit(Commit(seconds=0.004, flush_seconds=0.002, terms=terms))
    read = samples(metrics.render(Snapshot(stats=STATS)))
    topic = ("topic", "ai-telemetry")
    assert 20 == read["tollhouse_records_received_total", (topic,)]
    assert 12 == read["tollhouse_records_accepted_total", (("source", "litellm"), topic)]
    assert 2 == read["tollhouse_records_duplicate_total", (("source", "litellm"), topic)]
    assert 4 == read["tollhouse_records_ignored_total", (("reason", "not_ai"), topic)]
    assert 2 == read["tollhouse_records_rejected_total", (("reason", "malformed"), topic)]
    assert 14 == read["tollhouse_tags_left_out_total", (topic,)]
    assert 2 == read["tollhouse_commit_seconds_count", ()]
    assert 0.004 == read["tollhouse_flush_seconds_sum", ()]


def test_metrics_have_no_created_series() -> None:
    """
    No counter or histogram of Tollhouse has a `_created` series. Other registries of the process keep theirs.
    """
    metrics = ProcessMetrics()
    metrics.note_commit(Commit(seconds=0.1, flush_seconds=0.1, terms={("ai-telemetry", "received", ""): 1}))
    metrics.count_request("otlp/traces", 200)
    shown = [name for name, _ in samples(metrics.render(Snapshot(stats=STATS)))]
    assert "tollhouse_requests_total" in shown
    assert [] == [name for name in shown if name.endswith("_created")]
    other = CollectorRegistry()
    Counter("something", "of somebody else", registry=other)
    assert b"something_created" in generate_latest(other)


def test_sources_that_senders_name_are_bounded() -> None:
    """A sender that invents names cannot create unlimited series. Its records still count, under "other"."""
    metrics = ProcessMetrics()
    for number in range(2 * MAX_DETAILS):
        terms = {("ai-telemetry", "accepted", f"source-{number}"): 1}
        metrics.note_commit(Commit(seconds=0.1, flush_seconds=0.1, terms=terms))
    read = samples(metrics.render(Snapshot(stats=STATS)))
    counted = {
        labels: n for (name, labels), n in read.items() if name == "tollhouse_records_accepted_total" and n
    }
    assert len(counted) == MAX_DETAILS + 1
    assert sum(counted.values()) == 2 * MAX_DETAILS
    assert MAX_DETAILS == counted[(("source", "other"), ("topic", "ai-telemetry"))]


def test_made_up_sources_leave_those_of_tollhouse_their_series() -> None:
    """Invented source names do not displace known sources, reasons, or conflicting pairs of sources."""
    metrics = ProcessMetrics(lambda: ["litellm"])
    made_up = {("ai-telemetry", "accepted", f"source-{number}"): 1 for number in range(MAX_DETAILS + 1)}
    own = {
        ("ai-telemetry", "accepted", "litellm"): 3,
        ("ai-telemetry", "conflict", "otel/litellm"): 4,
        ("ai-telemetry", "rejected", "malformed"): 5,
    }
    for terms in (made_up, own):
        metrics.note_commit(Commit(seconds=0.1, flush_seconds=0.1, terms=terms))
    read = samples(metrics.render(Snapshot(stats=STATS)))
    told = {dict(labels).get("source") or dict(labels).get("reason"): n for (_, labels), n in read.items()}
    assert told["litellm"] == 3
    assert told["otel/litellm"] == 4
    assert told["malformed"] == 5


def test_routes_and_space_are_read_from_the_snapshot() -> None:
    """Queues and space are read from the snapshot. A route has one series per state."""
    read = samples(ProcessMetrics().render(Snapshot(stats=STATS, routes=[ROUTE], devices={"silent": 3})))
    route = ("route", "upstream/ai-telemetry")
    assert (40, 1, 2) == tuple(
        read[f"tollhouse_route_{name}_total", (route,)] for name in ("delivered", "dead", "refused")
    )
    assert 5 == read["tollhouse_route_queued_records", (route,)]
    assert 2.5 == read["tollhouse_route_oldest_age_seconds", (route,)]
    assert 3 == read["tollhouse_route_unknown", (route,)]
    assert 1 == read["tollhouse_route_state", (route, ("state", "parked"))]
    assert 0 == read["tollhouse_route_state", (route, ("state", "running"))]
    assert (7, 4096, 1000) == tuple(
        read[f"tollhouse_spool_{name}", ()] for name in ("entries", "bytes", "free_bytes")
    )
    assert 604800 == read["tollhouse_duplicate_window_seconds", ()]
    assert 3 == read["tollhouse_devices", (("state", "silent"),)]


def test_fleet_is_read_from_the_snapshot() -> None:
    states = {"fleet_states": {"missing": 4}, "assistants": {"codex": {"overridden": 2}}}
    snapshot = Snapshot(stats=STATS, **states, lost_calls=41, lost_cost=6.2)  # type: ignore[arg-type]
    read = samples(ProcessMetrics().render(snapshot))
    assert 41 == read["tollhouse_fleet_lost_calls", ()]
    assert 6.2 == read["tollhouse_fleet_lost_cost_usd", ()]
    assert 4 == read["tollhouse_fleet_devices", (("state", "missing"),)]
    assert 2 == read["tollhouse_fleet_assistants", (("assistant", "codex"), ("state", "overridden"))]


def test_clusters_and_container_files_are_read_from_the_snapshot() -> None:
    """The metrics show the number of offline clusters, and the number and age of waiting files."""
    waiting = WaitingFiles(files=2, bytes=700, oldest=940.0)
    read = samples(
        ProcessMetrics().render(
            Snapshot(stats=STATS, clusters={"silent": 2}, waiting_files=waiting, now=1000.0)
        )
    )
    assert 2 == read["tollhouse_clusters", (("state", "silent"),)]
    names = ("waiting_files", "waiting_bytes", "oldest_age_seconds")
    assert (2, 700, 60) == tuple(read[f"tollhouse_container_{name}", ()] for name in names)


def test_requests_are_counted_by_door_and_status() -> None:
    """HTTP statuses and gRPC code names share one label."""
    metrics = ProcessMetrics()
    metrics.count_request("otlp/traces", 200)
    metrics.count_request("otlp/traces", 200)
    metrics.count_request("grpc/traces", "UNAUTHENTICATED")
    read = samples(metrics.render(Snapshot(stats=STATS)))
    assert 2 == read["tollhouse_requests_total", (("endpoint", "otlp/traces"), ("status", "200"))]
    assert 1 == read["tollhouse_requests_total", (("endpoint", "grpc/traces"), ("status", "UNAUTHENTICATED"))]


async def test_a_crowd_of_scrapers_costs_one_rendering() -> None:
    """Within one second all scrapers get the same text. Later a new text is rendered."""
    now, reads = 100.0, 0

    async def read() -> Snapshot:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0)
        return Snapshot(stats=STATS)

    exposition = Exposition(ProcessMetrics(), read, lambda: now)
    texts = await asyncio.gather(*(exposition.current_text() for _ in range(5)))
    assert reads == 1
    assert len(set(texts)) == 1
    now = 101.0
    await exposition.current_text()
    assert 2 == reads


async def test_metrics_retain_stored_figures_while_the_storage_is_unavailable() -> None:
    """
    If the storage is unavailable, the metrics keep the last stored figures and report it.
    Process counters continue.
    """
    away: Exception | None = None
    now = 100.0

    async def read() -> Snapshot:
        if away is not None:
            raise away
        return Snapshot(stats=STATS)

    metrics = ProcessMetrics()
    exposition = Exposition(metrics, read, lambda: now)
    assert 1.0 == samples(await exposition.current_text())["tollhouse_storage_answers", ()]
    away, now = SpoolUnavailable("the database is down"), 102.0
    metrics.count_refusal("spool_unavailable")
    found = samples(await exposition.current_text())
    assert 0.0 == found["tollhouse_storage_answers", ()]
    assert 7.0 == found["tollhouse_spool_entries", ()]
    assert 1.0 == found["tollhouse_refused_requests_total", (("type", "spool_unavailable"),)]
    away, now = None, 104.0
    assert 1.0 == samples(await exposition.current_text())["tollhouse_storage_answers", ()]
    with pytest.raises(SpoolUnavailable):
        await Exposition(ProcessMetrics(), _away, lambda: now).current_text()


async def _away() -> Snapshot:
    raise SpoolUnavailable("the database is down")


async def test_a_slow_storage_before_the_first_figures_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the metrics cannot be read, a scraper gets a 503 that says when to ask again, and the log has no error."""
    monkeypatch.setattr(metrics, "ANSWER_S", 0.01)
    with pytest.raises(SpoolUnavailable) as raised:
        await Exposition(ProcessMetrics(), _never, lambda: 0.0).current_text()
    refusal = refusal_for_error(raised.value, endpoint="metrics")
    assert (503, "spool_unavailable", 1) == (refusal.status, refusal.type, refusal.retry_after_s)
    assert not caplog.records


async def _never() -> Snapshot:
    await asyncio.Event().wait()
    raise AssertionError


DATABASE = DatabaseHealth(
    needs_standby=True,
    standbys=[
        Standby(name="a", is_synchronous=True, lag_bytes=10, lag_s=0.5),
        Standby(name="b", is_synchronous=False, lag_bytes=99, lag_s=4.0),
    ],
    standby_waits=2,
    standby_wait_s=1.5,
    head_waits=1,
    head_wait_s=0.25,
    oldest_transaction_s=61.0,
    connections=18,
    max_connections=100,
    failed_connections=3,
    nodes=3,
    leases_held=8,
    leases_free=1,
    reporters=7,
)


def test_open_insights_are_shown_by_detector_and_severity() -> None:
    """An insight that no detector found has an empty detector. Without insights, there is no series."""
    insights = {("spend_spike", "warning"): 2, ("", "info"): 1}
    shown = samples(ProcessMetrics().render(Snapshot(stats=STATS, insights=insights)))
    assert 2 == shown["tollhouse_insights", (("detector", "spend_spike"), ("severity", "warning"))]
    assert 1 == shown["tollhouse_insights", (("detector", ""), ("severity", "info"))]
    empty = samples(ProcessMetrics().render(Snapshot(stats=STATS)))
    assert [] == [name for name, _ in empty if name == "tollhouse_insights"]


def test_each_figure_has_its_own_name() -> None:
    assert len(FIGURES) == len({figure.name for figure in FIGURES})


def test_a_database_that_gateways_share_has_figures_of_its_own() -> None:
    """
    A database that gateways share has separate figures: standbys, waits, connections, gateways and leases.
    """
    found = samples(ProcessMetrics().render(Snapshot(stats=STATS, installation="i", database=DATABASE)))
    told = {
        name: value
        for (name, labels), value in found.items()
        if name.startswith("tollhouse_postgres") and not labels
    }
    assert told == {
        "tollhouse_postgres_synchronous_standbys": 1.0,
        "tollhouse_postgres_standby_waits": 2.0,
        "tollhouse_postgres_standby_wait_seconds": 1.5,
        "tollhouse_postgres_head_waits": 1.0,
        "tollhouse_postgres_head_wait_seconds": 0.25,
        "tollhouse_postgres_oldest_transaction_seconds": 61.0,
        "tollhouse_postgres_connections": 18.0,
        "tollhouse_postgres_max_connections": 100.0,
        "tollhouse_postgres_connect_failures_total": 3.0,
        "tollhouse_postgres_reporters": 7.0,
    }
    assert 99.0 == found["tollhouse_postgres_standby_lag_bytes", (("standby", "b"),)]
    assert 0.5 == found["tollhouse_postgres_standby_lag_seconds", (("standby", "a"),)]
    assert 3.0 == found["tollhouse_nodes", ()]
    assert 1.0 == found["tollhouse_leases", (("state", "free"),)]
    assert 1.0 == found["tollhouse_installation", (("installation", "i"),)]


def test_what_a_role_may_not_see_has_no_series() -> None:
    """
    If the role may not see standbys, their series is missing, so that no alert reports a lost standby. A
    gateway that needs no standby has no such series either.
    """
    for blind in (
        replace(DATABASE, standbys=None, oldest_transaction_s=None),
        replace(DATABASE, needs_standby=False),
    ):
        found = {name for name, _ in samples(ProcessMetrics().render(Snapshot(stats=STATS, database=blind)))}
        assert "tollhouse_postgres_synchronous_standbys" not in found
        assert ("tollhouse_postgres_oldest_transaction_seconds" in found) == (blind.standbys is not None)
    assert not [
        name for name, _ in samples(ProcessMetrics().render(Snapshot(stats=STATS))) if "postgres" in name
    ]


async def test_loop_lag_sees_a_loop_that_was_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The loop lag is measured by a sleeping task. If the event loop is blocked, the task wakes late, by the
    delay that clients notice. The task begins to measure with the first request.
    """
    lag, turns = ProcessMetrics().lag, FairTurnScheduler()
    task = asyncio.create_task(lag.measure_repeatedly(turns.wait_for_requests))
    await asyncio.sleep(0)
    turns.find_or_add_party("first request")
    for _ in range(3):
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while loop.time() < begun + 0.25:  # the event loop gets no turn meanwhile
        pass
    await until(lambda: lag.worst_lag_s)
    task.cancel()
    assert 0.1 < lag.worst_lag_s < 30
    monkeypatch.setattr(metrics, "LAG_WINDOW_S", -1.0)
    assert 0.0 == lag.worst_lag_s  # an old measurement is not shown, even if nothing was measured since then


def test_failed_attempts_are_counted() -> None:
    """Failed attempts, such as guessed keys, are counted in a metric."""
    read = samples(ProcessMetrics().render(Snapshot(stats=STATS, failed_attempts=4)))
    assert 4 == read["tollhouse_failed_attempts_total", ()]


def test_outcomes_that_came_too_late_are_counted() -> None:
    """
    A worker may report a result after another worker has taken over its delivery. Such late results are
    counted in a metric.
    """
    read = samples(ProcessMetrics().render(Snapshot(stats=STATS, fenced=2, senders_pushed_out=3)))
    assert 2 == read["tollhouse_deliveries_fenced_total", ()]
    assert 3 == read["tollhouse_senders_pushed_out_total", ()]


def test_series_that_were_forgotten_for_want_of_room_are_counted() -> None:
    read = samples(ProcessMetrics().render(Snapshot(stats=replace(STATS, series_pushed_out=3))))
    assert 3 == read["tollhouse_series_pushed_out_total", ()]


def test_limits_are_shown_with_their_use() -> None:
    """One metric family has the limits and another one their use, under the names of the settings."""
    limits = [Limit("server.max_inflight_bytes", 100, 40), Limit("devices.max", 10, 3)]
    found = samples(ProcessMetrics().render(Snapshot(stats=STATS, limits=limits)))
    name = (("name", "server.max_inflight_bytes"),)
    assert found["tollhouse_limit", name] == 100
    assert found["tollhouse_limit_used", name] == 40


def test_channels_of_notifications_have_their_series() -> None:
    """
    Sent and failed notifications of a channel are counters. The age is that of the oldest waiting
    notification, or 0 if none waits.
    """
    idle = replace(CHANNEL, name="idle", state="running", oldest=None)
    found = samples(ProcessMetrics().render(Snapshot(stats=STATS, channels=(CHANNEL, idle), now=160.0)))
    name, series = ("channel", "on-call"), "tollhouse_notification"
    ended = {state: found[f"{series}s_total", (name, ("state", state))] for state in ("sent", "failed")}
    assert {"sent": 7.0, "failed": 1.0} == ended
    assert 2.0 == found[f"{series}s_waiting", (name,)]
    assert 60.0 == found[f"{series}_oldest_age_seconds", (name,)]
    assert 0.0 == found[f"{series}_oldest_age_seconds", (("channel", "idle"),)]
    states = {state: found[f"{series}_channel_state", (name, ("state", state))] for state in CHANNEL_STATES}
    assert {"running": 0.0, "failing": 0.0, "parked": 1.0, "removed": 0.0} == states
