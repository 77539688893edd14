"""Service holders for operators: installation, spool, senders, people, assistants and money."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from gateway.configuration.certificates import CertificateExpiry, read_certificate_expiries
from gateway.configuration.sections import (
    AllocationSettings,
    Config,
    CurrencySettings,
    McpSettings,
    PrivacySettings,
    ReconciliationSettings,
)
from gateway.configuration.server import AnswerSettings, ServerSettings
from gateway.core.errors import REPAIR_RETRY_S, Refusal
from gateway.core.first_use import LazyValue
from gateway.core.rate_limits import TokenBuckets
from gateway.http.event_streams import EventStreams
from gateway.http.inflight_bytes import InflightBytes
from gateway.http.listening.connections import OpenConnections, operator_connections
from gateway.http.turns import QueryTurnScheduler
from gateway.intake.prices import PriceBook
from gateway.money.allocation.declared import AllocationTable
from gateway.money.allocation.language import Limits
from gateway.money.allocation.published import AllocationDefinitionHolder
from gateway.money.allocation.publishing import DefinitionPublisher
from gateway.people.authentication.tool_calls import ToolCalls
from spool.errors import NotThere
from spool.installation import derive_secret
from spool.leases import Leases, SoleNode
from spool.ledger.own_records import NewestSliceCalls
from spool.listing import MOST_KNOWN
from spool.loops import FailedItems
from spool.packed.native import NO_NATIVE, CompiledModuleUse
from spool.people import KEEP, People
from spool.registry.roles import RoleLimits
from spool.storage import DatabaseHealth, Storage, no_database

if TYPE_CHECKING:
    from gateway.bills.billed.biller import BilledCostCalculator
    from gateway.bills.billed.row_book import ConnectionCostUpdater
    from gateway.bills.enforcers.auditing import EnforcerAuditor
    from gateway.bills.enforcers.reader import EnforcerReader
    from gateway.bills.reconciliation.reconciler import BillReconciler
    from gateway.bills.statements.puller import StatementPuller
    from gateway.clusters.clusters import Clusters
    from gateway.configuration.settings_in_effect import SettingInEffect
    from gateway.core.first_use import LazyValue
    from gateway.devices.fleet.fleet import Fleet
    from gateway.devices.lifecycle import DeviceLifecycle
    from gateway.http.lists import Rows
    from gateway.intake.billing_connections import BillingConnections
    from gateway.intake.sender_fields import SenderFieldSaver
    from gateway.money.budgets.evaluator import BudgetEvaluator
    from gateway.money.lost_calls import LossEstimator
    from gateway.money.recommendations.adviser import RecommendationUpdater
    from gateway.money.waste.lane import LaneSettings
    from gateway.monitoring.late_reports import LateReportSaver
    from gateway.monitoring.sender_hours import SenderHoursTracker
    from gateway.operations.holders.demo_month import DemoMonth
    from gateway.operations.records.served_hours import ServedTokensByHour
    from gateway.people.authentication.access import KeyAccess
    from gateway.people.authentication.oidc.assistants import AssistantSignIns
    from gateway.people.authentication.oidc.sign_ins import ProviderSignIns
    from spool.billing import BillingPlan
    from spool.clock import Clock
    from spool.container_files.files import ContainerFiles
    from spool.deliveries.protocols import Deliveries, LakeRecount, LakeRepairs, LakeState, PastRecords
    from spool.deliveries.values import RouteState
    from spool.ledger.colours import ChartColours
    from spool.ledger.ledger import Ledger
    from spool.log.counted_names import AmountOf
    from spool.log.partial_reports import PartialReports
    from spool.log.protocols import RecordLog
    from spool.registry.assistant_tools import ToolCallTable
    from spool.registry.notices import ChannelState
    from spool.registry.operators import Actor
    from spool.registry.registry import Registry
    from spool.shares import KeyShare
    from spool.streams import StreamReader

SIGN_IN_BURST = 10  # wrong passwords allowed from one address; after that, one every 30 seconds
SIGN_IN_PER_S = 1 / 30
# Limits for an address that many people may share. They exceed the limits for one account, so an attack on
# one account cannot lock out the other people at the address.
SHARED_BURST, SHARED_PER_S = 300, 1.0
# Limits for one account, over all addresses. They are so high that a few addresses cannot lock out
# the account's owner.
ACCOUNT_BURST, ACCOUNT_PER_S = 100, 1 / 3

KNOWN_FOR_S = 5.0


@dataclass(kw_only=True)
class WithRegistry:
    """
    Services that include the registry. If the registry file is damaged, `registry` is None and
    `registry_problem` is the reason.

    The records stay readable without it.
    """

    registry: Registry | None
    clock: Clock
    registry_problem: str = ""

    def require_registry(self) -> Registry:
        """Return the registry. Raises Refusal 503 with the reason if it is damaged."""
        if self.registry is None:
            message = self.registry_problem or "the registry cannot be read"
            raise Refusal(503, "registry_damaged", message, retry_after_s=REPAIR_RETRY_S)
        return self.registry


_EVERY_ADDRESS = (None, "0.0.0.0", "::")  # hosts of a server that listens on all addresses


@dataclass(frozen=True, kw_only=True)
class PublicUrls:
    """
    The addresses of the console and for telemetry.

    `telemetry` is None if telemetry uses the address at which the console was opened. `public` is the
    console's address for people on other machines, or "" if it is not configured.
    """

    console: str
    telemetry: str | None = None
    public: str = ""

    @property
    def console_url_for_links(self) -> str:
        """Return the console's address for mails and links, or "" if no usable host name is known."""
        if self.public:
            return self.public
        host = urlsplit(self.console).hostname
        return "" if host in _EVERY_ADDRESS else self.console


