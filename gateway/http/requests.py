"""
An admitted request, as handlers get it: its bearer, decoded body, path parameters, and the services.

By an Idempotency-Key a sender tells its requests apart: a key stands for one body. The same body again is answered as
the first time and changes nothing; another body is refused, and nothing of it is kept. Keys are those of one API key
and path, and are known as long as ids of calls are (spool.duplicate_window).
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

# A mapping becomes JSON under the row's own status.
Result: TypeAlias = "web.StreamResponse | Mapping[str, object] | Pieces"
AddressHandler: TypeAlias = "Callable[[Any], Awaitable[Result]]"

IDEMPOTENCY_KEY = "Idempotency-Key"


@dataclass(slots=True, kw_only=True)
class AdmittedRequest(Generic[Body]):
    """What both kinds of requests share. `body` is what the row of the table names, None without one."""

    http: web.Request
    body: Body

    def word(self, name: str) -> str:
        """A part of the path."""
        return self.http.match_info[name]

    def take_body(self) -> Body:
        """Return the body and release it: once its records are read, its memory must not wait for the commit."""
        body = self.body
        del self.body
        return body

    async def page(
        self, listed: List[Row], rows: Rows[Row], shared: InstallationServices
    ) -> Mapping[str, object]:
        """The page of a list that the query asks for. Refusal 400 names the allowed parameters."""
        query = list(self.http.query.items())
        return await envelope(listed, rows, query, secret=shared.cursor_secret, people=shared.people)


@dataclass(slots=True, kw_only=True)
class KeyRequest(AdmittedRequest[Body], Generic[Held, Body]):
    """
    A request that was admitted by its key.

    `services` is the holder that the handler names: `KeyRequest[MoneyServices, None]`. `receivers` and
    `shared` are what every handler may ask.
    """

    services: Held
    receivers: ReceiverServices
    shared: InstallationServices
    bearer: Bearer
    share: Share  # what the request holds of the bytes in flight

    @property
    def actor(self) -> Actor:
        """
        The key, for the audit list; what it changes is not kept once it has ended. Of a person the address,
        with the program beside it.
        """
        person = self.bearer.person
        if person is not None:
            place = f"{self.http.remote or ''} {person.client}".strip()
            return Actor(person.email, place)
        return Actor(self.bearer.name, self.http.remote or "", self.bearer.expects, is_key=True)

    async def list(self, listed: List[Row], rows: Rows[Row]) -> Mapping[str, object]:
        return await self.page(listed, rows, self.shared)


def named_holder(handler: Callable[..., object]) -> type[Any]:
    """Return the class of holders that a handler's request names, the first of its arguments."""
    return _named(handler)[0]


def named_body(handler: Callable[..., object]) -> type[Any] | None:
    """Return the type of the body that a handler's request names, the second of its arguments; None for no body."""
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
    """Refusal 415 for a body that does not come as JSON."""
    if request.content_type != JSON:
        raise Refusal(415, "unsupported_media_type", "Send the body as application/json.")


def check_parameters(request: web.Request, once: tuple[str, ...], repeated: tuple[str, ...] = ()) -> None:
    """Refusal 400 unless the query holds only these parameters, those of `once` at most once."""
    query = request.query
    if not query:
        return
    unknown = set(query) - {*once, *repeated}
    is_again = any(len(query.getall(name, ())) > 1 for name in once)
    if unknown or is_again:
        kinds = [f"{', '.join(once)}, each once"] if once else []
        kinds += [f"{', '.join(repeated)}, also repeatedly"] if repeated else []
        known = "takes " + "; ".join(kinds) if kinds else "takes no parameters"
        raise Refusal(400, "invalid_parameter", f"this address {known}")


def names_of(request: KeyRequest[Any, bytes], *more: bytes) -> RequestNames | None:
    """
    Return the names of a request by its Idempotency-Key; None without the header. `more` is compared together
    with the body.
    """
    key = request.http.headers.get(IDEMPOTENCY_KEY)
    if not key:
        return None
    return of_request(request.bearer.name, request.http.path, key, request.body, *more)


def identity_of(names: RequestNames | None, place: int, given: bytes | None) -> Identity:
    """Identify an item of a request by the id that another Tollhouse gave it, else by its place."""
    if given is not None:
        return Identity(given)
    if names is None:
        return no_identity()
    return Identity(of_item(names, place))
