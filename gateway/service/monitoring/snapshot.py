"""What is read of the storage and of money when the metrics are asked for, and the metric families made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from spool.container_files.values import WaitingFiles
from spool.deliveries.values import ROUTE_STATES, RouteState
from spool.log.values import LogStats
from spool.registry.notices import CHANNEL_STATES, FAILED, SENT, ChannelState
from spool.shares import KeyShare
from spool.storage import DatabaseHealth, Standby

if TYPE_CHECKING:
    from gateway.service.monitoring.spend import SpendCounts
    from spool.deliveries.protocols import LakeState


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGauge:
    """
    One owner of a budget, "" without owners, by the last evaluation. Dollars are None of budgets of tokens or
    calls, and where there is no amount or no forecast.
    """

    budget: str
    view: str
    owner: str
    spent: float | None
    limit: float | None
    forecast: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledRatio:
    """
    What was counted, of what a provider billed: `measure` is tokens or money. 1 is everything, above it too much.
    """

    provider: str
    measure: str
    ratio: float


@dataclass(frozen=True)
class Limit:
    """`name` is that of the setting, in the user's words."""

    name: str
    allowed: float
    used: float


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """
    What is read when the metrics are asked for. `installation` is the same for all gateways on one storage,
    `answers` is False while it does not answer: the figures of what is kept are then those of before.
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
    missed: int = 0
    differing: int = 0
    limits: Sequence[Limit] = ()
    senders_pushed_out: int = 0
    shares: Sequence[KeyShare] = ()  # of keys that hold nearly what they may of a limit
    channels: Sequence[ChannelState] = ()
    now: float = 0.0
    budgets: Sequence[BudgetGauge] = ()
    reconciled: Sequence[ReconciledRatio] = ()
    spend: SpendCounts | None = None
    lakes: Sequence[LakeState] = ()


class SnapshotCollector:
    """Turns the last snapshot into metric families."""

    snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Metric]:
        if self.snapshot is None:
            return
        stats = self.snapshot.stats
        yield _installation(self.snapshot.installation)
        yield _gauge(
            "tollhouse_storage_answers", "0 while it does not: figures are old", float(self.snapshot.answers)
        )
        if self.snapshot.database is not None:
            yield from _database(self.snapshot.database)
        yield _gauge("tollhouse_spool_entries", "Rows of the log", stats.entries)
        yield _gauge("tollhouse_spool_bytes", "What the spool takes up on disk", stats.bytes)
        yield _gauge("tollhouse_spool_free_bytes", "What it may still take", stats.free_bytes)
        yield _gauge("tollhouse_spool_wal_bytes", "The log next to the spool's file", stats.wal_bytes)
        yield _gauge(
            "tollhouse_spool_cache_bytes", "Memory of the entries that were read last", stats.cache_bytes
        )
        stuck = float(bool(stats.wal_problem))
        yield _gauge(
            "tollhouse_spool_checkpoint_failed", "1 while that log cannot be moved into the file", stuck
        )
        step_s = self.snapshot.clock_step_s
        held_s = self.snapshot.clock_held_s
        yield _gauge(
            "tollhouse_clock_step_seconds", "How far the wall clock is ahead of the time used", step_s
        )
        yield _gauge("tollhouse_clock_held_seconds", "For how long nothing is removed for its age", held_s)
        yield _gauge(
            "tollhouse_ledger_missed_records", "Numbers the ledger passed over: gone", self.snapshot.missed
        )
        differing = self.snapshot.differing
        yield _gauge(
            "tollhouse_ledger_differing_periods", "Hours and days unlike what is kept of them", differing
        )
        yield from _storage(stats)
        yield _gauge(
            "tollhouse_commit_in_hand_seconds", "How long the running commit has taken", stats.commit_s
        )
        yield _gauge(
            "tollhouse_submissions_waiting", "Submissions that wait for the next commit", stats.waiting
        )
        window_s = stats.duplicate_window_s
        yield _gauge("tollhouse_duplicate_window_seconds", "How far back repeats are known", window_s)
        failed = CounterMetricFamily("tollhouse_failed_attempts", "Requests without a valid key")
        failed.add_metric([], self.snapshot.failed_attempts)
        yield failed
        fenced = CounterMetricFamily(
            "tollhouse_deliveries_fenced",
            "Outcomes of deliveries that came after somebody else had taken them",
        )
        fenced.add_metric([], self.snapshot.fenced)
        yield fenced
        pushed_out = CounterMetricFamily(
            "tollhouse_senders_pushed_out",
            "Senders forgotten before their time: their counters count beside their calls",
        )
        pushed_out.add_metric([], self.snapshot.senders_pushed_out)
        yield pushed_out
        forgotten = CounterMetricFamily(
            "tollhouse_series_pushed_out",
            "Cumulative counters forgotten for want of room: the first point of one that comes again does not count",
        )
        forgotten.add_metric([], stats.series_pushed_out)
        yield forgotten
        yield from self._routes(self.snapshot.routes)
        yield _by_state("devices", "Devices by state", self.snapshot.devices)
        yield _by_state("clusters", "Clusters by state", self.snapshot.clusters)
        if self.snapshot.waiting_files is not None:
            yield from _container_files(self.snapshot.waiting_files, self.snapshot.now)
        yield from self._limits(self.snapshot.limits)
        held = GaugeMetricFamily(
            "tollhouse_limit_held_by_key",
            "What a key holds, if it is 80 % of what it may",
            labels=["name", "key"],
        )
        for share in self.snapshot.shares:
            held.add_metric([share.limit, share.key], share.held)
        yield held
        yield from _notifications(self.snapshot.channels, self.snapshot.now)
        yield from _budgets(self.snapshot.budgets)
        yield from _reconciled(self.snapshot.reconciled)
        yield from _lakes(self.snapshot.lakes)
        if self.snapshot.spend is not None:
            yield from self.snapshot.spend.families()

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
        ambiguous = _route_counter(
            "ambiguous", "Records sent without a clear answer, and again under the same key"
        )
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
    """Yield the metrics of the notification channels."""
    ended = CounterMetricFamily(
        "tollhouse_notifications", "Notifications that ended", labels=["channel", "state"]
    )
    waiting = GaugeMetricFamily(
        "tollhouse_notifications_waiting", "Notifications on their way", labels=["channel"]
    )
    oldest = GaugeMetricFamily(
        "tollhouse_notification_oldest_age_seconds", "Age of the oldest", labels=["channel"]
    )
    states = ["channel", "state"]
    state = GaugeMetricFamily(
        "tollhouse_notification_channel_state", "1 for the state it is in", labels=states
    )
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
    limit = GaugeMetricFamily(
        "tollhouse_budget_limit_dollars", "Planned for the running period", labels=labels
    )
    forecast = GaugeMetricFamily(
        "tollhouse_budget_forecast_dollars", "What the period will come to", labels=labels
    )
    ratio = GaugeMetricFamily("tollhouse_budget_ratio", "Spent, of what is planned", labels=labels)
    for each in gauges:
        pairs = ((spent, each.spent), (limit, each.limit), (forecast, each.forecast), (ratio, each.ratio))
        for family, value in pairs:
            if value is not None:
                family.add_metric([each.budget, each.view, each.owner], value)
    yield from (spent, limit, forecast, ratio)


def _reconciled(ratios: Sequence[ReconciledRatio]) -> Iterator[Metric]:
    """Yield the counted share of each provider's settled statement."""
    help = "What was counted, of what was billed, in settled days of the newest month that has some"
    family = GaugeMetricFamily("tollhouse_reconciled_ratio", help, labels=["provider", "measure"])
    for each in ratios:
        family.add_metric([each.provider, each.measure], each.ratio)
    yield family


