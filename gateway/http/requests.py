"""An admitted request, as handlers receive it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import NoneType, SimpleNamespace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, get_args, get_type_hints

from aiohttp import web

from gateway.core.errors import Refusal
from gateway.http.answers import JSON, AnswerInPieces
from gateway.http.inflight_bytes import InflightBytes
from gateway.http.lists import ListDefinition, Rows, list_envelope
from spool.clock import Clock
from spool.people import People

Held = TypeVar("Held")
Body = TypeVar("Body")
Row = TypeVar("Row")

# A mapping is sent as JSON with the row's status.
Result: TypeAlias = "web.StreamResponse | Mapping[str, object] | AnswerInPieces"
AddressHandler: TypeAlias = "Callable[[Any], Awaitable[Result]]"

IDEMPOTENCY_KEY = "Idempotency-Key"


class ListServices(Protocol):
    cursor_secret: bytes
    clock: Clock

    @property
    def people(self) -> People: ...


class RequestServices(ListServices, Protocol):
    """What every handler may use of the installation."""

    version: str

    @property
    def inflight(self) -> InflightBytes: ...

    def most(self, limit: str, /) -> int:
        """Return the value of a limit."""


@dataclass(slots=True, kw_only=True)
class AdmittedRequest(Generic[Body]):
    """
    An admitted request of a key or a person. `body` is decoded into the type that the handler declares, or is
    None.
    """

    http: web.Request
    body: Body

    def path_parameter(self, name: str) -> str:
        return self.http.match_info[name]

    def take_body(self) -> Body:
        """Return the body and drop the reference to it, so that its memory can be freed before the commit."""
        body = self.body
        del self.body
        return body

    async def read_list_page(
        self, list_definition: ListDefinition[Row], rows: Rows[Row], shared: ListServices
    ) -> Mapping[str, object]:
        """Return a page of a list. Raises Refusal 400 with the allowed values."""
        query = list(self.http.query.items())
        return await list_envelope(
            list_definition,
            rows,
            query,
            secret=shared.cursor_secret,
            people=shared.people,
            now=shared.clock.now(),
        )


def services_type_of_handler(handler: Callable[..., object]) -> type[Any]:
    return _request_type_arguments(handler)[0]


def body_type(handler: Callable[..., object]) -> type[Any] | None:
    """
    Return the body type that a handler's request annotation names as its second argument, or None without a
    body.
    """
    body = _request_type_arguments(handler)[1]
    return None if body is NoneType else body


def _request_type_arguments(handler: Callable[..., object]) -> tuple[type[Any], ...]:
    hints = handler.__annotations__.items()
    request = dict([next((name, hint) for name, hint in hints if "[" in hint)])
    [hint] = get_type_hints(
        SimpleNamespace(__annotations__=request), vars(import_module(handler.__module__)), include_extras=True
    ).values()
    return get_args(hint)


def check_json_content_type(request: web.Request) -> None:
    if request.content_type != JSON:
        raise Refusal(415, "unsupported_media_type", "Send the body as application/json.")


def check_parameters(request: web.Request, once: tuple[str, ...], repeated: tuple[str, ...] = ()) -> None:
    """Raise Refusal 400 for an unknown query parameter, or if a parameter of `once` is repeated."""
    query = request.query
    if not query:
        return
    unknown = set(query) - {*once, *repeated}
    is_again = any(len(query.getall(name, ())) > 1 for name in once)
    if unknown or is_again:
        kinds = [f"{', '.join(once)} (once each)"] if once else []
        kinds += [f"{', '.join(repeated)} (repeatable)"] if repeated else []
        rule = "accepts only the parameters " + "; ".join(kinds) if kinds else "accepts no parameters"
        raise Refusal(400, "invalid_parameter", f"this address {rule}")
