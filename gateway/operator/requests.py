"""An admitted request of the operator API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from gateway.errors import Refusal
from gateway.http.lists import List, Rows
from gateway.http.requests import AdmittedRequest
from gateway.operator.services import OperatorServices
from spool.registry.operators import Actor, Session

Body = TypeVar("Body")
Row = TypeVar("Row")


@dataclass(slots=True, kw_only=True)
class OperatorRequest(AdmittedRequest[Body]):
    """`session` is None on the operator socket, and before anybody is signed in."""

    services: OperatorServices
    actor: Actor
    role: str
    session: Session | None = None

    def number(self, name: str) -> int:
        """A part of the path that is a number. Refusal 404 if it is none."""
        text = self.word(name)
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise Refusal(404, "not_found", f"{name} is a whole number")
        return int(text)

    async def list(self, listed: List[Row], rows: Rows[Row]) -> Mapping[str, object]:
        return await self.page(listed, rows, secret=self.services.cursor_secret)
