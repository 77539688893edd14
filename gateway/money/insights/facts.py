"""
The facts that detectors read, as of one moment: totals, newest records, routes, keys and devices.

`gathering.py` reads them from storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from gateway.bills.reconciliation.reconciler import ReconciledMonth
from gateway.bills.statements.arrivals import Arrival
from gateway.clusters.clusters import UnappliedConfig
from spool.clusters import Cluster
from spool.deliveries.protocols import LakeState
from spool.deliveries.values import RouteState
from spool.devices.device import Device
from spool.leases import NodeSettings
from spool.log.counted_names import EventType
from spool.record import Inference
from spool.registry.insights import Finding
from spool.registry.keys import Key
from spool.registry.views import View
from spool.shares import KeyShare

if TYPE_CHECKING:
    from gateway.normalise.memory.learning import ReadOtherwise
    from gateway.service.monitoring.late_reports import LateReports

DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """Totals of one period and one set of dimensions. None means unknown or not grouped."""

    start: float
    source: str | None = None
    provider: str | None = None
    model: str | None = None
    team: str | None = None
    user: str | None = None
    api_key: str | None = None
    calls: int = 0
    errors: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)  # real cost in dollars: reported, otherwise estimated

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpend:
    """The cost of a view by start of day (epoch seconds) and by value of the view's principal dimension."""

    view: View
    days: Mapping[float, Mapping[str | None, Decimal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecognisedShape:
    """The attribute names of telemetry that looks like AI calls and that no dialect reads."""

    names: Sequence[str]
    count: int
    last_seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDeadLetters:
    """The dead letters of a route: all, those of the last day (`recent`), and the newest error (`newest_error`)."""

    route: str
    count: int
    recent: int
    newest: float | None
    newest_error: str
    cost: Decimal


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All facts as of `now`."""

    now: float
    days: Sequence[Spend] = ()  # six weeks by day and team; also by model on the days of a team's spike
    views: Sequence[ViewSpend] = ()  # six weeks of each view with anomaly detection
    # Seven days and today by day, source, provider and model. Calls without a team and a user also have their
    # key. All other calls have OTHER as their team or user.
    week: Sequence[Spend] = ()
    unpriced: Sequence[Spend] = ()  # successful calls of that week without a price
    # amounts of that week without an exchange rate, as decimal text by currency
    unconverted: Mapping[str, str] = field(default_factory=dict)
    hours: Sequence[Spend] = ()  # three days by hour, source, model and team
    failed: Sequence[Spend] = ()  # only the failed calls of these hours
    # newest records of a week in order of arrival, without duplicates kept for reference
    recent: Sequence[Inference] = ()
    routes: Sequence[RouteState] = ()
    dead: Sequence[RouteDeadLetters] = ()
    shapes: Sequence[UnrecognisedShape] = ()
    read_otherwise: Sequence[
        ReadOtherwise
    ] = ()  # spans that the compiled module read differently, since this start
    late_reports: Sequence[LateReports] = ()  # last seven days, by source
    unmapped: Sequence[EventType] = ()  # event types that no stream is set for
    series: int = 0  # number of known cumulative counters
    max_series: int = 0
    repeated_ids: int = 0  # ids that are recorded more than once, too far apart in time for a lookup
    missed_records: int = 0  # record numbers that the totals skipped
    differing_periods: int = 0  # hours and days whose totals differ from the log
    clock_step_s: float = 0.0  # seconds by which the wall clock is ahead of the time in use
    node_settings: Sequence[
        NodeSettings
    ] = ()  # gateways that share storage; empty if their settings are equal
    # Of any client of the shared database. None if unknown or if no transaction is open.
    oldest_transaction_s: float | None = None
    keys: Sequence[Key] = ()
    devices: Sequence[Device] = ()
    shares: Sequence[KeyShare] = ()  # keys that nearly use up their share of a common limit
    silent_clusters: Sequence[Cluster] = ()  # `last_seen` is when the cluster or its device last reported
    unapplied_configs: Sequence[UnappliedConfig] = ()
    reconciled: Sequence[ReconciledMonth] = ()  # this month and last month, of providers with bills
    lakes: Sequence[LakeState] = ()
    arrivals: Sequence[Arrival] = ()  # for each kind of bill, the day until which bills have arrived
    estimate: Callable[[Inference], str | None] = field(default=lambda _: None)  # estimated cost of a call


class Detector(Protocol):
    """A function that returns all findings of one kind, the most costly first. Its name is the kind."""

    __name__: str

    def __call__(self, facts: Facts, /) -> Sequence[Finding]: ...
