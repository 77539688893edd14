"""
The figures of storage and money that one request of the metrics shows, and the metric families built from
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

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
    A budget at its last evaluation, or one owner of a budget with owners (otherwise, `owner` is ""). Dollars
    are None if the budget limits tokens or calls. An amount or forecast that is unknown is also None.
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
    The part of a provider's bill that Tollhouse counted, from 0 to 1. Above 1, too much was counted.
    `measure` is tokens or money.
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
    The number of API keys by state, the expiry of keys in use, and the number of refused requests by name of
    an expired key (`tries`). The last two are limited in length.
    """

    states: Mapping[str, int]
    ends: Mapping[str, float]
    tries: Mapping[str, int]


@dataclass(frozen=True)
class Limit:
    """A limit and how much of it is used. `name` is the setting's name."""

    name: str
    allowed: float
    used: float


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """
    The figures for one request of the metrics. `installation` is an id that all gateways on one storage
    share. If `answers` is False, the storage does not respond, and its figures are from an earlier read.
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
    lost_calls: int | None = None
    lost_cost: float | None = None  # in USD
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
    unheard_budgets: int = 0  # number of budgets with alerts that no channel would send
    scheduled_reports: Mapping[str, int] = field(default_factory=dict)  # number by state
    reconciled: Sequence[ReconciledRatio] = ()
    # open insights by detector and severity
    insights: Mapping[tuple[str, str], int] = field(default_factory=dict)
    spend: SpendCounts | None = None
    senders: SenderGauges | None = None
    keys: KeyGauges | None = None
    # time at which the certificate of a setting expires, 0 if it cannot be read
    certificates: Mapping[str, float] = field(default_factory=dict)
    lakes: Sequence[LakeState] = ()


# label values of a metric, with the value that they have
MetricSamples: TypeAlias = Iterable[tuple[Sequence[str], float]]


@dataclass(frozen=True, slots=True)
class SnapshotFamily:
    """
    A metric family, with the function that reads its samples from a snapshot. If it returns None, the family
    is omitted.
    """

    name: str  # name of a metric without the prefix tollhouse_
    help: str
    labels: Sequence[str]
    samples: Callable[[Snapshot], MetricSamples | None]
    is_counter: bool = False

    def metric_family(self, samples: MetricSamples) -> Metric:
        kind = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        family = kind(f"tollhouse_{self.name}", self.help, labels=self.labels)
        for labels, value in samples:
            family.add_metric(labels, value)
        return family


class SnapshotCollector:
    snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Metric]:
        if self.snapshot is None:
            return
        for figure in FIGURES:
            samples = figure.samples(self.snapshot)
            if samples is not None:
                yield figure.metric_family(samples)
        if self.snapshot.spend is not None:
            yield from self.snapshot.spend.metric_families()


def _plain_figure(
    name: str, help: str, value: Callable[[Snapshot], float | None], *, is_counter: bool = False
) -> SnapshotFamily:
    return SnapshotFamily(name, help, (), lambda snapshot: _single_sample(value(snapshot)), is_counter)


def _database_figure(
    name: str, help: str, value: Callable[[DatabaseHealth], float | None], *, is_counter: bool = False
) -> SnapshotFamily:
    return _plain_figure(
        name, help, lambda shown: value(shown.database) if shown.database else None, is_counter=is_counter
    )


def _standby_figure(name: str, help: str, value: Callable[[Standby], float]) -> SnapshotFamily:
    def standby_samples(snapshot: Snapshot) -> MetricSamples | None:
        if snapshot.database is None or snapshot.database.standbys is None:
            return None
        return [((standby.name,), value(standby)) for standby in snapshot.database.standbys]

    return SnapshotFamily(name, help, ("standby",), standby_samples)


def _route_figure(
    name: str, help: str, value: Callable[[RouteState], float], *, is_counter: bool = False
) -> SnapshotFamily:
    def route_samples(snapshot: Snapshot) -> MetricSamples:
        return [((route.name,), value(route)) for route in snapshot.routes]

    return SnapshotFamily(f"route_{name}", help, ("route",), route_samples, is_counter)


def _channel_figure(name: str, help: str, value: Callable[[ChannelState, float], float]) -> SnapshotFamily:
    def channel_samples(snapshot: Snapshot) -> MetricSamples:
        return [((channel.name,), value(channel, snapshot.now)) for channel in snapshot.channels]

    return SnapshotFamily(name, help, ("channel",), channel_samples)


def _budget_figure(name: str, help: str, value: Callable[[BudgetGauge], float | None]) -> SnapshotFamily:
    def budget_samples(snapshot: Snapshot) -> MetricSamples:
        pairs = [(gauge, value(gauge)) for gauge in snapshot.budgets]
        return [((gauge.budget, gauge.view, gauge.owner), n) for gauge, n in pairs if n is not None]

    return SnapshotFamily(f"budget_{name}", help, ("budget", "view", "owner"), budget_samples)


def _lake_figure(name: str, help: str, value: Callable[[LakeState], float | None]) -> SnapshotFamily:
    def lake_samples(snapshot: Snapshot) -> MetricSamples:
        pairs = [(lake.route, value(lake)) for lake in snapshot.lakes]
        return [((route,), n) for route, n in pairs if n is not None]

    return SnapshotFamily(f"lake_{name}", help, ("route",), lake_samples)


def _single_sample(value: float | None) -> MetricSamples | None:
    return None if value is None else [((), value)]


def _samples_by_label(values: Mapping[str, float]) -> MetricSamples:
    return [((label,), value) for label, value in values.items()]


def _age_samples(times: Mapping[str, float], now: float) -> MetricSamples:
    return [((name,), _seconds_since(at, now)) for name, at in times.items()]


def _seconds_since(moment: float | None, now: float) -> float:
    return 0.0 if moment is None else max(0.0, now - moment)


def _data_filesystem_samples(snapshot: Snapshot) -> MetricSamples | None:
    mount = snapshot.stats.mount
    return None if mount is None else [((mount.kind, mount.flush_durability), 1.0)]


def _count_synchronous_standbys(health: DatabaseHealth) -> int | None:
    if health.standbys is None or not health.needs_standby:
        return None
    return sum(standby.is_synchronous for standby in health.standbys)


def _lease_samples(snapshot: Snapshot) -> MetricSamples | None:
    health = snapshot.database
    return (
        None
        if health is None
        else _samples_by_label({"held": health.leases_held, "free": health.leases_free})
    )


def _state_samples(rows: Iterable[RouteState | ChannelState], states: Sequence[str]) -> MetricSamples:
    return [((row.name, state), float(state == row.state)) for row in rows for state in states]


def _notification_samples(snapshot: Snapshot) -> MetricSamples:
    for channel in snapshot.channels:
        yield (channel.name, SENT), channel.counts.sent
        yield (channel.name, FAILED), channel.counts.failed


def _assistant_samples(snapshot: Snapshot) -> MetricSamples:
    for assistant, states in snapshot.assistants.items():
        for state, count in states.items():
            yield (assistant, state), count


FIGURES: Sequence[SnapshotFamily] = (
    # With this id, figures that several gateways report about one storage can be counted once.
    SnapshotFamily(
        "installation",
        "Id that is the same for all gateways on one storage",
        ("installation",),
        lambda shown: _samples_by_label({shown.installation: 1.0}),
    ),
    _plain_figure(
        "storage_answers",
        "1 if the storage responds; 0 if it does not, and its figures are old",
        lambda shown: float(shown.answers),
    ),
    # -- a database that several gateways share --
    _database_figure(
        "postgres_synchronous_standbys",
        "Connected standbys that confirm commits",
        _count_synchronous_standbys,
    ),
    _standby_figure(
        "postgres_standby_lag_bytes",
        "Bytes that the standby has not flushed yet",
        lambda standby: standby.lag_bytes,
    ),
    _standby_figure(
        "postgres_standby_lag_seconds", "Seconds that the standby is behind", lambda standby: standby.lag_s
    ),
    _database_figure(
        "postgres_standby_waits", "Commits that wait for a standby", lambda health: health.standby_waits
    ),
    _database_figure(
        "postgres_standby_wait_seconds",
        "Seconds that the longest of these commits has waited",
        lambda health: health.standby_wait_s,
    ),
    _database_figure(
        "postgres_head_waits",
        "Gateways that wait for another gateway's commit",
        lambda health: health.head_waits,
    ),
    _database_figure(
        "postgres_head_wait_seconds",
        "Seconds that the longest of these gateways has waited",
        lambda health: health.head_wait_s,
    ),
    _database_figure(
        "postgres_oldest_transaction_seconds",
        "Age of the oldest transaction in the database, in seconds",
        lambda health: health.oldest_transaction_s,
    ),
    _database_figure(
        "postgres_connections",
        "Connections to the server, by all programs",
        lambda health: health.connections,
    ),
    _database_figure(
        "postgres_max_connections",
        "Maximum number of connections to the server",
        lambda health: health.max_connections,
    ),
    _database_figure(
        "postgres_connect_failures",
        "Failed attempts of this gateway to connect",
        lambda health: health.failed_connections,
        is_counter=True,
    ),
    _database_figure("nodes", "Gateways that share the storage", lambda health: health.nodes),
    SnapshotFamily(
        "leases",
        "Routes and tasks that only one gateway runs at a time: held by one, or free",
        ("state",),
        _lease_samples,
    ),
    _database_figure(
        "postgres_reporters",
        "Senders of calls that the database remembers, so that their counters are not counted as well",
        lambda health: health.reporters,
    ),
    # -- the log and the totals --
    _plain_figure("spool_entries", "Entries in the log", lambda shown: shown.stats.entries),
    _plain_figure("spool_bytes", "Size of the spool on disk in bytes", lambda shown: shown.stats.bytes),
    _plain_figure(
        "spool_free_bytes", "Bytes that the spool may still use", lambda shown: shown.stats.free_bytes
    ),
    _plain_figure(
        "spool_wal_bytes", "Size of the write-ahead log in bytes", lambda shown: shown.stats.wal_bytes
    ),
    _plain_figure(
        "spool_cache_bytes",
        "Memory used by the cache of recently read entries, in bytes",
        lambda shown: shown.stats.cache_bytes,
    ),
    _plain_figure(
        "spool_checkpoint_failed",
        "1 while the write-ahead log cannot be moved into the spool file",
        lambda shown: float(bool(shown.stats.wal_problem)),
    ),
    _plain_figure(
        "clock_step_seconds",
        "Seconds by which the wall clock is ahead of the time that Tollhouse uses",
        lambda shown: shown.clock_step_s,
    ),
    _plain_figure(
        "clock_held_seconds",
        "Seconds for which nothing has been deleted for its age, because the clock is not trusted",
        lambda shown: shown.clock_held_s,
    ),
    _plain_figure(
        "ledger_missed_records",
        "Records missing in totals, because they were deleted before they were counted",
        lambda shown: shown.missed,
    ),
    _plain_figure(
        "ledger_differing_periods",
        "Hours and days whose totals differ from the stored records",
        lambda shown: shown.differing,
    ),
    SnapshotFamily(
        "storage", "File system of the data directory", ("mount", "durability"), _data_filesystem_samples
    ),
    _plain_figure(
        "commit_in_hand_seconds",
        "Seconds that the running commit has taken so far",
        lambda shown: shown.stats.commit_s,
    ),
    _plain_figure(
        "submissions_waiting", "Submissions that wait for the next commit", lambda shown: shown.stats.waiting
    ),
    _plain_figure(
        "duplicate_window_seconds",
        "How far back repeated reports are recognized, in seconds",
        lambda shown: shown.stats.duplicate_window_s,
    ),
    _plain_figure(
        "failed_attempts",
        "Requests without a valid key",
        lambda shown: shown.failed_attempts,
        is_counter=True,
    ),
    _plain_figure(
        "senders_pushed_out",
        "Senders forgotten early for lack of space: their counters are then counted in addition to their calls",
        lambda shown: shown.senders_pushed_out,
        is_counter=True,
    ),
    _plain_figure(
        "series_pushed_out",
        "Cumulative counters forgotten for lack of space: if one returns, its first value is not counted",
        lambda shown: shown.stats.series_pushed_out,
        is_counter=True,
    ),
    # -- deliveries --
    _plain_figure(
        "deliveries_fenced",
        "Results of deliveries that arrived after another gateway had taken over the route",
        lambda shown: shown.fenced,
        is_counter=True,
    ),
    _route_figure("delivered", "Delivered records", lambda route: route.delivered, is_counter=True),
    _route_figure(
        "dead", "Records that the destination rejected for good", lambda route: route.dead, is_counter=True
    ),
    _route_figure(
        "refused",
        "Records rejected in a partly successful response",
        lambda route: route.refused,
        is_counter=True,
    ),
    _route_figure(
        "ambiguous",
        "Records sent without a clear answer and sent again under the same idempotency key",
        lambda route: route.ambiguous,
        is_counter=True,
    ),
    _route_figure("queued_records", "Records waiting for delivery", lambda route: route.queued),
    _route_figure(
        "oldest_age_seconds", "Age of the oldest waiting record", lambda route: route.oldest_age_s or 0.0
    ),
    _route_figure(
        "unknown",
        "Records sent without an answer: report by hand whether they arrived",
        lambda route: route.unknown,
    ),
    SnapshotFamily(
        "route_state",
        "1 for the current state of the route, 0 for all others",
        ("route", "state"),
        lambda shown: _state_samples(shown.routes, ROUTE_STATES),
    ),
    _lake_figure(
        "landed_timestamp_seconds", "Time of the last delivery to the data lake", lambda lake: lake.landed_at
    ),
    _lake_figure(
        "verified_timestamp_seconds",
        "Time of the last verification of the data lake",
        lambda lake: lake.verdict.at if lake.verdict else None,
    ),
    _lake_figure(
        "differs",
        "Differences found by the last verification of the data lake",
        lambda lake: sum(lake.verdict.differences.values()) if lake.verdict else None,
    ),
    # -- devices and clusters --
    SnapshotFamily("devices", "Devices by state", ("state",), lambda shown: _samples_by_label(shown.devices)),
    SnapshotFamily(
        "fleet_devices",
        "Machines of the inventory by state, or all devices if there is no inventory",
        ("state",),
        lambda shown: _samples_by_label(shown.fleet_states),
    ),
    SnapshotFamily(
        "fleet_assistants",
        "Devices by coding assistant and its state",
        ("assistant", "state"),
        _assistant_samples,
    ),
    _plain_figure(
        "fleet_lost_calls",
        "Least number of calls that machines lost in the last 7 days",
        lambda shown: shown.lost_calls,
    ),
    _plain_figure(
        "fleet_lost_cost_usd",
        "Estimated cost of the calls that machines lost in the last 7 days",
        lambda shown: shown.lost_cost,
    ),
    SnapshotFamily(
        "clusters", "Clusters by state", ("state",), lambda shown: _samples_by_label(shown.clusters)
    ),
    _plain_figure(
        "container_waiting_files",
        "Container files that wait to be sent to your cost service",
        lambda shown: shown.waiting_files.files if shown.waiting_files else None,
    ),
    _plain_figure(
        "container_waiting_bytes",
        "Their bytes",
        lambda shown: shown.waiting_files.bytes if shown.waiting_files else None,
    ),
    _plain_figure(
        "container_oldest_age_seconds",
        "Age of the oldest waiting container file",
        lambda shown: _seconds_since(shown.waiting_files.oldest, shown.now) if shown.waiting_files else None,
    ),
    # -- limits --
    SnapshotFamily(
        "limit",
        "Value of a limit in the configuration",
        ("name",),
        lambda shown: [((limit.name,), limit.allowed) for limit in shown.limits],
    ),
    SnapshotFamily(
        "limit_used",
        "Current use of a limit",
        ("name",),
        lambda shown: [((limit.name,), limit.used) for limit in shown.limits],
    ),
    SnapshotFamily(
        "limit_held_by_key",
        "Use of a limit by one key, if it is 80 % or more of the key's share",
        ("name", "key"),
        lambda shown: [((share.limit, share.key), share.held) for share in shown.shares],
    ),
    # -- notifications, budgets and insights --
    SnapshotFamily(
        "notifications",
        "Notifications that were sent, failed or discarded",
        ("channel", "state"),
        _notification_samples,
        is_counter=True,
    ),
    _channel_figure(
        "notifications_waiting", "Notifications waiting to be sent", lambda channel, _: channel.counts.waiting
    ),
    _channel_figure(
        "notification_oldest_age_seconds",
        "Age of the oldest waiting notification",
        lambda channel, now: _seconds_since(channel.oldest, now),
    ),
    SnapshotFamily(
        "notification_channel_state",
        "1 for the current state of the channel, 0 for all others",
        ("channel", "state"),
        lambda shown: _state_samples(shown.channels, CHANNEL_STATES),
    ),
    _channel_figure(
        "notification_channel_down",
        "1 if the channel is parked, has failed for 15 minutes or holds a critical notice back, else 0",
        lambda channel, now: float(channel.needs_operator(now)),
    ),
    _budget_figure("spent_dollars", "Dollars spent in the running period", lambda gauge: gauge.spent),
    _budget_figure("limit_dollars", "Dollars planned for the running period", lambda gauge: gauge.limit),
    _budget_figure(
        "forecast_dollars", "Forecast for the whole period in dollars", lambda gauge: gauge.forecast
    ),
    _budget_figure("ratio", "Amount spent divided by the planned amount", lambda gauge: gauge.ratio),
    _plain_figure(
        "budgets_without_channel",
        "Budgets with alerts that reach nobody, because there is no channel or all of theirs are parked",
        lambda shown: shown.unheard_budgets,
    ),
    SnapshotFamily(
        "scheduled_reports",
        "Scheduled reports by state",
        ("state",),
        lambda shown: _samples_by_label(shown.scheduled_reports),
    ),
    SnapshotFamily(
        "reconciled_ratio",
        "Counted divided by billed, in closed days of the newest month that has such days",
        ("provider", "measure"),
        lambda shown: [((row.provider, row.measure), row.ratio) for row in shown.reconciled],
    ),
    SnapshotFamily(
        "insights",
        "Open insights by detector and severity",
        ("detector", "severity"),
        lambda shown: shown.insights.items(),
    ),
    # -- senders, keys and certificates --
    SnapshotFamily(
        "last_record_seconds",
        "Seconds since the newest record of the source arrived",
        ("source",),
        lambda shown: _age_samples(shown.senders.sources, shown.now) if shown.senders else None,
    ),
    SnapshotFamily(
        "key_last_record_seconds",
        "Seconds since the newest record of the key arrived",
        ("key",),
        lambda shown: _age_samples(shown.senders.keys, shown.now) if shown.senders else None,
    ),
    SnapshotFamily(
        "sender_stopped",
        "1 for each source or key that is silent for much longer than usual",
        ("kind", "sender"),
        lambda shown: [(sender, 1.0) for sender in shown.senders.stopped] if shown.senders else None,
    ),
    SnapshotFamily(
        "keys",
        "API keys by state",
        ("state",),
        lambda shown: _samples_by_label(shown.keys.states) if shown.keys else None,
    ),
    SnapshotFamily(
        "key_end_timestamp_seconds",
        "Time at which an API key in use expires",
        ("key",),
        lambda shown: _samples_by_label(shown.keys.ends) if shown.keys else None,
    ),
    SnapshotFamily(
        "expired_key_requests",
        "Refused requests since the API key expired",
        ("key",),
        lambda shown: _samples_by_label(shown.keys.tries) if shown.keys else None,
    ),
    SnapshotFamily(
        "certificate_end_timestamp_seconds",
        "Time at which the certificate of a setting expires; 0 if it cannot be read",
        ("setting",),
        lambda shown: _samples_by_label(shown.certificates),
    ),
)
