"""The members of the assembled services that the server uses. The assembly passes the services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

if TYPE_CHECKING:
    from gateway.http.cors import Cors
    from gateway.http.in_hand import RequestsInHand
    from gateway.http.inflight_bytes import InflightBytes, Share
    from gateway.http.listening.connections import Connections
    from gateway.http.requests import AdmittedRequest
    from gateway.http.turns import Questions
    from gateway.monitoring.metrics import Metrics
    from gateway.people.authentication.access import Access, Bearer
    from spool.clock import Clock
    from spool.registry.registry import Registry


class AdmissionServices(Protocol):
    """Services that admit requests of key holders and limit their bodies."""

    access: Access
    metrics: Metrics
    clock: Clock
    inflight: InflightBytes
    max_body_bytes: int
    connections: Connections
    min_upload_rate: int
    cors: Cors
    in_hand: RequestsInHand


class AnswerServices(Protocol):
    """Services that every answer needs."""

    questions: Questions
    registry: Registry | None


class Served(Protocol):
    """The services of a started Tollhouse."""

    @property
    def receivers(self) -> AdmissionServices: ...

    @property
    def shared(self) -> AnswerServices: ...

    def of(self, kind: type[Any]) -> Any:
        """Return the holder of a class. Raises LookupError for an unknown class."""

    def key_request(
        self, request: web.Request, holder: object, bearer: Bearer, share: Share
    ) -> AdmittedRequest[Any]:
        """Return the request as its handler receives it, without a body."""
