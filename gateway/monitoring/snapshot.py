"""
The figures of storage and money that are read for each request of the metrics, and the metric families
built from them.
"""

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
    from gateway.monitoring.spend import SpendCounts
    from spool.deliveries.protocols import LakeState


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGauge:
    """
    The state of a budget's owner at the last evaluation; "" is a budget without owners. Dollars are None if
    the budget limits tokens or calls, and if there is no amount or no forecast.
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
    The counted share of a provider's bill. `measure` is tokens or money. 1 means that all of the bill was
    counted, and more than 1 that too much was counted.
    """

    provider: str
    measure: str
    ratio: float


@dataclass(frozen=True, kw_only=True)
class SenderGauges:
    """
    The newest arrival by source and by API key, in epoch seconds, and the senders that stopped, as pairs of a kind
    (`source` or `key`) and a name. All three are limited in length.
    """

    sources: Mapping[str, float]
    keys: Mapping[str, float]
    stopped: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class KeyGauges:
    """
    The number of API keys by state, the expiry of keys in use, and the number of refused requests by name of an expired
    key. The last two are limited in length.
    """

    states: Mapping[str, int]
    ends: Mapping[str, float]
    tries: Mapping[str, int]


@dataclass(frozen=True)
class Limit:
    """A limit and its use. `name` is the name of the setting."""

    name: str
    allowed: float
    used: float


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """
    The figures for one request of the metrics. `installation` is the same for all gateways on one storage. If
    `answers` is False, the storage does not respond, and its figures are from an earlier read.
    """

    stats: LogStats
    installation: str = ""
    answers: bool = True
    database: DatabaseHealth | None = None
    routes: Sequence[RouteState] = ()
    fenced: int = 0
    devices: Mapping[str, int] = field(default_factory=dict)
    # machines of the fleet by state, and devices by the state of each assistant
    fleet_states: Mapping[str, int] = field(default_factory=dict)
    assistants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clusters: Mapping[str, int] = field(default_factory=dict)
    waiting_files: WaitingFiles | None = None
    failed_attempts: int = 0
    clock_step_s: float = 0.0
    clock_held_s: float = 0.0
    missed: int = 0
    differing: int = 0
    limits: Sequence[Limit] = ()
    senders_pushed_out: int = 0
    shares: Sequence[KeyShare] = ()  # keys that use nearly all of their share of a common limit
    channels: Sequence[ChannelState] = ()
    now: float = 0.0
    budgets: Sequence[BudgetGauge] = ()
    unheard_budgets: int = 0  # budgets with alerts that no channel would send
    scheduled_reports: Mapping[str, int] = field(default_factory=dict)  # by state
    reconciled: Sequence[ReconciledRatio] = ()
    spend: SpendCounts | None = None
    senders: SenderGauges | None = None
    keys: KeyGauges | None = None
    # time at which the certificate of a setting expires, 0 if it cannot be read
    certificates: Mapping[str, float] = field(default_factory=dict)
    lakes: Sequence[LakeState] = ()


