"""Everything that is assembled when Tollhouse starts, as values: handlers only read them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from gateway.allocation.language import Limits
from gateway.allocation.published import Published
from gateway.allocation.publishing import Publishing
from gateway.attempts import Buckets
from gateway.authentication.tool_calls import ToolCalls
from gateway.configuration.sections import (
    AllocationSettings,
    AnswerSettings,
    Config,
    McpSettings,
    ReconciliationSettings,
    ServerSettings,
)
from gateway.errors import Refusal
from gateway.first_use import Once
from gateway.http.budget import Budget
from gateway.http.cors import Cors
from gateway.http.event_streams import EventStreams
from gateway.http.in_hand import RequestsInHand
from gateway.http.listening.connections import Connections, operator_connections
from gateway.http.listening.forwarded import TrustedProxies
from gateway.http.questions import Questions
from gateway.http.receiving import ReceivingSlots
from gateway.intake.prices import PriceBook
from gateway.normalise.options import Options
from spool.installation import derived
from spool.leases import Leases, SoleNode
from spool.ledger.own_records import OwnRecords
from spool.registry.roles import RoleLimits
from spool.storage import DatabaseHealth, Storage, no_database
from spool.turns.fair_turns import FairTurns

if TYPE_CHECKING:
    from gateway.authentication.access import Access
    from gateway.authentication.oidc.sign_ins import ProviderSignIns
    from gateway.budgets.evaluator import BudgetEvaluator
    from gateway.configuration.in_effect import SettingInEffect
    from gateway.configuration.secret_file import SecretFile
    from gateway.devices.clusters import Clusters
    from gateway.devices.lifecycle import DeviceLifecycle
    from gateway.final_costs.puller import FinalCostPuller
    from gateway.http.listening.tls import Certificate
    from gateway.intake.billing_connections import BillingConnections
    from gateway.intake.deposits import Deposits
    from gateway.intake.merge_window import MergeWindow
    from gateway.intake.shared_merge_window import SharedMergeWindow
    from gateway.intake.stream_admission import StreamAdmission
    from gateway.monitoring.health import Health
    from gateway.monitoring.metrics import Exposition, Metrics
    from gateway.monitoring.traces import Traces
    from gateway.recommendations.adviser import Adviser
    from gateway.reconciliation.reconciler import Reconciler
    from gateway.statements.puller import StatementPuller
    from gateway.workers.pool import WorkerPool
    from spool.billing.hours import BillingPlan
    from spool.clock import Clock
    from spool.container_files.files import ContainerFiles
    from spool.deliveries.protocols import Deliveries
    from spool.deliveries.values import RouteState
    from spool.ledger.ledger import Ledger
    from spool.log.event_types import AmountOf
    from spool.log.partial_reports import PartialReports
    from spool.log.protocols import Log
    from spool.registry.notices import ChannelState
    from spool.registry.operators import Actor
    from spool.registry.registry import Registry
    from spool.shares import KeyShare
    from spool.streams import StreamReader

SIGN_IN_BURST = 10  # wrong passwords at once from one address, then one every 30 seconds
SIGN_IN_PER_S = 1 / 30
# From an address that many people may share: more than an account has, so that one of them does not stop the others.
SHARED_BURST, SHARED_PER_S = 300, 1.0
# For one account, from everywhere: wide enough that a few addresses cannot lock its owner out.
ACCOUNT_BURST, ACCOUNT_PER_S = 100, 1 / 3


# By name, what runs as long as the server does.
Background = dict[str, Callable[[], Coroutine[Any, Any, None]]]


@dataclass(kw_only=True)
class ReceiverServices:
    """
    What every address for key holders needs, over HTTP and gRPC: admission, body limits and the intake.

    A reload exchanges `min_upload_rate`, `options` and `signing_secret`.
    """

    access: Access
    intake: MergeWindow | SharedMergeWindow
    metrics: Metrics
    clock: Clock
    traces: Traces
    budget: Budget
    max_body_bytes: int
    connections: Connections  # of the listener for senders
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    min_upload_rate: int = 0  # bytes a second of a large body, 0 for any
    options: Options = field(default_factory=Options)
    cors: Cors = field(default_factory=Cors)
    receiving: ReceivingSlots = field(default_factory=ReceivingSlots)
    in_hand: RequestsInHand = field(default_factory=RequestsInHand)
    signing_secret: SecretFile | None = None  # of Helicone's webhooks
    workers: WorkerPool | None = None  # None: this process decodes
    turns: FairTurns = field(default_factory=FairTurns)


_EVERY_ADDRESS = (None, "0.0.0.0", "::")  # of a server that listens everywhere


@dataclass(frozen=True, kw_only=True)
class Urls:
    """
    Where the console is, and where telemetry goes; None: to the address at which the console was reached.

    `public` is where people elsewhere find the console, empty if the configuration does not say.
    """

    console: str
    telemetry: str | None = None
    public: str = ""

    @property
    def shared(self) -> str:
        """The console's address in what is read elsewhere; empty if no name of it is known."""
        if self.public:
            return self.public
        host = urlsplit(self.console).hostname
        return "" if host in _EVERY_ADDRESS else self.console


