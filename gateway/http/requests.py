"""
An admitted request, as handlers receive it: its bearer, decoded body, path parameters and the services.

With an Idempotency-Key, a sender identifies one request body. If the sender repeats the same body with the
same key, it gets the first answer again and nothing changes. A different body with that key is rejected, and
nothing of it is stored. Each API key and path has its own idempotency keys. They are remembered as long as
the dedup keys of calls (spool.duplicate_window).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import NoneType, SimpleNamespace
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_type_hints

from aiohttp import web

from gateway.http.answers import JSON, Pieces
from gateway.http.holders.operators import InstallationServices
from gateway.http.holders.receivers import ReceiverServices
from gateway.http.inflight_bytes import Share
from gateway.http.lists import List, Rows, envelope
from gateway.people.authentication.access import Bearer
from gateway.service.errors import Refusal
from spool.identity import Identity, RequestNames, no_identity, of_item, of_request
from spool.registry.operators import Actor

Held = TypeVar("Held")
Body = TypeVar("Body")
Row = TypeVar("Row")

# A mapping is sent as JSON with the status that the row declares.
Result: TypeAlias = "web.StreamResponse | Mapping[str, object] | Pieces"
AddressHandler: TypeAlias = "Callable[[Any], Awaitable[Result]]"

IDEMPOTENCY_KEY = "Idempotency-Key"


@dataclass(slots=True, kw_only=True)
class AdmittedRequest(Generic[Body]):
    """
    The common part of requests by keys and by people. `body` has the type that the row names, or is None.
    """

    http: web.Request
    body: Body

    def word(self, name: str) -> str:
        """Return a part of the path."""
        return self.http.match_info[name]

    def take_body(self) -> Body:
        """Return the body and drop the reference, so that its memory is freed before the commit."""
        body = self.body
        del self.body
        return body

    async def page(
        self, listed: List[Row], rows: Rows[Row], shared: InstallationServices
    ) -> Mapping[str, object]:
        """
        Return the requested page of a list. Raises Refusal 400 for an invalid parameter; the message names
        the allowed values.
        """
        query = list(self.http.query.items())
        return await envelope(listed, rows, query, secret=shared.cursor_secret, people=shared.people)


@dataclass(slots=True, kw_only=True)
class KeyRequest(AdmittedRequest[Body], Generic[Held, Body]):
    """
    A request that its key admitted.

    `services` is the holder that the handler names, as in `KeyRequest[MoneyServices, None]`. Every handler
    may use `receivers` and `shared`.
    """

    services: Held
    receivers: ReceiverServices
    shared: InstallationServices
    bearer: Bearer
    share: Share  # the memory that this request uses

    @property
    def actor(self) -> Actor:
        """
        Return the actor for the audit list. If the actor's key expires before the change is committed, the
        change is rejected.

        For a person, the actor also has the network address and the client program.
        """
        person = self.bearer.person
        if person is not None:
            address_and_client = f"{self.http.remote or ''} {person.client}".strip()
            return Actor(person.email, address_and_client)
        return Actor(self.bearer.name, self.http.remote or "", self.bearer.expects, is_key=True)

    async def list(self, listed: List[Row], rows: Rows[Row]) -> Mapping[str, object]:
        return await self.page(listed, rows, self.shared)


def named_holder(handler: Callable[..., object]) -> type[Any]:
    """Return the holder class that a handler's request names as its first type argument."""
    return _named(handler)[0]


def named_body(handler: Callable[..., object]) -> type[Any] | None:
    """Return the body type that a handler's request names as its second type argument. None means no body."""
    body = _named(handler)[1]
    return None if body is NoneType else body


def _named(handler: Callable[..., object]) -> tuple[type[Any], ...]:
    hints = handler.__annotations__.items()
    request = dict([next((name, hint) for name, hint in hints if "[" in hint)])
    [hint] = get_type_hints(
        SimpleNamespace(__annotations__=request), vars(import_module(handler.__module__)), include_extras=True
    ).values()
    return get_args(hint)


def check_json(request: web.Request) -> None:
    """Raise Refusal 415 if the body is not sent as JSON."""
    if request.content_type != JSON:
        raise Refusal(415, "unsupported_media_type", "Send the body as application/json.")


def check_parameters(request: web.Request, once: tuple[str, ...], repeated: tuple[str, ...] = ()) -> None:
    """Raise Refusal 400 for an unknown query parameter, or for one in `once` that is repeated."""
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


def names_of(request: KeyRequest[Any, bytes], *more: bytes) -> RequestNames | None:
    """
    Return the names under which a request is deduplicated, from its Idempotency-Key. None without the header.

    `more` is compared together with the body.
    """
    key = request.http.headers.get(IDEMPOTENCY_KEY)
    if not key:
        return None
    return of_request(request.bearer.name, request.http.path, key, request.body, *more)


def identity_of(names: RequestNames | None, place: int, given: bytes | None) -> Identity:
    """
    Return the dedup key of an item: the id that another Tollhouse gave it, or its position in the request.
    """
    if given is not None:
        return Identity(given)
    if names is None:
        return no_identity()
    return Identity(of_item(names, place))