class SnapshotCollector:
    snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Metric]:
        if self.snapshot is None:
            return
        stats = self.snapshot.stats
        yield _installation(self.snapshot.installation)
        yield _gauge(
            "tollhouse_storage_answers",
            "1 if the storage responds; 0 if it does not, and its figures are old",
            float(self.snapshot.answers),
        )
        if self.snapshot.database is not None:
            yield from _database(self.snapshot.database)
        yield _gauge("tollhouse_spool_entries", "Entries in the log", stats.entries)
        yield _gauge("tollhouse_spool_bytes", "Size of the spool on disk in bytes", stats.bytes)
        yield _gauge("tollhouse_spool_free_bytes", "Bytes that the spool may still use", stats.free_bytes)
        yield _gauge("tollhouse_spool_wal_bytes", "Size of the write-ahead log in bytes", stats.wal_bytes)
        yield _gauge(
            "tollhouse_spool_cache_bytes",
            "Memory used by the cache of recently read entries, in bytes",
            stats.cache_bytes,
        )
        stuck = float(bool(stats.wal_problem))
        yield _gauge(
            "tollhouse_spool_checkpoint_failed",
            "1 while the write-ahead log cannot be moved into the spool file",
            stuck,
        )
        step_s = self.snapshot.clock_step_s
        held_s = self.snapshot.clock_held_s
        yield _gauge(
            "tollhouse_clock_step_seconds",
            "Seconds by which the wall clock is ahead of the time that Tollhouse uses",
            step_s,
        )
        yield _gauge(
            "tollhouse_clock_held_seconds",
            "Seconds for which nothing has been deleted for its age, because the clock is not trusted",
            held_s,
        )
        yield _gauge(
            "tollhouse_ledger_missed_records",
            "Records missing in totals, because they were deleted before they were counted",
            self.snapshot.missed,
        )
        differing = self.snapshot.differing
        yield _gauge(
            "tollhouse_ledger_differing_periods",
            "Hours and days whose totals differ from the stored records",
            differing,
        )
        yield from _storage(stats)
        yield _gauge(
            "tollhouse_commit_in_hand_seconds",
            "Seconds that the running commit has taken so far",
            stats.commit_s,
        )
        yield _gauge(
            "tollhouse_submissions_waiting", "Submissions that wait for the next commit", stats.waiting
        )
        window_s = stats.duplicate_window_s
        yield _gauge(
            "tollhouse_duplicate_window_seconds",
            "How far back repeated reports are recognized, in seconds",
            window_s,
        )
        failed = CounterMetricFamily("tollhouse_failed_attempts", "Requests without a valid key")
        failed.add_metric([], self.snapshot.failed_attempts)
        yield failed
        fenced = CounterMetricFamily(
            "tollhouse_deliveries_fenced",
            "Results of deliveries that arrived after another gateway had taken over the route",
        )
        fenced.add_metric([], self.snapshot.fenced)
        yield fenced
        pushed_out = CounterMetricFamily(
            "tollhouse_senders_pushed_out",
            "Senders forgotten early for lack of space: their counters are then counted in addition "
            "to their calls",
        )
        pushed_out.add_metric([], self.snapshot.senders_pushed_out)
        yield pushed_out
        forgotten = CounterMetricFamily(
            "tollhouse_series_pushed_out",
            "Cumulative counters forgotten for lack of space: if one returns, its first value is not counted",
        )
        forgotten.add_metric([], stats.series_pushed_out)
        yield forgotten
        yield from self._routes(self.snapshot.routes)
        yield _by_state("devices", "Devices by state", self.snapshot.devices)
        yield _by_state(
            "fleet_devices",
            "Machines of the inventory by state, or all devices if there is no inventory",
            self.snapshot.fleet_states,
        )
        assistants = GaugeMetricFamily(
            "tollhouse_fleet_assistants",
            "Devices by coding assistant and its state",
            labels=["assistant", "state"],
        )
        for assistant, states in self.snapshot.assistants.items():
            for state, count in states.items():
                assistants.add_metric([assistant, state], count)
        yield assistants
        yield _by_state("clusters", "Clusters by state", self.snapshot.clusters)
        if self.snapshot.waiting_files is not None:
            yield from _container_files(self.snapshot.waiting_files, self.snapshot.now)
        yield from self._limits(self.snapshot.limits)
        held = GaugeMetricFamily(
            "tollhouse_limit_held_by_key",
            "Use of a limit by one key, if it is 80 % or more of the key's share",
            labels=["name", "key"],
        )
        for share in self.snapshot.shares:
            held.add_metric([share.limit, share.key], share.held)
        yield held
        yield from _notifications(self.snapshot.channels, self.snapshot.now)
        yield from _budgets(self.snapshot.budgets)
        yield _gauge(
            "tollhouse_budgets_without_channel",
            "Budgets with alerts that reach nobody, because there is no channel or all of theirs are parked",
            self.snapshot.unheard_budgets,
        )
        yield _by_state("scheduled_reports", "Scheduled reports by state", self.snapshot.scheduled_reports)
        yield from _reconciled(self.snapshot.reconciled)
        yield from _lakes(self.snapshot.lakes)
        if self.snapshot.senders is not None:
            yield from _senders(self.snapshot.senders, self.snapshot.now)
        if self.snapshot.keys is not None:
            yield from _keys(self.snapshot.keys)
        yield _certificates(self.snapshot.certificates)
        if self.snapshot.spend is not None:
            yield from self.snapshot.spend.families()

    @staticmethod
    def _limits(limits: Sequence[Limit]) -> Iterator[Metric]:
        allowed = GaugeMetricFamily(
            "tollhouse_limit", "Value of a limit in the configuration", labels=["name"]
        )
        used = GaugeMetricFamily("tollhouse_limit_used", "Current use of a limit", labels=["name"])
        for limit in limits:
            allowed.add_metric([limit.name], limit.allowed)
            used.add_metric([limit.name], limit.used)
        yield from (allowed, used)

    @staticmethod
    def _routes(routes: Sequence[RouteState]) -> Iterator[Metric]:
        delivered = _route_counter("delivered", "Delivered records")
        dead = _route_counter("dead", "Records that the destination rejected for good")
        refused = _route_counter("refused", "Records rejected in a partly successful response")
        ambiguous = _route_counter(
            "ambiguous", "Records sent without a clear answer and sent again under the same idempotency key"
        )
        queued = _route_gauge("queued_records", "Records waiting for delivery")
        oldest = _route_gauge("oldest_age_seconds", "Age of the oldest waiting record")
        unknown = _route_gauge(
            "unknown", "Records sent without an answer: report by hand whether they arrived"
        )
        state = _route_gauge("state", "1 for the current state of the route, 0 for all others", "state")
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
    ended = CounterMetricFamily(
        "tollhouse_notifications",
        "Notifications that were sent, failed or discarded",
        labels=["channel", "state"],
    )
    waiting = GaugeMetricFamily(
        "tollhouse_notifications_waiting", "Notifications waiting to be sent", labels=["channel"]
    )
    oldest = GaugeMetricFamily(
        "tollhouse_notification_oldest_age_seconds",
        "Age of the oldest waiting notification",
        labels=["channel"],
    )
    states = ["channel", "state"]
    state = GaugeMetricFamily(
        "tollhouse_notification_channel_state",
        "1 for the current state of the channel, 0 for all others",
        labels=states,
    )
    down = GaugeMetricFamily(
        "tollhouse_notification_channel_down",
        "1 if the channel is parked, has failed for 15 minutes or holds a critical notice back, else 0",
        labels=["channel"],
    )
    for channel in channels:
        down.add_metric([channel.name], float(channel.is_down(now)))
        ended.add_metric([channel.name, SENT], channel.counts.sent)
        ended.add_metric([channel.name, FAILED], channel.counts.failed)
        waiting.add_metric([channel.name], channel.counts.waiting)
        oldest.add_metric([channel.name], 0.0 if channel.oldest is None else max(0.0, now - channel.oldest))
        for name in CHANNEL_STATES:
            state.add_metric([channel.name, name], float(name == channel.state))
    yield from (ended, waiting, oldest, state, down)