def _default_urls() -> Urls:
    return Urls(console="http://127.0.0.1:4318/console/")


def _wake_nothing(route: str) -> None:
    """Do nothing: without a server no route runs, and it finds its work at the next start."""


@dataclass(frozen=True, kw_only=True)
class Reloaded:
    """What a reload took over, and the settings that were changed and need a restart, by name."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


async def _reload_nothing(actor: Actor) -> Reloaded:
    raise Refusal(503, "not_running", "no server runs here: it reads its configuration when it starts")


async def _no_shares() -> Sequence[KeyShare]:
    return ()


async def _no_channels() -> Sequence[ChannelState]:
    return ()


class Billing(Protocol):
    """AI cost as billing drops: what a span comes to, and sending it."""

    async def preview(self, since: datetime, until: datetime) -> BillingPlan: ...

    async def push(self, since: datetime, until: datetime) -> BillingPlan: ...


@dataclass(kw_only=True)
class OperatorServices:
    """
    One object for every application of one process: the HTTP side and the socket share the counted attempts.

    `secret` is the installation's. `registry` is None when its file is damaged, and `registry_problem` says so: the
    spool can still be looked at. `hosts` are the names (without port) under which the console may be reached beside
    loopback and bare addresses. `urls` is asked when they are shown, because port 0 is known only then.
    `wake` is called with a route's name when its work was changed by hand. `prices` is the book to price sums again.
    `events_sent_as` says how a type of usage events leaves for the upstream, None if it does not; `is_unmapped` whether
    that is for want of a line in [upstream.events], and `event_amount` what an event amounts to by its type's line.
    `budget` are the bytes in hand, which a large answer counts in, too.
    `syncs` are the tables brought upstream, shown as routes are; without a server none runs. `leases` knows the
    gateways that share the storage, and `database` has the figures of what they share.
    `copy` is the storage's: it fills a directory with copies for a backup.
    `reload` takes over the configuration in the name of somebody; ConfigError when it is refused. `settings` are those
    in effect, and `most` has the value of one that bounds something, by its name. `channels` are those of
    [[notify]]. `oidc` is None if no OpenID provider is configured. `is_behind_tls`: the configuration says that
    browsers speak https to what is in front of the operator side.
    """

    log: Log
    deliveries: Deliveries
    streams: StreamReader
    billing: Billing
    billing_connections: BillingConnections
    registry: Registry | None
    access: Access
    ledger: Ledger
    clock: Clock
    secret: bytes
    version: str
    registry_problem: str = ""
    hosts: frozenset[str] = frozenset()
    urls: Callable[[], Urls] = _default_urls
    wake: Callable[[str], None] = _wake_nothing
    prices: Callable[[], PriceBook] = PriceBook.load
    devices: DeviceLifecycle | None = None
    clusters: Clusters | None = None
    container_files: ContainerFiles | None = None
    syncs: Callable[[], Sequence[RouteState]] = tuple
    leases: Leases = field(default_factory=SoleNode)
    database: Callable[[], Awaitable[DatabaseHealth | None]] = no_database
    events_sent_as: Callable[[str], str | None] = lambda _: None
    is_unmapped: Callable[[str], bool] = lambda _: False
    budget: Budget = field(default_factory=lambda: Budget(sys.maxsize))
    event_amount: AmountOf = lambda _: None
    oidc: ProviderSignIns | None = None
    is_behind_tls: bool = False
    partial_reports: PartialReports | None = None
    adviser: Once[Adviser] | None = None
    reconciler: Once[Reconciler] | None = None
    statement_puller: Once[StatementPuller] | None = None
    final_costs: Once[FinalCostPuller] | None = None
    reconciliation: Callable[[], ReconciliationSettings] = ReconciliationSettings
    copy: Callable[[Path], Awaitable[None]] | None = None
    connections: Connections = field(default_factory=lambda: operator_connections(ServerSettings()))
    event_streams: EventStreams = field(default_factory=lambda: EventStreams(ServerSettings().max_event_streams))
    reload: Callable[[Actor], Awaitable[Reloaded]] = _reload_nothing
    settings: Callable[[], Sequence[SettingInEffect]] = tuple
    answers: Callable[[], AnswerSettings] = AnswerSettings
    most: Callable[[str], int] = Config().most
    role_limits: Callable[[], RoleLimits] = RoleLimits
    channels: Callable[[], Awaitable[Sequence[ChannelState]]] = _no_channels
    budgets: BudgetEvaluator | None = None
    max_listed_records: Callable[[], int] = lambda: ServerSettings().max_listed_records
    hold_s: Callable[[], float] = lambda: 0.0
    shares: Callable[[], Awaitable[Sequence[KeyShare]]] = _no_shares
    allocation: Callable[[], AllocationSettings] = AllocationSettings
    mcp: Callable[[], McpSettings] = McpSettings
    own_records: OwnRecords = field(init=False, repr=False)
    sign_ins: Buckets = field(init=False, repr=False)
    shared_sign_ins: Buckets = field(init=False, repr=False)
    account_sign_ins: Buckets = field(init=False, repr=False)
    tool_calls: ToolCalls = field(init=False, repr=False)
    questions: Questions = field(init=False, repr=False)
    published: Published = field(init=False, repr=False)
    publishing: Publishing | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.own_records = OwnRecords(self.log, self.clock)
        self.sign_ins = Buckets(self.clock, burst=SIGN_IN_BURST, per_s=SIGN_IN_PER_S)
        self.shared_sign_ins = Buckets(self.clock, burst=SHARED_BURST, per_s=SHARED_PER_S)
        self.account_sign_ins = Buckets(self.clock, burst=ACCOUNT_BURST, per_s=ACCOUNT_PER_S)
        self.tool_calls = ToolCalls(self.clock, self.mcp)
        self.questions = Questions(self.answers)
        self.published = Published(self.ledger)
        self.publishing = self._publishing()
        self.hosts = frozenset(host.lower() for host in self.hosts)
        self.cursor_secret = derived(self.secret, "list cursors")

    def require_registry(self) -> Registry:
        """The registry. Refusal 503 with the reason why there is none."""
        if self.registry is None:
            raise Refusal(503, "registry_damaged", self.registry_problem or "the registry cannot be read")
        return self.registry

    def require_adviser(self) -> Adviser:
        """Who looks for savings. Refusal 503 while the registry, which keeps them, is damaged."""
        self.require_registry()
        if self.adviser is None:
            raise Refusal(503, "no_recommendations", "savings are not looked for here")
        return self.adviser()

    def require_reconciler(self) -> Reconciler:
        """Who compares bills. Refusal 503 while the registry, which keeps the statements, is damaged."""
        self.require_registry()
        if self.reconciler is None:
            raise Refusal(503, "no_reconciliation", "statements are not kept here")
        return self.reconciler()

    def sums_changed(self) -> None:
        """Let what is read from the ledger be read again: it was counted or priced anew."""
        if self.budgets is not None:
            self.budgets.wake()

    def require_budgets(self) -> BudgetEvaluator:
        """What evaluates the budgets. Refusal 503 while the registry, which keeps them, is damaged."""
        self.require_registry()
        if self.budgets is None:
            raise Refusal(503, "no_budgets", "budgets are not evaluated here")
        return self.budgets

    def require_publishing(self) -> Publishing:
        """What publishes definitions of allocation. Refusal 503 while the registry, which keeps them, is damaged."""
        self.require_registry()
        if self.publishing is None:
            raise Refusal(503, "no_allocation", "definitions are not published here")
        return self.publishing

    def _publishing(self) -> Publishing | None:
        if self.registry is None:
            return None
        return Publishing(
            self.registry.allocation,
            self.ledger,
            self.published,
            limits=self.allocation_limits,
            max_versions=lambda: self.allocation().max_versions,
            max_jobs=lambda: self.allocation().max_jobs,
            changed=self.sums_changed,
        )

    def allocation_limits(self) -> Limits:
        """How large a definition may be."""
        section = self.allocation()
        return Limits(
            max_bytes=section.max_definition_bytes, max_dimensions=section.max_dimensions, max_rules=section.max_rules
        )

    def require_devices(self) -> DeviceLifecycle:
        """The devices. Refusal 503 where there are none, or where their changes could not be audited."""
        self.require_registry()
        if self.devices is None:
            raise Refusal(503, "no_devices", "devices are not kept here")
        return self.devices

    def require_container_files(self) -> ContainerFiles:
        """The files of container metrics. Refusal 503 where there are none."""
        if self.container_files is None:
            raise Refusal(503, "no_container_files", "container metrics are not kept here")
        return self.container_files

    def require_clusters(self) -> Clusters:
        """The clusters. Refusal 503 where there are none, or where their changes could not be audited."""
        self.require_registry()
        if self.clusters is None:
            raise Refusal(503, "no_clusters", "clusters are not kept here")
        return self.clusters


@dataclass(frozen=True, kw_only=True)
class Services:
    """Everything that a started Tollhouse consists of."""

    storage: Storage
    receivers: ReceiverServices
    devices: DeviceLifecycle
    clusters: Clusters
    deposits: Deposits
    stream_admission: StreamAdmission
    billing_connections: BillingConnections
    operators: OperatorServices
    health: Health
    exposition: Exposition
    background: Background
    # Of the running configuration: see gateway.assembly.reload.
    reload: Callable[[Config, Callable[[], Config], Certificate | None, Actor], Awaitable[tuple[Config, Reloaded]]]