def _default_urls() -> PublicUrls:
    return PublicUrls(console="http://127.0.0.1:4318/console/")


@dataclass(frozen=True, kw_only=True)
class ReloadOutcome:
    """
    The result of a reload. `changed` and `needs_restart` are names of settings.

    `problems` describes routes that cannot send with the new settings.
    """

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    problems: tuple[str, ...] = ()


async def _refuse_config_reload(actor: Actor) -> ReloadOutcome:
    raise Refusal(503, "not_running", "no server runs here; the configuration is read when it starts")


async def _refuse_receiver_test(kind: str, url: str, secret: str) -> tuple[str, str | None]:
    raise Refusal(503, "not_running", "no server runs here; `tollhouse check` tests the configuration")


async def _no_channels() -> Sequence[ChannelState]:
    return ()


@dataclass(kw_only=True)
class InstallationServices(WithRegistry):
    """
    Services of the installation.

    - `urls` is called when the addresses are shown, because port 0 becomes a real port only at the start.
    - `leases` knows the gateways that share the storage, and `database` returns the health of the shared database.
    - `inflight` counts the bytes in flight, including large answers.
    - `copy` fills a directory with copies of the storage for a backup. `storage` is the whole storage, in which people
      are erased.
    - `reload` applies the configuration on behalf of an actor. It raises ConfigError if the configuration is invalid.
    - `in_use` returns the PEM text of the certificates that the server has loaded, by setting.
    - `branches` returns the setting `work.branch`, and `most` the value of a limit by its name.
    - `try_receiver` tests an address and a key for forwarding; it returns a status and the receiver's words.
    - `channels` returns the channels that send notifications.
    - `demo` is None if no server runs or if several gateways share the storage.
    - `planted` describes the problems in the data that `tollhouse demo` generated. It is None for other data.
    """

    secret: bytes
    version: str
    urls: Callable[[], PublicUrls] = _default_urls
    leases: Leases = field(default_factory=SoleNode)
    database: Callable[[], Awaitable[DatabaseHealth | None]] = no_database
    inflight: InflightBytes = field(default_factory=lambda: InflightBytes(sys.maxsize))
    copy: Callable[[Path], Awaitable[None]] | None = None
    storage: Storage | None = None
    connections: OpenConnections = field(default_factory=lambda: operator_connections(ServerSettings()))
    event_streams: EventStreams = field(
        default_factory=lambda: EventStreams(ServerSettings().max_event_streams)
    )
    reload: Callable[[Actor], Awaitable[ReloadOutcome]] = _refuse_config_reload
    settings: Callable[[], Sequence[SettingInEffect]] = tuple
    config: Callable[[], Config] = Config
    in_use: Callable[[], Mapping[str, bytes]] = dict
    most: Callable[[str], int] = Config().limit_value
    answers: Callable[[], AnswerSettings] = AnswerSettings
    role_limits: Callable[[], RoleLimits] = RoleLimits
    privacy: Callable[[], PrivacySettings] = PrivacySettings
    branches: Callable[[], str] = lambda: KEEP
    channels: Callable[[], Awaitable[Sequence[ChannelState]]] = _no_channels
    try_receiver: Callable[[str, str, str], Awaitable[tuple[str, str | None]]] = _refuse_receiver_test
    demo: LazyValue[DemoMonth[Any]] | None = None
    planted: Sequence[str] | None = None
    questions: QueryTurnScheduler = field(init=False, repr=False)
    cursor_secret: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.questions = QueryTurnScheduler(self.answers)
        self.cursor_secret = derive_secret(self.secret, "list cursors")

    async def read_certificate_ends(self) -> Sequence[CertificateExpiry]:
        return await asyncio.to_thread(read_certificate_expiries, self.config(), self.in_use())

    @property
    def people(self) -> People:
        persons = None if self.registry is None else self.registry.people.persons
        return People.for_installation(self.secret, self.privacy().emails, persons)

    @property
    def demo_state(self) -> str | None:
        """Return the state of the demo month, or None if this server can have none."""
        return None if self.demo is None else self.demo().state