def _lakes(states: Sequence[LakeState]) -> Iterator[Metric]:
    """Yield what is known of lakes; a series begins when something landed, or somebody looked."""
    landed = _route_gauge_of("lake_landed_timestamp_seconds", "When a delivery landed in the lake last")
    verified = _route_gauge_of("lake_verified_timestamp_seconds", "When the lake was looked at last")
    differs = _route_gauge_of("lake_differs", "Differences that the newest look at the lake found")
    for state in states:
        if state.landed_at is not None:
            landed.add_metric([state.route], state.landed_at)
        if state.verdict is not None:
            verified.add_metric([state.route], state.verdict.at)
            differs.add_metric([state.route], sum(state.verdict.differences.values()))
    yield from (landed, verified, differs)


def _by_state(name: str, help: str, counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"tollhouse_{name}", help, labels=["state"])
    for state, n in counts.items():
        family.add_metric([state], n)
    return family


def _container_files(waiting: WaitingFiles, now: float) -> Iterator[Metric]:
    """Yield the metrics of container files that wait for the upstream."""
    age_s = 0.0 if waiting.oldest is None else max(0.0, now - waiting.oldest)
    yield _gauge(
        "tollhouse_container_waiting_files", "Container files that wait for the upstream", waiting.files
    )
    yield _gauge("tollhouse_container_waiting_bytes", "Their bytes", waiting.bytes)
    yield _gauge("tollhouse_container_oldest_age_seconds", "Age of the oldest of them", age_s)