def _budgets(gauges: Sequence[BudgetGauge]) -> Iterator[Metric]:
    labels = ["budget", "view", "owner"]
    spent = GaugeMetricFamily(
        "tollhouse_budget_spent_dollars", "Dollars spent in the running period", labels=labels
    )
    limit = GaugeMetricFamily(
        "tollhouse_budget_limit_dollars", "Dollars planned for the running period", labels=labels
    )
    forecast = GaugeMetricFamily(
        "tollhouse_budget_forecast_dollars", "Forecast for the whole period in dollars", labels=labels
    )
    ratio = GaugeMetricFamily(
        "tollhouse_budget_ratio", "Amount spent divided by the planned amount", labels=labels
    )
    for gauge in gauges:
        pairs = ((spent, gauge.spent), (limit, gauge.limit), (forecast, gauge.forecast), (ratio, gauge.ratio))
        for family, value in pairs:
            if value is not None:
                family.add_metric([gauge.budget, gauge.view, gauge.owner], value)
    yield from (spent, limit, forecast, ratio)


def _reconciled(ratios: Sequence[ReconciledRatio]) -> Iterator[Metric]:
    help = "Counted divided by billed, in closed days of the newest month that has such days"
    family = GaugeMetricFamily("tollhouse_reconciled_ratio", help, labels=["provider", "measure"])
    for reconciled_ratio in ratios:
        family.add_metric([reconciled_ratio.provider, reconciled_ratio.measure], reconciled_ratio.ratio)
    yield family


