"""The services that HTTP handlers use, as the assembly of Tollhouse provides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

if TYPE_CHECKING:
    from gateway.http.cors import Cors
    from gateway.http.inflight_bytes import InflightBytes, RequestByteReservation
    from gateway.http.listening.connections import OpenConnections
    from gateway.http.pending_requests import RequestsInHand
    from gateway.http.requests import AdmittedRequest
    from gateway.http.turns import QueryTurnScheduler
    from gateway.monitoring.metrics import ProcessMetrics
    from gateway.people.authentication.access import KeyAccess
    from gateway.people.authentication.bearer import AuthenticatedKey
    from spool.clock import Clock
    from spool.registry.registry import Registry


class AdmissionServices(Protocol):
    access: KeyAccess
    metrics: ProcessMetrics
    clock: Clock
    inflight: InflightBytes
    max_body_bytes: int
    connections: OpenConnections
    min_upload_rate: int
    cors: Cors
    in_hand: RequestsInHand


class AnswerServices(Protocol):
    questions: QueryTurnScheduler
    registry: Registry | None


class RunningServices(Protocol):
    """The services of a started Tollhouse."""

    @property
    def receivers(self) -> AdmissionServices: ...

    @property
    def shared(self) -> AnswerServices: ...

    def services_of_type(self, kind: type[Any]) -> Any:
        """Return the service of a type. Raises LookupError."""

    def key_request(
        self,
        request: web.Request,
        holder: object,
        bearer: AuthenticatedKey,
        reservation: RequestByteReservation,
    ) -> AdmittedRequest[Any]:
        """Return a request admitted for the key `bearer`, before its body is read."""