def _storage(stats: LogStats) -> Iterator[Metric]:
    """The file system of the data directory, as the labels of a 1."""
    if stats.mount is not None:
        labels = ["mount", "durability"]
        family = GaugeMetricFamily(
            "tollhouse_storage", "The file system of the data directory", labels=labels
        )
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


def _route_gauge_of(name: str, help: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tollhouse_{name}", help, labels=["route"])


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help, value=value)


# -- a database that gateways share --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFigure:
    """One metric: each of `values` under the value of its one label, "" without a label."""

    name: str
    help: str
    values: Sequence[tuple[str, float]]
    label: str = ""
    is_counter: bool = False


def figures(health: DatabaseHealth) -> Iterator[DatabaseFigure]:
    """
    Yield the figures of the database. Values that its role may not see have none, nor do standbys if
    none is needed.
    """
    if health.standbys is not None:
        yield from _standbys(health.standbys, needs_standby=health.needs_standby)
    yield _figure("postgres_standby_waits", "Commits that wait for a standby", health.standby_waits)
    yield _figure(
        "postgres_standby_wait_seconds", "How long the longest of them waits", health.standby_wait_s
    )
    yield _figure(
        "postgres_head_waits", "Gateways that wait until another one has committed", health.head_waits
    )
    yield _figure("postgres_head_wait_seconds", "How long the longest of them waits", health.head_wait_s)
    oldest_s = health.oldest_transaction_s
    if oldest_s is not None:
        yield _figure(
            "postgres_oldest_transaction_seconds", "Age of the oldest transaction in the database", oldest_s
        )
    yield _figure("postgres_connections", "Connections of all that use the server", health.connections)
    yield _figure("postgres_max_connections", "How many it takes", health.max_connections)
    yield DatabaseFigure(
        name="postgres_connect_failures",
        help="Attempts of this gateway to connect that failed",
        values=[("", health.failed_connections)],
        is_counter=True,
    )
    yield _figure("nodes", "Gateways that share the storage", health.nodes)
    yield DatabaseFigure(
        name="leases",
        help="Routes and tasks of one gateway at a time: held, or free while nobody runs them",
        values=[("held", health.leases_held), ("free", health.leases_free)],
        label="state",
    )
    yield _figure(
        "postgres_reporters",
        "Senders of calls that the database remembers, for counters beside them",
        health.reporters,
    )


def _standbys(standbys: Sequence[Standby], *, needs_standby: bool) -> Iterator[DatabaseFigure]:
    if needs_standby:
        synchronous = sum(one.is_synchronous for one in standbys)
        yield _figure(
            "postgres_synchronous_standbys", "Standbys that are there and confirm commits", synchronous
        )
    yield DatabaseFigure(
        name="postgres_standby_lag_bytes",
        help="What it has not flushed",
        values=[(one.name, one.lag_bytes) for one in standbys],
        label="standby",
    )
    yield DatabaseFigure(
        name="postgres_standby_lag_seconds",
        help="How far it is behind",
        values=[(one.name, one.lag_s) for one in standbys],
        label="standby",
    )


def _figure(name: str, help: str, value: float) -> DatabaseFigure:
    return DatabaseFigure(name=name, help=help, values=[("", value)])