async def _wake_no_route(route: str) -> None:
    """
    Do nothing, because no route runs without a server. At the next start, the route finds its work by itself.
    """


async def _no_lakes() -> Sequence[LakeState]:
    return ()


class RepairLake(Protocol):
    async def __call__(self, destination: str, *, dry_run: bool) -> LakeRepairs:
        """Write missing files of a data lake again. Raises NotThere if there is no such data lake."""
        ...


async def _refuse_repair(destination: str, *, dry_run: bool) -> LakeRepairs:
    raise NotThere(f"no data lake destination is named {destination!r}")


async def _refuse_lake_recount(destination: str, topic: str, after_number: int) -> LakeRecount:
    raise NotThere(f"no data lake destination is named {destination!r}")


@dataclass(kw_only=True)
class SpoolServices:
    """
    Services of the spool.

    - `wake` makes a route try at once, on the gateway that runs it.
    - `syncs` returns the states of the tables that are sent upstream. It is empty without a server.
    - `events_sent_as` returns the upstream name for a type of usage events, or None if it is not sent. `is_unmapped`
      returns whether the reason is a missing line in [upstream.events].
    - `event_amount` returns the amount of an event, according to the line of its type.
    - `failed_items` are the failed items of background tasks.
    - `lakes` returns the data lakes of files. `past` reads records that the log has deleted from one of these lakes.
    """

    log: RecordLog
    deliveries: Deliveries
    streams: StreamReader
    clock: Clock
    wake: Callable[[str], Awaitable[None]] = _wake_no_route
    syncs: Callable[[], Sequence[RouteState]] = tuple
    destination_types: Callable[[], Mapping[str, str]] = dict
    events_sent_as: Callable[[str], str | None] = lambda _: None
    is_unmapped: Callable[[str], bool] = lambda _: False
    event_amount: AmountOf = lambda _: None
    partial_reports: PartialReports | None = None
    failed_items: FailedItems = field(default_factory=FailedItems)
    max_listed_records: Callable[[], int] = lambda: ServerSettings().max_listed_records
    hold_s: Callable[[], float] = lambda: 0.0
    native: CompiledModuleUse = NO_NATIVE
    late_reports: LateReportSaver | None = None  # late reports, or None while the registry is damaged
    # hours in which senders sent, or None in an agent and while the registry is damaged
    sender_hours: SenderHoursTracker | None = None
    sender_fields: SenderFieldSaver | None = None
    lakes: Callable[[], Awaitable[Sequence[LakeState]]] = _no_lakes
    past: Callable[[], PastRecords | None] = lambda: None
    repair_lake: RepairLake = _refuse_repair
    recount_lake: Callable[[str, str, int], Awaitable[LakeRecount]] = _refuse_lake_recount
    own_records: NewestSliceCalls = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.own_records = NewestSliceCalls(self.log, self.clock)


async def _no_key_shares() -> Sequence[KeyShare]:
    return ()


