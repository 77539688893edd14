"""
The facts that detectors read, as of one moment: totals, newest records, routes, keys and devices.

`gathering.py` reads the facts from storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    # loaded only for types, because the first answer of `/metrics` imports this module on the event loop
    from gateway.bills.contracts.declared import Contract
    from gateway.bills.enforcers.faults import EnforcerFault
    from gateway.bills.plans.declared import AssistantPlan
    from gateway.bills.reconciliation.reconciler import ReconciledMonth
    from gateway.bills.statements.arrivals import ReportArrival
    from gateway.clusters.clusters import UnappliedConfig
    from gateway.configuration.certificates import CertificateExpiry
    from gateway.devices.fleet.coverage import FleetRow
    from gateway.money.lost_calls import FleetLosses
    from gateway.monitoring.late_reports import LateReports
    from spool.clusters import Cluster
    from spool.deliveries.protocols import LakeState
    from spool.deliveries.values import RouteState
    from spool.devices.device import Device
    from spool.leases import NodeSettings
    from spool.log.counted_names import EventType
    from spool.record import Inference
    from spool.registry.enrolment_tokens import EnrolmentToken
    from spool.registry.insights import Finding
    from spool.registry.keys import ApiKey
    from spool.registry.notices import ChannelState
    from spool.registry.tables.expired_tries import ExpiredKeyUses
    from spool.registry.tables.sender_hours import SenderHours
    from spool.registry.views import SavedView
    from spool.sender_fields import SenderDay
    from spool.shares import KeyShare

DAY_S = 86400.0
_NO_PLANT = "no_plant"
_OF_STATES = "of_states"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodSpend:
    """
    Totals of one period and one set of dimensions. A dimension is None if its value is unknown, or if the
    totals are not grouped by it.
    """

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
    without_usage: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    # real cost in dollars: the reported cost, or the estimated cost if none was reported
    cost: Decimal = Decimal(0)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpend:
    """The cost of a view by start of day (epoch seconds), and by value of the view's main dimension."""

    view: SavedView
    days: Mapping[float, Mapping[str | None, Decimal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecognisedShape:
    """Telemetry that looks like AI calls but that no dialect reads, grouped by its attributes' names."""

    names: Sequence[str]
    count: int
    last_seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDeadLetters:
    """
    The dead letters of a route: the number of all, the number of the last day (`recent`), and the
    newest error (`newest_error`).
    """

    route: str
    count: int
    recent: int
    newest: float | None
    newest_error: str
    cost: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class UnappliedChange:
    """
    A changed contract or own price whose terms earlier calls do not have. `since`: the first day with such calls, and
    `changed_at`: the newest change that was not applied.
    """

    kind: str
    name: str
    since: float
    calls: int
    changed_at: float


@dataclass(frozen=True, kw_only=True)
class InsightFacts:
    """All facts as of `now`."""

    now: float
    # spend of six weeks by day and team; on days on which a team has a spike, also by model
    days: Sequence[PeriodSpend] = ()
    views: Sequence[ViewSpend] = ()  # by view with anomaly detection: the spend of six weeks
    # Spend of seven days and today by day, source, provider and model. Calls without a team and a user are
    # also split by key. All other calls have OTHER as their team or user.
    week: Sequence[PeriodSpend] = ()
    unpriced: Sequence[PeriodSpend] = ()  # calls of seven days and today without a price or without usage
    # By currency: the amount of seven days and today that has no exchange rate, as decimal text.
    unconverted: Mapping[str, str] = field(default_factory=dict)
    hours: Sequence[PeriodSpend] = ()  # spend of three days by hour, source, model and team
    failed: Sequence[PeriodSpend] = ()  # failed calls of three days by hour, source, model and team
    # Newest records of a week in order of their arrival, without the duplicates kept for reference.
    recent: Sequence[Inference] = ()
    routes: Sequence[RouteState] = ()
    dead: Sequence[RouteDeadLetters] = ()
    destination_types: Mapping[str, str] = field(default_factory=dict)
    channels: Sequence[ChannelState] = ()
    shapes: Sequence[UnrecognisedShape] = ()
    late_reports: Sequence[LateReports] = ()  # late reports of the last seven days, by source
    # by day of arrival: the fields that the calls of each source and sender version had
    sender_fields: Mapping[int, SenderDay] = field(default_factory=dict)
    enforcer_faults: Sequence[EnforcerFault] = ()
    unmapped: Sequence[EventType] = ()  # event types that no stream maps
    series: int = 0  # number of known series of cumulative counters
    max_series: int = 0
    # Number of ids recorded more than once. The reports came so far apart that duplicate
    # detection missed them.
    repeated_ids: int = 0
    missed_records: int = 0  # number of record numbers that are missing in the totals
    differing_periods: int = 0  # number of hours and days whose totals differ from the log
    clock_step_s: float = 0.0  # seconds by which the wall clock is ahead of the time that Tollhouse uses
    # gateways that share storage but have different settings; empty if the settings are equal
    node_settings: Sequence[NodeSettings] = ()
    # Age in seconds of the oldest open transaction of any client of the shared database. None if it is
    # unknown or no transaction is open.
    oldest_transaction_s: float | None = None
    certificates: Sequence[CertificateExpiry] = ()
    keys: Sequence[ApiKey] = ()
    expired_tries: Mapping[int, ExpiredKeyUses] = field(default_factory=dict)  # by key id
    sender_hours: Sequence[SenderHours] = ()  # hours in which records arrived, by source and key
    devices: Sequence[Device] = ()
    tokens: Sequence[EnrolmentToken] = ()
    fleet: Sequence[FleetRow] = ()  # machines that recently reported something
    losses: FleetLosses | None = None  # lost calls of the last days
    shares: Sequence[KeyShare] = ()  # keys that use nearly all of their share of a common limit
    # Clusters that stopped reporting. Their `last_seen` is the last report of the cluster or of its device.
    silent_clusters: Sequence[Cluster] = ()
    unapplied_configs: Sequence[UnappliedConfig] = ()
    reconciled: Sequence[ReconciledMonth] = ()  # for each provider with bills: this month and the last month
    contracts: Sequence[Contract] = ()
    plans: Sequence[AssistantPlan] = ()
    unapplied_changes: Sequence[UnappliedChange] = ()
    lakes: Sequence[LakeState] = ()
    arrivals: Sequence[ReportArrival] = ()  # for each kind of bill, the day until which bills have arrived
    prices: str = ""  # name of the price list that is used
    prices_day: str = ""  # day of the price list, or "" if it states none
    # a function that returns the estimated cost of a call
    estimate: Callable[[Inference], str | None] = field(default=lambda _: None)


class Detector(Protocol):
    """
    A function that returns all findings of one kind. The most costly finding is first. The name of the
    function is the kind.
    """

    __name__: str

    def __call__(self, facts: InsightFacts, /) -> Sequence[Finding]: ...


_Detector = TypeVar("_Detector", bound=Detector)


def mark_impossible_in_demo(reason: str) -> Callable[[_Detector], _Detector]:
    """Mark a detector whose problem the generated demo data cannot contain, with the reason."""

    def store_reason(detector: _Detector) -> _Detector:
        vars(detector)[_NO_PLANT] = reason
        return detector

    return store_reason


def mark_as_needing_only_states(detector: _Detector) -> _Detector:
    """Mark a detector that needs only the facts of `gather_states`, so that it can run each minute."""
    vars(detector)[_OF_STATES] = True
    return detector


def needs_only_states(detector: Detector) -> bool:
    return _OF_STATES in vars(detector)


def reason_impossible_in_demo(detector: Detector) -> str:
    """Return why the demo data cannot contain the detector's problem, or "" if it can."""
    return str(vars(detector).get(_NO_PLANT, ""))
