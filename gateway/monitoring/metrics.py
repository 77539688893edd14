"""
Metrics in Prometheus text, under names that dashboards rely on.

Commits and requests are counted as they happen; the figures of the spool (queues, space) are read when the
metrics are asked for, at most once a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.monitoring.budgets import BudgetGauge
from gateway.monitoring.database import figures
from gateway.monitoring.limits import Limit
from gateway.monitoring.reconciliation import ReconciledRatio
from spool.container_files.values import WaitingFiles
from spool.deliveries.values import ROUTE_STATES, RouteState
from spool.errors import SpoolUnavailable
from spool.log.books import LEFT_OUT
from spool.log.values import Commit, LogStats
from spool.record import TOPICS
from spool.registry.notices import CHANNEL_STATES, FAILED, SENT, ChannelState
from spool.storage import DatabaseHealth

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CACHE_S = 1.0
ANSWER_S = 5.0  # of the storage; Prometheus waits for ten
LAG_EVERY_S = 0.1
LAG_WINDOW_S = 15.0  # longer than the usual scrape interval, so that no peak falls between two scrapes

MAX_DETAILS = 500  # sources and reasons that have a series of their own
OTHER = "other"


# term of a commit -> (metric, the label beside topic, help)
_TERMS: Mapping[str, tuple[str, str | None, str]] = {
    "received": ("received", None, "Items that decoders read"),
    "accepted": ("accepted", "source", "Records that are new"),
    "duplicates": ("duplicate", "source", "Records that were known"),
    "ignored": ("ignored", "reason", "Items that are no record"),
    "rejected": ("rejected", "reason", "Items that could not be taken"),
    "amended": ("amended", "source", "Open records that a later report completed"),
    "amended_late": (
        "amended_late",
        "source",
        "Reports that came after their record closed and would have added to it",
    ),
    "conflict": ("conflict", "source", "Reports of one call that disagree on tokens or cost"),
    "unidentified": ("unidentified", "source", "Records without anything to recognise a repeat by"),
}
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """
    What is read when the metrics are asked for. `installation` is the same for all gateways on one storage, `answers`
    is False while it does not answer: the figures of what is kept are then those of before.
    """

    stats: LogStats
    installation: str = ""
    answers: bool = True
    database: DatabaseHealth | None = None
    routes: Sequence[RouteState] = ()
    fenced: int = 0
    devices: Mapping[str, int] = field(default_factory=dict)
    clusters: Mapping[str, int] = field(default_factory=dict)
    waiting_files: WaitingFiles | None = None
    failed_attempts: int = 0
    clock_step_s: float = 0.0
    clock_held_s: float = 0.0
    limits: Sequence[Limit] = ()
    channels: Sequence[ChannelState] = ()
    now: float = 0.0
    budgets: Sequence[BudgetGauge] = ()
    reconciled: Sequence[ReconciledRatio] = ()


class _Registry(CollectorRegistry):
    """Leaves out the time at which each counter was made, which would be a third of all series."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Metrics:
    """Implements spool.log.Observer; every method returns at once."""

    def __init__(self) -> None:
        registry = self.registry = _Registry()
        ProcessCollector(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._records = {
            term: counter(f"tollhouse_records_{name}", help, ["topic", label] if label else ["topic"])
            for term, (name, label, help) in _TERMS.items()
        }
        self._left_out = counter(
            "tollhouse_tags_left_out",
            "Tags that were not kept: over a bound, or under a name of content or of a secret",
            ["topic"],
        )
        self._commit = histogram("tollhouse_commit_seconds", "Group commits, flush included", buckets=_BUCKETS)
        self._flush = histogram("tollhouse_flush_seconds", "Flushes to disk within a commit", buckets=_BUCKETS)
        self._requests = counter("tollhouse_requests", "Answered requests", ["endpoint", "status"])
        self._telemetry_failures = counter(
            "tollhouse_telemetry_failures", "Exports of Tollhouse's own metrics or traces that did not arrive"
        )
        self._tool_calls = counter("tollhouse_mcp_calls", "Calls of assistants' tools by keys", ["tool", "outcome"])
        self._refused = counter(
            "tollhouse_refused_requests", "Requests that were refused, by the type of answer", ["type"]
        )
        self._request_children: dict[tuple[str, int | str], Counter] = {}
        self._worker_deaths = counter("tollhouse_worker_deaths", "Worker processes that were replaced", ["reason"])
        self._bodies = counter("tollhouse_decoded_bodies", "Bodies of AI telemetry by who decoded them", ["by"])
        self._body_children = {by: self._bodies.labels(by) for by in ("server", "worker")}
        self._claimed = counter("tollhouse_records_claimed_device", "Records that named a device without its key")
        self._details: set[str] = set()
        lag = Gauge("tollhouse_loop_lag_seconds", "Worst event loop lag of the last 15 s", registry=registry)
        self.lag = LoopLag(lag)
        self._snapshot = _SnapshotCollector()
        registry.register(self._snapshot)
        self._refused.labels("internal")
        for topic in TOPICS:  # a series that is there from the start has a rate when its first record comes
            self._left_out.labels(topic)
            for term, (_, label, _) in _TERMS.items():
                self._records[term].labels(*((topic, OTHER) if label else (topic,)))

    def expect(self, endpoint: str, status: int | str) -> None:
        """An endpoint is there, and answers with this status when all is well: its series begins with 0."""
        self._request_children[endpoint, status] = self._requests.labels(endpoint, str(status))

    def tool_called(self, tool: str, outcome: str) -> None:
        """A tool of assistants was called; both are words of this program."""
        self._tool_calls.labels(tool, outcome).inc()

    def watch_workers(self, ready: Callable[[], int]) -> None:
        """Show how many worker processes are there."""
        Gauge("tollhouse_workers", "Worker processes that take work", registry=self.registry).set_function(ready)

    def worker_died(self, reason: str) -> None:
        """A worker process ended that should not have: one of the few words of gateway.workers.pool."""
        self._worker_deaths.labels(reason).inc()

    def body_decoded(self, by: str) -> None:
        """A body of AI telemetry was decoded: by the `server` or a `worker`."""
        self._body_children[by].inc()

    def watch_certificate(self, ends_at: Callable[[], float]) -> None:
        """Show when the certificate in use ends."""
        gauge = Gauge("tollhouse_certificate_end_timestamp_seconds", "When TLS stops to work", registry=self.registry)
        gauge.set_function(ends_at)

    def committed(self, commit: Commit) -> None:
        self._commit.observe(commit.seconds)
        self._flush.observe(commit.flush_seconds)
        for (topic, term, detail), n in commit.terms.items():
            if term == LEFT_OUT:
                self._left_out.labels(topic).inc(n)
            counter = self._records.get(term)
            if counter is not None and n > 0:
                labels = (topic, self._bounded(detail)) if _TERMS[term][1] else (topic,)
                counter.labels(*labels).inc(n)

    def _bounded(self, detail: str) -> str:
        """A source may be named by a sender, and every new name costs a series for good."""
        if detail not in self._details:
            if len(self._details) >= MAX_DETAILS:
                return OTHER
            self._details.add(detail)
        return detail

    def requests(self, endpoint: str, status: int | str) -> None:
        """An answer was given. `status` is the HTTP status, or the name of the gRPC code."""
        child = self._request_children.get((endpoint, status))
        if child is None:
            child = self._request_children[endpoint, status] = self._requests.labels(endpoint, str(status))
        child.inc()

    def refused(self, type: str) -> None:
        """A request was refused: `type` is that of the answer, one of a few dozen."""
        self._refused.labels(type).inc()

    def claimed(self, records: int) -> None:
        """Records named a device whose key they did not come under."""
        self._claimed.inc(records)

    def telemetry_failed(self) -> None:
        """Own telemetry did not arrive (exporters.own_telemetry)."""
        self._telemetry_failures.inc()

    def render(self, snapshot: Snapshot) -> bytes:
        self._snapshot.snapshot = snapshot
        return generate_latest(self.registry)

    def families(self, snapshot: Snapshot) -> Sequence[Metric]:
        """What `render` writes, as values."""
        self._snapshot.snapshot = snapshot
        return tuple(self.registry.collect())


class Exposition:
    """The text of `/metrics`, rendered at most once a second."""

    def __init__(
        self,
        metrics: Metrics,
        read: Callable[[], Awaitable[Snapshot]],
        now: Callable[[], float],
    ) -> None:
        self._metrics = metrics
        self._read = read
        self._now = now
        self._text = b""
        self._good_until = float("-inf")
        self._lock = asyncio.Lock()
        self._newest: Snapshot | None = None

    async def families(self) -> Sequence[Metric]:
        """The same as values, of now."""
        return self._metrics.families(await self._snapshot())

    async def text(self) -> bytes:
        async with self._lock:
            if self._now() >= self._good_until:
                self._text = self._metrics.render(await self._snapshot())
                self._good_until = self._now() + CACHE_S
            return self._text

    async def _snapshot(self) -> Snapshot:
        """What this process counted is told also while the storage is away."""
        try:
            async with asyncio.timeout(ANSWER_S):
                self._newest = await self._read()
        except (SpoolUnavailable, TimeoutError):
            if self._newest is None:
                raise
            self._newest = replace(self._newest, answers=False)
        return self._newest


class LoopLag:
    """How late the loop wakes a sleeper: what a client waits for while something hogs the loop."""

    def __init__(self, gauge: Gauge) -> None:
        self._samples: deque[float] = deque(maxlen=round(LAG_WINDOW_S / LAG_EVERY_S))
        gauge.set_function(lambda: self.worst)

    @property
    def worst(self) -> float:
        return max(self._samples, default=0.0)

    async def run(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due = now() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._samples.append(max(0.0, now() - due))


class _SnapshotCollector:
    """Turns the last snapshot into metric families."""

    snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Metric]:
        if self.snapshot is None:
            return
        stats = self.snapshot.stats
        yield _installation(self.snapshot.installation)
        yield _gauge("tollhouse_storage_answers", "0 while it does not: figures are old", float(self.snapshot.answers))
        if self.snapshot.database is not None:
            yield from _database(self.snapshot.database)
        yield _gauge("tollhouse_spool_entries", "Rows of the log", stats.entries)
        yield _gauge("tollhouse_spool_bytes", "What the spool takes up on disk", stats.bytes)
        yield _gauge("tollhouse_spool_free_bytes", "What it may still take", stats.free_bytes)
        yield _gauge("tollhouse_spool_wal_bytes", "The log beside the spool's file", stats.wal_bytes)
        yield _gauge("tollhouse_spool_cache_bytes", "Memory of the entries that were read last", stats.cache_bytes)
        stuck = float(bool(stats.wal_problem))
        yield _gauge("tollhouse_spool_checkpoint_failed", "1 while that log cannot be moved into the file", stuck)
        step_s, held_s = self.snapshot.clock_step_s, self.snapshot.clock_held_s
        yield _gauge("tollhouse_clock_step_seconds", "How far the wall clock is ahead of the time used", step_s)
        yield _gauge("tollhouse_clock_held_seconds", "For how long nothing is removed for its age", held_s)
        yield from _storage(stats)
        yield _gauge("tollhouse_commit_in_hand_seconds", "How long the commit in hand has taken", stats.commit_s)
        yield _gauge("tollhouse_submissions_waiting", "Submissions that wait for the next commit", stats.waiting)
        window_s = stats.duplicate_window_s
        yield _gauge("tollhouse_duplicate_window_seconds", "How far back repeats are known", window_s)
        failed = CounterMetricFamily("tollhouse_failed_attempts", "Requests without a valid key")
        failed.add_metric([], self.snapshot.failed_attempts)
        yield failed
        fenced = CounterMetricFamily(
            "tollhouse_deliveries_fenced", "Outcomes of deliveries that came after somebody else had taken them"
        )
        fenced.add_metric([], self.snapshot.fenced)
        yield fenced
        yield from self._routes(self.snapshot.routes)
        yield _by_state("devices", "Devices by state", self.snapshot.devices)
        yield _by_state("clusters", "Clusters by state", self.snapshot.clusters)
        if self.snapshot.waiting_files is not None:
            yield from _container_files(self.snapshot.waiting_files, self.snapshot.now)
        yield from self._limits(self.snapshot.limits)
        yield from _notifications(self.snapshot.channels, self.snapshot.now)
        yield from _budgets(self.snapshot.budgets)
        yield from _reconciled(self.snapshot.reconciled)

    @staticmethod
    def _limits(limits: Sequence[Limit]) -> Iterator[Metric]:
        allowed = GaugeMetricFamily("tollhouse_limit", "What a setting allows", labels=["name"])
        used = GaugeMetricFamily("tollhouse_limit_used", "How much of it is in use", labels=["name"])
        for limit in limits:
            allowed.add_metric([limit.name], limit.allowed)
            used.add_metric([limit.name], limit.used)
        yield from (allowed, used)

    @staticmethod
    def _routes(routes: Sequence[RouteState]) -> Iterator[Metric]:
        delivered = _route_counter("delivered", "Records that arrived")
        dead = _route_counter("dead", "Records set aside")
        refused = _route_counter("refused", "Records a partial success refused")
        ambiguous = _route_counter("ambiguous", "Records sent without a clear answer, and again under the same key")
        queued = _route_gauge("queued_records", "Records on their way")
        oldest = _route_gauge("oldest_age_seconds", "Age of the oldest of them")
        unknown = _route_gauge("unknown", "Records whose arrival is not known: settle them by hand")
        state = _route_gauge("state", "1 for the state it is in", "state")
        for route in routes:
            delivered.add_metric([route.name], route.delivered)
            dead.add_metric([route.name], route.dead)
            refused.add_metric([route.name], route.refused)
            ambiguous.add_metric([route.name], route.ambiguous)
            queued.add_metric([route.name], route.queued)
            oldest.add_metric([route.name], route.oldest_age_s or 0.0)
            unknown.add_metric([route.name], route.unknown)
            for name in ROUTE_STATES:
                state.add_metric([route.name, name], float(name == route.state))
        yield from (delivered, dead, refused, ambiguous, queued, oldest, unknown, state)


def _notifications(channels: Sequence[ChannelState], now: float) -> Iterator[Metric]:
    """Of each channel of [[notify]]."""
    ended = CounterMetricFamily("tollhouse_notifications", "Notifications that ended", labels=["channel", "state"])
    waiting = GaugeMetricFamily("tollhouse_notifications_waiting", "Notifications on their way", labels=["channel"])
    oldest = GaugeMetricFamily("tollhouse_notification_oldest_age_seconds", "Age of the oldest", labels=["channel"])
    states = ["channel", "state"]
    state = GaugeMetricFamily("tollhouse_notification_channel_state", "1 for the state it is in", labels=states)
    for channel in channels:
        ended.add_metric([channel.name, SENT], channel.counts.sent)
        ended.add_metric([channel.name, FAILED], channel.counts.failed)
        waiting.add_metric([channel.name], channel.counts.waiting)
        oldest.add_metric([channel.name], 0.0 if channel.oldest is None else max(0.0, now - channel.oldest))
        for name in CHANNEL_STATES:
            state.add_metric([channel.name, name], float(name == channel.state))
    yield from (ended, waiting, oldest, state)


def _budgets(gauges: Sequence[BudgetGauge]) -> Iterator[Metric]:
    labels = ["budget", "view", "owner"]
    spent = GaugeMetricFamily("tollhouse_budget_spent_dollars", "Spent in the running period", labels=labels)
    limit = GaugeMetricFamily("tollhouse_budget_limit_dollars", "Planned for the running period", labels=labels)
    forecast = GaugeMetricFamily("tollhouse_budget_forecast_dollars", "What the period will come to", labels=labels)
    ratio = GaugeMetricFamily("tollhouse_budget_ratio", "Spent, of what is planned", labels=labels)
    for each in gauges:
        pairs = ((spent, each.spent), (limit, each.limit), (forecast, each.forecast), (ratio, each.ratio))
        for family, value in pairs:
            if value is not None:
                family.add_metric([each.budget, each.view, each.owner], value)
    yield from (spent, limit, forecast, ratio)


def _reconciled(ratios: Sequence[ReconciledRatio]) -> Iterator[Metric]:
    """Of each provider with a settled statement."""
    help = "What was counted, of what was billed, in settled days of the newest month that has some"
    family = GaugeMetricFamily("tollhouse_reconciled_ratio", help, labels=["provider", "measure"])
    for each in ratios:
        family.add_metric([each.provider, each.measure], each.ratio)
    yield family


def _by_state(name: str, help: str, counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"tollhouse_{name}", help, labels=["state"])
    for state, n in counts.items():
        family.add_metric([state], n)
    return family


def _container_files(waiting: WaitingFiles, now: float) -> Iterator[Metric]:
    """What of container metrics waits for the upstream."""
    age_s = 0.0 if waiting.oldest is None else max(0.0, now - waiting.oldest)
    yield _gauge("tollhouse_container_waiting_files", "Container files that wait for the upstream", waiting.files)
    yield _gauge("tollhouse_container_waiting_bytes", "Their bytes", waiting.bytes)
    yield _gauge("tollhouse_container_oldest_age_seconds", "Age of the oldest of them", age_s)


def _storage(stats: LogStats) -> Iterator[Metric]:
    """The file system of the data directory, as the labels of a 1."""
    if stats.mount is not None:
        labels = ["mount", "durability"]
        family = GaugeMetricFamily("tollhouse_storage", "The file system of the data directory", labels=labels)
        family.add_metric([stats.mount.kind, stats.mount.durability], 1.0)
        yield family


def _database(health: DatabaseHealth) -> Iterator[Metric]:
    for figure in figures(health):
        labels = [figure.label] if figure.label else []
        kind = CounterMetricFamily if figure.is_counter else GaugeMetricFamily
        family = kind(f"tollhouse_{figure.name}", figure.help, labels=labels)
        for label, value in figure.values:
            family.add_metric([label] if labels else [], value)
        yield family


def _installation(installation: str) -> Metric:
    """A label, to count once what several gateways tell of one storage."""
    help = "The same for all gateways on one storage"
    family = GaugeMetricFamily("tollhouse_installation", help, labels=["installation"])
    family.add_metric([installation], 1.0)
    return family


def _route_counter(name: str, help: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"tollhouse_route_{name}", help, labels=["route"])


def _route_gauge(name: str, help: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tollhouse_route_{name}", help, labels=["route", *labels])


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help, value=value)
