"""
What detectors read: the ledger's sums, the newest records, routes, keys and devices, as values of one moment.

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
    """One period and one set of dimensions of the ledger; None is unknown, or was not asked for."""

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
    cost: Decimal = Decimal(0)  # what counts: reported, else estimated

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpend:
    """What a view cost on each day (its start, epoch seconds), by the value of the view's principal dimension."""

    view: View
    days: Mapping[float, Mapping[str | None, Decimal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecognisedShape:
    """Attribute names of items that look like AI and that no dialect took."""

    names: Sequence[str]
    count: int
    last_seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDeadLetters:
    """The dead letters of a route. `recent`: those of the last day; `words`: the newest error."""

    route: str
    count: int
    recent: int
    newest: float | None
    words: str
    cost: Decimal


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything, at one moment. A detector takes what it needs."""

    now: float
    days: Sequence[Spend] = ()  # six weeks by day and team, by model where a team's day is one of a spike
    views: Sequence[ViewSpend] = ()  # six weeks of each view whose anomalies are looked for
    # Seven days and today by day, source, provider and model. Of calls without team and user by key, too; all others
    # bear a team or a user that stands for many.
    week: Sequence[Spend] = ()
    unpriced: Sequence[Spend] = ()  # of that week: calls that went well and have no price
    # Of that week: what has no rate, decimal text by currency.
    unconverted: Mapping[str, str] = field(default_factory=dict)
    hours: Sequence[Spend] = ()  # three days by hour, source, model and team
    failed: Sequence[Spend] = ()  # of these hours: failed calls alone
    recent: Sequence[Inference] = ()  # the newest records of a week, no shadows, in order of arrival
    routes: Sequence[RouteState] = ()
    dead: Sequence[RouteDeadLetters] = ()
    shapes: Sequence[UnrecognisedShape] = ()
    read_otherwise: Sequence[ReadOtherwise] = ()  # with the compiled module than without it, since this start
    late_reports: Sequence[LateReports] = ()  # of a week, by source
    unmapped: Sequence[EventType] = ()  # usage events that stay here for want of a mapping
    series: int = 0  # cumulative counters that are known
    max_series: int = 0
    repeated_ids: int = 0  # in the duplicate window more than once
    missed_records: int = 0  # numbers that the ledger has passed over
    differing_periods: int = 0  # hours and days of the ledger that are not what the log keeps of them
    clock_step_s: float = 0.0  # by how much the wall clock is ahead of the time that is used
    node_settings: Sequence[NodeSettings] = ()  # of the gateways on one storage, if they differ
    # of anybody in the database that they share; None: not known, or none
    oldest_transaction_s: float | None = None
    keys: Sequence[Key] = ()
    devices: Sequence[Device] = ()
    shares: Sequence[KeyShare] = ()  # of keys that hold nearly what they may of what is one for all
    silent_clusters: Sequence[Cluster] = ()  # `last_seen`: when the cluster or its device was last heard
    unapplied_configs: Sequence[UnappliedConfig] = ()
    reconciled: Sequence[ReconciledMonth] = ()  # this month and the last, of providers with statements
    lakes: Sequence[LakeState] = ()
    arrivals: Sequence[Arrival] = ()  # until when statements have come, of each kind
    estimate: Callable[[Inference], str | None] = field(default=lambda _: None)  # what a call should cost


class Detector(Protocol):
    """A function that finds everything of one kind, the most costly first. Its name is that of the kind."""

    __name__: str

    def __call__(self, facts: Facts, /) -> Sequence[Finding]: ...
