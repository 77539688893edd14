"""Everything that is assembled when Tollhouse starts, as values: handlers only read them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.configuration.sections import Config
    from gateway.devices.clusters import Clusters
    from gateway.devices.lifecycle import DeviceLifecycle
    from gateway.http.holders.assistants import AssistantServices
    from gateway.http.holders.installation import InstallationServices, Reloaded
    from gateway.http.holders.money import MoneyServices
    from gateway.http.holders.people import PeopleServices
    from gateway.http.holders.receivers import ReceiverServices
    from gateway.http.holders.senders import SenderServices
    from gateway.http.holders.spool import SpoolServices
    from gateway.http.listening.tls import Certificate
    from gateway.intake.billing_connections import BillingConnections
    from gateway.intake.deposits import Deposits
    from gateway.intake.stream_admission import StreamAdmission
    from gateway.monitoring.health import Health
    from gateway.monitoring.metrics import Exposition
    from spool.registry.operators import Actor
    from spool.storage import Storage


# By name, what runs as long as the server does.
Background = dict[str, Callable[[], Coroutine[Any, Any, None]]]


@dataclass(frozen=True, kw_only=True)
class OperatorServices:
    """The holders, one of each for every application of one process."""

    spool: SpoolServices
    money: MoneyServices
    people: PeopleServices
    senders: SenderServices
    assistants: AssistantServices
    installation: InstallationServices

    def of(self, kind: type[Any]) -> Any:
        """The holder of a class; all of them, if it is this one. LookupError if it is none."""
        if kind is OperatorServices:
            return self
        held = (getattr(self, each.name) for each in fields(self))
        found = next((holder for holder in held if type(holder) is kind), None)
        if found is None:
            raise LookupError(f"{kind} is not a holder: see gateway/http/holders")
        return found


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
    reload: Callable[
        [Config, Callable[[], Config], Certificate | None, Actor], Awaitable[tuple[Config, Reloaded]]
    ]
