"""Everything that is assembled when Tollhouse starts, as values: handlers only read them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from gateway.attempts import Buckets
from gateway.authentication.access import Access
from gateway.configuration.secret_file import SecretFile
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.errors import Refusal
from gateway.http.budget import Budget
from gateway.http.connections import Connections
from gateway.http.cors import Cors
from gateway.http.in_hand import RequestsInHand
from gateway.http.receiving import ReceivingSlots
from gateway.intake.deposits import Deposits
from gateway.intake.merge_window import MergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.stream_admission import StreamAdmission
from gateway.monitoring.health import Health
from gateway.monitoring.metrics import Exposition, Metrics
from gateway.normalise.options import Options
from spool.billing_hours import BillingPlan
from spool.clock import Clock
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import RouteState
from spool.installation import derived
from spool.ledger.ledger import Ledger
from spool.log.protocols import Log
from spool.registry.registry import Registry
from spool.storage import Storage
from spool.streams import StreamReader

SIGN_IN_BURST = 10  # wrong passwords at once from one address, then one every 30 seconds
SIGN_IN_PER_S = 1 / 30
# For one account, from everywhere: wide enough that a few addresses cannot lock its owner out.
ACCOUNT_BURST, ACCOUNT_PER_S = 100, 1 / 3


# By name, what runs as long as the server does.
Background = dict[str, Callable[[], Coroutine[Any, Any, None]]]


@dataclass(frozen=True, kw_only=True)
class ReceiverServices:
    """What every address for key holders needs, over HTTP and gRPC: admission, body limits and the intake."""

    access: Access
    intake: MergeWindow
    metrics: Metrics
    clock: Clock
    budget: Budget
    max_body_bytes: int
    connections: Connections  # of the listener for senders
    min_upload_rate: int = 0  # bytes a second of a large body, 0 for any
    options: Options = field(default_factory=Options)
    cors: Cors = field(default_factory=Cors)
    receiving: ReceivingSlots = field(default_factory=ReceivingSlots)
    in_hand: RequestsInHand = field(default_factory=RequestsInHand)
    signing_secret: SecretFile | None = None  # of Helicone's webhooks


def _default_console() -> str:
    return "http://127.0.0.1:4318/console/"


def _wake_nothing(route: str) -> None:
    """Do nothing: without a server no route runs, and it finds its work at the next start."""


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
    loopback and bare addresses. `console_url` is asked when a link is made, because port 0 is known only then.
    `wake` is called with a route's name when its work was changed by hand. `prices` is the book to price sums again.
    `events_sent_as` says how a type of usage events leaves for the upstream, None if it does not.
    `syncs` are the tables brought upstream, shown as routes are; without a server none runs.
    """

    log: Log
    deliveries: Deliveries
    streams: StreamReader
    billing: Billing
    registry: Registry | None
    access: Access
    ledger: Ledger
    clock: Clock
    secret: bytes
    version: str
    registry_problem: str = ""
    hosts: frozenset[str] = frozenset()
    console_url: Callable[[], str] = _default_console
    wake: Callable[[str], None] = _wake_nothing
    prices: Callable[[], PriceBook] = PriceBook.load
    devices: DeviceLifecycle | None = None
    syncs: Callable[[], Sequence[RouteState]] = tuple
    events_sent_as: Callable[[str], str | None] = lambda _: None
    sign_ins: Buckets = field(init=False, repr=False)
    account_sign_ins: Buckets = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.sign_ins = Buckets(self.clock, burst=SIGN_IN_BURST, per_s=SIGN_IN_PER_S)
        self.account_sign_ins = Buckets(self.clock, burst=ACCOUNT_BURST, per_s=ACCOUNT_PER_S)
        self.hosts = frozenset(host.lower() for host in self.hosts)
        self.cursor_secret = derived(self.secret, "list cursors")

    def require_registry(self) -> Registry:
        """The registry. Refusal 503 with the reason why there is none."""
        if self.registry is None:
            raise Refusal(503, "registry_damaged", self.registry_problem or "the registry cannot be read")
        return self.registry

    def require_devices(self) -> DeviceLifecycle:
        """The devices. Refusal 503 where there are none, or where their changes could not be audited."""
        self.require_registry()
        if self.devices is None:
            raise Refusal(503, "no_devices", "devices are not kept here")
        return self.devices


@dataclass(frozen=True, kw_only=True)
class Services:
    """Everything that a started Tollhouse consists of."""

    storage: Storage
    receivers: ReceiverServices
    devices: DeviceLifecycle
    deposits: Deposits
    stream_admission: StreamAdmission
    operators: OperatorServices
    health: Health
    exposition: Exposition
    poke: Callable[[], None]  # lets every route try again at once
    background: Background