def _lakes(states: Sequence[LakeState]) -> Iterator[Metric]:
    """Yield metrics of data lakes. A series begins after the first landing or the first verification."""
    landed = _route_gauge_of("lake_landed_timestamp_seconds", "Time of the last delivery to the data lake")
    verified = _route_gauge_of(
        "lake_verified_timestamp_seconds", "Time of the last verification of the data lake"
    )
    differs = _route_gauge_of("lake_differs", "Differences found by the last verification of the data lake")
    for state in states:
        if state.landed_at is not None:
            landed.add_metric([state.route], state.landed_at)
        if state.verdict is not None:
            verified.add_metric([state.route], state.verdict.at)
            differs.add_metric([state.route], sum(state.verdict.differences.values()))
    yield from (landed, verified, differs)


def _senders(senders: SenderGauges, now: float) -> Iterator[Metric]:
    """Yield the age of the newest record by source and by key, and the senders that stopped."""
    for name, label, newest in (
        ("last_record_seconds", "source", senders.sources),
        ("key_last_record_seconds", "key", senders.keys),
    ):
        help = f"Seconds since the newest record of the {label} arrived"
        family = GaugeMetricFamily(f"tollhouse_{name}", help, labels=[label])
        for value, at in newest.items():
            family.add_metric([value], max(0.0, now - at))
        yield family
    stopped = GaugeMetricFamily(
        "tollhouse_sender_stopped",
        "1 for each source or key that is silent for much longer than usual",
        labels=["kind", "sender"],
    )
    for kind, sender in senders.stopped:
        stopped.add_metric([kind, sender], 1.0)
    yield stopped


def _keys(keys: KeyGauges) -> Iterator[Metric]:
    yield _by_state("keys", "API keys by state", keys.states)
    ends = GaugeMetricFamily(
        "tollhouse_key_end_timestamp_seconds", "Time at which an API key in use expires", labels=["key"]
    )
    for name, at in keys.ends.items():
        ends.add_metric([name], at)
    tries = GaugeMetricFamily(
        "tollhouse_expired_key_requests", "Refused requests since the API key expired", labels=["key"]
    )
    for name, count in keys.tries.items():
        tries.add_metric([name], count)
    yield from (ends, tries)


