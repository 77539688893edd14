"""Requests of keys whose handlers use the registry, which receivers of telemetry do not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from gateway.http.requests import RequestServices
from gateway.operations.requests.key_requests import KeyRequest

if TYPE_CHECKING:
    from spool.registry.registry import Registry
    from spool.registry.roles import RoleLimits

Held = TypeVar("Held")
Body = TypeVar("Body")


class OperationServices(RequestServices, Protocol):
    """What every operation may use of the installation."""

    def role_limits(self) -> RoleLimits: ...

    def branches(self) -> str:
        """Return the setting `work.branch`."""

    def require_registry(self) -> Registry:
        """Return the registry. Raises Refusal 503 with the reason if it is damaged."""


@dataclass(slots=True, kw_only=True)
class OperationKeyRequest(KeyRequest[Held, Body], Generic[Held, Body]):
    """A request of a key whose handler uses the registry."""

    shared: OperationServices
