"""The services that are assembled when Tollhouse starts. Handlers only read these values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gateway.operations.requests.operation_requests import OperationKeyRequest

if TYPE_CHECKING:
    from gateway.configuration.sections import Config
    from gateway.http.inflight_bytes import RequestByteReservation
    from gateway.http.listening.tls import Certificate
    from gateway.operations.holders.operators import (
        AssistantServices,
        InstallationServices,
        MoneyServices,
        PeopleServices,
        ReloadOutcome,
        SenderServices,
        SpoolServices,
    )
    from gateway.operations.requests.receiver_services import ReceiverServices
    from gateway.operations.single_receivers import ServicesOfSingleReceivers
    from gateway.people.authentication.bearer import AuthenticatedKey
    from spool.registry.operators import Actor
    from spool.storage import Storage


# Background tasks by name. They run as long as the server.
Background = dict[str, Callable[[], Coroutine[Any, Any, None]]]


def is_protocol(kind: type[Any]) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


@dataclass(frozen=True, kw_only=True)
class OperatorServices:
    """The service holders of operators, one of each class. All applications of a process share them."""

    spool: SpoolServices
    money: MoneyServices
    people: PeopleServices
    senders: SenderServices
    assistants: AssistantServices
    installation: InstallationServices

    def services_of_type(self, kind: type[Any]) -> Any:
        if kind is OperatorServices:
            return self
        holders = (getattr(self, holder_field.name) for holder_field in fields(self))
        matching = next((holder for holder in holders if type(holder) is kind), None)
        if matching is None:
            raise LookupError(f"no services have the class {kind}: add it to gateway/operations/holders")
        return matching


@dataclass(frozen=True, kw_only=True)
class AllServices:
    """
    Everything that a started Tollhouse consists of. `single` has the members of all protocols in which a receiver
    states what it needs.
    """

    storage: Storage
    receivers: ReceiverServices
    single: ServicesOfSingleReceivers
    operators: OperatorServices
    background: Background
    # Function that reloads the running configuration: see gateway.service.assembly.reload.
    reload: Callable[
        [Config, Callable[[], Config], Certificate | None, Actor], Awaitable[tuple[Config, ReloadOutcome]]
    ]

    def services_of_type(self, kind: type[Any]) -> Any:
        if kind is type(self.receivers):
            return self.receivers
        return self.single if is_protocol(kind) else self.operators.services_of_type(kind)

    @property
    def shared(self) -> InstallationServices:
        return self.operators.installation

    def key_request(
        self,
        request: web.Request,
        holder: object,
        bearer: AuthenticatedKey,
        reservation: RequestByteReservation,
    ) -> OperationKeyRequest[Any, Any]:
        return OperationKeyRequest(
            http=request,
            body=None,
            services=holder,
            receivers=self.receivers,
            shared=self.shared,
            bearer=bearer,
            share=reservation,
        )
