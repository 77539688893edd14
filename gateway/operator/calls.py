"""One call of the operator API as a row of a table: what it is, who may make it, what it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from aiohttp import web

from gateway.errors import Refusal
from gateway.http.lists import List, Rows, envelope
from gateway.operator.body import Body, answer, body
from gateway.operator.services import SERVICES, OperatorServices
from spool.registry.operators import Actor, Session

Row = TypeVar("Row")
T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """A request that may be answered: who asks, on what, and the words to read it with."""

    request: web.Request
    actor: Actor
    role: str
    session: Session | None = None  # None on the socket

    @property
    def services(self) -> OperatorServices:
        return self.request.app[SERVICES]

    def word(self, name: str) -> str:
        """A part of the path."""
        return self.request.match_info[name]

    def number(self, name: str) -> int:
        """A part of the path that is a number."""
        text = self.word(name)
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise Refusal(404, "not_found", f"{name} is a whole number")
        return int(text)

    def only(self, *names: str) -> Mapping[str, str]:
        """The query of a call that is no list: each of `names` at most once, nothing else."""
        query = self.request.query
        if set(query) - set(names) or len(query) > len(set(query)):
            known = "takes " + ", ".join(names) + ", each once" if names else "takes no parameters"
            raise Refusal(400, "invalid_parameter", f"this call {known}")
        return dict(query)

    async def body(self, kind: type[T]) -> T:
        return await body(self.request, kind)

    async def list(self, listed: List[Row], rows: Rows[Row]) -> web.Response:
        query: Sequence[tuple[str, str]] = list(self.request.query.items())
        return answer(await envelope(listed, rows, query, secret=self.services.cursor_secret))


@dataclass(frozen=True)
class Call:
    """
    `role` None: the call is how one signs in. A call that is not GET changes something and needs the CSRF token.

    Of its parameters those in `query` must be given, those in `optional` may be, and those in `repeated` may repeat.
    """

    method: str
    path: str
    role: str | None
    handler: Callable[[Asked], Awaitable[web.Response]]
    summary: str
    _: KW_ONLY
    takes: type[Body] | None = None
    lists: List[Any] | None = None
    query: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
