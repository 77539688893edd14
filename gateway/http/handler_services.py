"""What the admission of a request needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.http.cors import Cors
    from gateway.http.inflight_bytes import InflightBytes
    from gateway.http.listening.connections import OpenConnections
    from gateway.http.pending_requests import RequestsInHand
    from gateway.people.authentication.bearer import AuthenticatedKey
    from spool.clock import Clock


class RequestCounters(Protocol):
    """Counts requests for the metrics."""

    def start_endpoint_series_at_zero(self, endpoint: str, status: int | str) -> None: ...

    def count_request(self, endpoint: str, status: int | str) -> None:
        """Count a response. `status` is the HTTP status or the name of the gRPC code."""

    def count_refusal(self, type: str) -> None: ...

    def count_tool_call(self, tool: str, outcome: str) -> None: ...


class KeyAdmission(Protocol):
    """Checks the keys of requests, and charges their use. `local` is the bearer of programs on an agent's machine."""

    key_headers: tuple[str, ...]
    local: AuthenticatedKey | None
    with_user_of_connection: Callable[[AuthenticatedKey, object, object], AuthenticatedKey]

    def find_validity_check(self, credential: str | None) -> Callable[[], bool] | None:
        """
        Return a check for further requests with a key, which notes the use of a key that is still valid. Return None
        for a key that must be checked in full each time.
        """

    def admit(self, secret: str | None, scope: str, *, address: str) -> AuthenticatedKey: ...

    async def admit_with_current_keys(
        self, secret: str | None, scope: str, *, address: str
    ) -> AuthenticatedKey:
        """Admit a key. A refusal is based only on facts that are as new as the request."""

    def charge_request(self, bearer: AuthenticatedKey, *, requests: int, bytes: int) -> None:
        """Charge a request. Raises Refusal 429 until earlier charges are paid off."""

    def charge_refused_bytes(self, bearer: AuthenticatedKey, *, bytes: int) -> None: ...


class AdmissionServices(Protocol):
    access: KeyAdmission
    metrics: RequestCounters
    clock: Clock
    inflight: InflightBytes
    max_body_bytes: int
    connections: OpenConnections
    min_upload_rate: int
    cors: Cors
    in_hand: RequestsInHand
