"""Everything that is assembled when Tollhouse starts, as values: handlers only read them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from gateway.authentication.access import Access
from gateway.configuration.secret_file import SecretFile
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.http.bodies import Budget
from gateway.http.cors import Cors
from gateway.http.in_hand import RequestsInHand
from gateway.intake.deposits import Deposits
from gateway.intake.merge_window import MergeWindow
from gateway.monitoring.health import Health
from gateway.monitoring.metrics import Exposition, Metrics
from gateway.normalise.options import Options
from gateway.operator.services import OperatorServices
from spool.clock import Clock
from spool.storage import Storage

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
    options: Options = field(default_factory=Options)
    cors: Cors = field(default_factory=Cors)
    in_hand: RequestsInHand = field(default_factory=RequestsInHand)
    signing_secret: SecretFile | None = None  # of Helicone's webhooks


@dataclass(frozen=True, kw_only=True)
class Services:
    """Everything that a started Tollhouse consists of."""

    storage: Storage
    receivers: ReceiverServices
    devices: DeviceLifecycle
    deposits: Deposits
    operators: OperatorServices
    health: Health
    exposition: Exposition
    poke: Callable[[], None]  # lets every route try again at once
    background: Background
