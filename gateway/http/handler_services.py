"""The services that HTTP handlers use, as the assembly of Tollhouse provides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from gateway.http.error_table import DurableRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.http.cors import Cors
    from gateway.http.inflight_bytes import InflightBytes, RequestByteReservation
    from gateway.http.listening.connections import OpenConnections
    from gateway.http.pending_requests import RequestsInHand
    from gateway.http.requests import AdmittedRequest
    from gateway.http.turns import QueryTurnScheduler
    from gateway.people.authentication.access import KeyAccess
    from gateway.people.authentication.bearer import AuthenticatedKey
    from spool.clock import Clock
    from spool.people import People
    from spool.registry.viewings import Viewing


class RequestCounters(Protocol):
    """Counts requests for the metrics."""

    def start_endpoint_series_at_zero(self, endpoint: str, status: int | str) -> None: ...

    def count_request(self, endpoint: str, status: int | str) -> None:
        """Count a response. `status` is the HTTP status or the name of the gRPC code."""
        ...

    def count_refusal(self, type: str) -> None: ...

    def count_tool_call(self, tool: str, outcome: str) -> None: ...


class AdmissionServices(Protocol):
    access: KeyAccess
    metrics: RequestCounters
    clock: Clock
    inflight: InflightBytes
    max_body_bytes: int
    connections: OpenConnections
    min_upload_rate: int
    cors: Cors
    in_hand: RequestsInHand


class StoresViewings(Protocol):
    async def add(self, viewings: Iterable[Viewing], viewed_at: float) -> None: ...


class ViewingRegistry(DurableRegistry, Protocol):
    """Stores whose figures somebody has seen."""

    people: People

    @property
    def viewings(self) -> StoresViewings: ...


class AnswerServices(Protocol):
    questions: QueryTurnScheduler

    @property
    def registry(self) -> ViewingRegistry | None: ...


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