def _certificates(ends: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(
        "tollhouse_certificate_end_timestamp_seconds",
        "Time at which the certificate of a setting expires; 0 if it cannot be read",
        labels=["setting"],
    )
    for setting, at in ends.items():
        family.add_metric([setting], at)
    return family


def _by_state(name: str, help: str, counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"tollhouse_{name}", help, labels=["state"])
    for state, n in counts.items():
        family.add_metric([state], n)
    return family


def _container_files(waiting: WaitingFiles, now: float) -> Iterator[Metric]:
    age_s = 0.0 if waiting.oldest is None else max(0.0, now - waiting.oldest)
    yield _gauge(
        "tollhouse_container_waiting_files",
        "Container files that wait to be sent to your cost service",
        waiting.files,
    )
    yield _gauge("tollhouse_container_waiting_bytes", "Their bytes", waiting.bytes)
    yield _gauge("tollhouse_container_oldest_age_seconds", "Age of the oldest waiting container file", age_s)


def _storage(stats: LogStats) -> Iterator[Metric]:
    """Yield the file system of the data directory as labels of a gauge with the value 1."""
    if stats.mount is not None:
        labels = ["mount", "durability"]
        family = GaugeMetricFamily("tollhouse_storage", "File system of the data directory", labels=labels)
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
    """
    Return the installation's id as a label. With it, figures that several gateways report about one storage
    can be counted once.
    """
    help = "Id that is the same for all gateways on one storage"
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


# -- a database that several gateways share --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFigure:
    """A metric of the database. `values` maps values of its single label to figures; "" means no label."""

    name: str
    help: str
    values: Sequence[tuple[str, float]]
    label: str = ""
    is_counter: bool = False


def figures(health: DatabaseHealth) -> Iterator[DatabaseFigure]:
    """
    Yield the figures of the database. Figures that the database role may not read are left out. Figures of
    standbys are left out if no standby is required.
    """
    if health.standbys is not None:
        yield from _standbys(health.standbys, needs_standby=health.needs_standby)
    yield _figure("postgres_standby_waits", "Commits that wait for a standby", health.standby_waits)
    yield _figure(
        "postgres_standby_wait_seconds",
        "Seconds that the longest of these commits has waited",
        health.standby_wait_s,
    )
    yield _figure("postgres_head_waits", "Gateways that wait for another gateway's commit", health.head_waits)
    yield _figure(
        "postgres_head_wait_seconds",
        "Seconds that the longest of these gateways has waited",
        health.head_wait_s,
    )
    oldest_s = health.oldest_transaction_s
    if oldest_s is not None:
        yield _figure(
            "postgres_oldest_transaction_seconds",
            "Age of the oldest transaction in the database, in seconds",
            oldest_s,
        )
    yield _figure("postgres_connections", "Connections to the server, by all programs", health.connections)
    yield _figure(
        "postgres_max_connections", "Maximum number of connections to the server", health.max_connections
    )
    yield DatabaseFigure(
        name="postgres_connect_failures",
        help="Failed attempts of this gateway to connect",
        values=[("", health.failed_connections)],
        is_counter=True,
    )
    yield _figure("nodes", "Gateways that share the storage", health.nodes)
    yield DatabaseFigure(
        name="leases",
        help="Routes and tasks that only one gateway runs at a time: held by one, or free",
        values=[("held", health.leases_held), ("free", health.leases_free)],
        label="state",
    )
    yield _figure(
        "postgres_reporters",
        "Senders of calls that the database remembers, so that their counters are not counted as well",
        health.reporters,
    )


def _standbys(standbys: Sequence[Standby], *, needs_standby: bool) -> Iterator[DatabaseFigure]:
    if needs_standby:
        synchronous = sum(standby.is_synchronous for standby in standbys)
        yield _figure("postgres_synchronous_standbys", "Connected standbys that confirm commits", synchronous)
    yield DatabaseFigure(
        name="postgres_standby_lag_bytes",
        help="Bytes that the standby has not flushed yet",
        values=[(standby.name, standby.lag_bytes) for standby in standbys],
        label="standby",
    )
    yield DatabaseFigure(
        name="postgres_standby_lag_seconds",
        help="Seconds that the standby is behind",
        values=[(standby.name, standby.lag_s) for standby in standbys],
        label="standby",
    )


def _figure(name: str, help: str, value: float) -> DatabaseFigure:
    return DatabaseFigure(name=name, help=help, values=[("", value)])