@dataclass(kw_only=True)
class SenderServices(WithRegistry):
    """
    Services of senders and devices. `shares` returns the keys that have nearly used up their share of
    a common limit.
    """

    access: KeyAccess
    listed_devices: Rows[Any]
    devices: DeviceLifecycle | None = None
    fleet: Fleet | None = None
    losses: LossEstimator | None = None
    clusters: Clusters | None = None
    container_files: ContainerFiles | None = None
    shares: Callable[[], Awaitable[Sequence[KeyShare]]] = _no_key_shares

    def require_devices(self) -> DeviceLifecycle:
        """
        Return the devices. Raises Refusal 503 without devices, or if changes cannot be audited because the
        registry is damaged.
        """
        self.require_registry()
        if self.devices is None:
            raise Refusal(503, "no_devices", "devices are not managed here")
        return self.devices

    def require_fleet(self) -> Fleet:
        """
        Return the fleet. Raises Refusal 503 if this gateway manages no fleet or devices, or cannot audit
        changes.
        """
        self.require_devices()
        if self.fleet is None:
            raise Refusal(503, "no_fleet", "the fleet is not managed here")
        return self.fleet

    def require_losses(self) -> LossEstimator:
        """Return the losses of the fleet. Raises Refusal 503 without a fleet."""
        if self.losses is None:
            raise Refusal(503, "no_fleet", "the fleet is not managed here")
        return self.losses

    def require_container_files(self) -> ContainerFiles:
        """Return the files of container metrics. Raises Refusal 503 if this process has none."""
        if self.container_files is None:
            raise Refusal(503, "no_container_files", "container metrics are not stored here")
        return self.container_files

    def require_clusters(self) -> Clusters:
        """
        Return the clusters. Raises Refusal 503 without clusters, or if changes cannot be audited because the
        registry is damaged.
        """
        self.require_registry()
        if self.clusters is None:
            raise Refusal(503, "no_clusters", "clusters are not managed here")
        return self.clusters


@dataclass(kw_only=True)
class PeopleServices(WithRegistry):
    """
    Services of people and sign-ins. HTTP and the operator socket share the counters of attempts.

    - `hosts` are the host names, without port, of the console. Loopback and plain IP addresses are always allowed.
    - `oidc` is None if no OpenID provider is configured.
    - `is_behind_tls`: a proxy in front of the operator API receives the HTTPS requests.
    - `assistants` accepts people's tokens for assistant tools. It needs an OpenID provider.
    """

    hosts: frozenset[str] = frozenset()
    oidc: ProviderSignIns | None = None
    is_behind_tls: bool = False
    assistants: AssistantSignIns | None = None
    sign_ins: TokenBuckets = field(init=False, repr=False)
    shared_sign_ins: TokenBuckets = field(init=False, repr=False)
    account_sign_ins: TokenBuckets = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.sign_ins = TokenBuckets(self.clock, burst=SIGN_IN_BURST, per_s=SIGN_IN_PER_S)
        self.shared_sign_ins = TokenBuckets(self.clock, burst=SHARED_BURST, per_s=SHARED_PER_S)
        self.account_sign_ins = TokenBuckets(self.clock, burst=ACCOUNT_BURST, per_s=ACCOUNT_PER_S)
        self.hosts = frozenset(host.lower() for host in self.hosts)


@dataclass(kw_only=True)
class AssistantServices:
    """Services of assistants."""

    clock: Clock
    mcp: Callable[[], McpSettings] = McpSettings
    counted: ToolCallTable | None = None  # counts of tool calls, or None while the registry is damaged
    tool_calls: ToolCalls = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.tool_calls = ToolCalls(self.clock, self.mcp, self.counted)


class HourlyCostSender(Protocol):
    """AI cost as billing drops: preview a time span, and send it."""

    async def preview(self, since: datetime, until: datetime) -> BillingPlan: ...

    async def push(self, since: datetime, until: datetime) -> BillingPlan: ...


@dataclass(kw_only=True)
class MoneyServices(WithRegistry):
    """
    Services of costs. `log` holds the records that the ledger counts, and `prices` the prices for a recalculation.

    Services that need the registry are None while it is damaged.
    """

    ledger: Ledger
    colours: ChartColours
    log: RecordLog
    billing: HourlyCostSender
    billing_connections: BillingConnections
    prices: Callable[[], PriceBook] = PriceBook.load
    streams: StreamReader | None = None
    adviser: LazyValue[RecommendationUpdater] | None = None
    reconciler: LazyValue[BillReconciler] | None = None
    biller: LazyValue[BilledCostCalculator] | None = None
    row_book: LazyValue[ConnectionCostUpdater] | None = None
    statement_puller: LazyValue[StatementPuller] | None = None
    reconciliation: Callable[[], ReconciliationSettings] = ReconciliationSettings
    enforcer_reader: LazyValue[EnforcerReader] | None = None
    enforcer_auditor: LazyValue[EnforcerAuditor] | None = None
    budgets: LazyValue[BudgetEvaluator] | None = None
    allocation: Callable[[], AllocationSettings] = AllocationSettings
    currency: Callable[[], CurrencySettings] = CurrencySettings
    # settings of the sources, which may declare the fields that decide the lane of a call
    sources: Callable[[], Mapping[str, LaneSettings]] = dict
    # hours in which senders sent, or None in an agent and while the registry is damaged
    sender_hours: SenderHoursTracker | None = None
    # sums of served models, which the first query for them creates
    served_hours: ServedTokensByHour | None = field(init=False, repr=False, default=None)
    published: AllocationDefinitionHolder = field(init=False, repr=False)
    publishing: DefinitionPublisher | None = field(init=False, repr=False)
    _known: Mapping[str, Sequence[str]] = field(init=False, repr=False, default_factory=dict)
    _known_at: float | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.published = AllocationDefinitionHolder(self.ledger)
        self.publishing = self._make_definition_publisher()

    def require_adviser(self) -> RecommendationUpdater:
        """Return the service that finds savings. Raises Refusal 503 while the registry is damaged."""
        self.require_registry()
        if self.adviser is None:
            raise Refusal(503, "no_recommendations", "recommendations are not available here")
        return self.adviser()

    def require_reconciler(self) -> BillReconciler:
        """
        Return the service that compares provider bills. Raises Refusal 503 while the registry is damaged.
        """
        self.require_registry()
        if self.reconciler is None:
            raise Refusal(503, "no_reconciliation", "provider bills are not stored here")
        return self.reconciler()

    async def known_dimension_values(self) -> Mapping[str, Sequence[str]]:
        """
        Return the values of each cost dimension. They are at most KNOWN_FOR_S old, and empty for a dimension
        with too many values.
        """
        now = self.clock.monotonic()
        if self._known_at is None or now - self._known_at > KNOWN_FOR_S:
            all_values = {name: await self.ledger.values(name) for name in self.ledger.dimensions()}
            self._known = {
                name: values if len(values) <= MOST_KNOWN else () for name, values in all_values.items()
            }
            self._known_at = now
        return self._known

    def request_budget_evaluation(self) -> None:
        """Make dependent services read the ledger again, after a recount or a recalculation."""
        if self.budgets is not None and self.budgets.made is not None:
            self.budgets.made.request_evaluation()

    def require_budgets(self) -> BudgetEvaluator:
        """Return the service that evaluates budgets. Raises Refusal 503 while the registry is damaged."""
        self.require_registry()
        if self.budgets is None:
            raise Refusal(503, "no_budgets", "budgets are not evaluated here")
        return self.budgets()

    def require_definition_publisher(self) -> DefinitionPublisher:
        """
        Return the service that publishes allocation definitions. Raises Refusal 503 while the registry is damaged.
        """
        self.require_registry()
        if self.publishing is None:
            raise Refusal(503, "no_allocation", "allocation definitions are not published here")
        return self.publishing

    def _make_definition_publisher(self) -> DefinitionPublisher | None:
        if self.registry is None:
            return None
        return DefinitionPublisher(
            self.registry.declared_table(AllocationTable),
            self.ledger,
            self.published,
            limits=self.allocation_limits,
            max_versions=lambda: self.allocation().max_versions,
            max_jobs=lambda: self.allocation().max_jobs,
            changed=self.request_budget_evaluation,
        )

    def allocation_limits(self) -> Limits:
        section = self.allocation()
        return Limits(
            max_bytes=section.max_definition_bytes,
            max_dimensions=section.max_dimensions,
            max_rules=section.max_rules,
        )
