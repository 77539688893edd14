"""
A resource as it is asked for: what keys and people list, create, read, change and delete, each verb written once.

What is stated of it, and what is answered, is declared in `gateway.resources`. `gateway.addresses.managing`
makes the calls of both from this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from gateway.api.visible import EVERYTHING, Visible
from gateway.http.holders.installation import InstallationServices
from gateway.http.holders.money import MoneyServices
from gateway.http.lists import List, Rows
from gateway.http.requests import KeyRequest
from spool.errors import Invalid
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.roles import Holder

Answer = Mapping[str, object]


async def _everything() -> Visible:
    return EVERYTHING


@dataclass(frozen=True, kw_only=True)
class Asker:
    """
    Who asks. `sees` is what of the calls, and what is made of them, the asker may see; `known` the dimensions
    that the asker may name. A person may name things by their names, too, and confirms what is deleted.

    `holder` is a person as a role holder, None for a key and at the server itself.
    """

    services: MoneyServices
    shared: InstallationServices
    actor: Actor
    http: web.Request
    known: Callable[[], Awaitable[Collection[str]]]
    sees: Callable[[], Awaitable[Visible]] = _everything
    is_person: bool = False
    holder: Holder | None = None

    @property
    def registry(self) -> Registry:
        """The registry. Refusal 503 with the reason while it cannot be read."""
        return self.services.require_registry()

    def check_confirmed(self, text: str, what: str) -> None:
        """Invalid unless a person confirms a deletion with `text`."""
        if self.is_person and self.http.query.get("confirm", "") != text:
            raise Invalid(f"confirm must be the exact {what}")


def asking_key(request: KeyRequest[MoneyServices, Any]) -> Asker:
    """Return the asker for a key: role filters do not apply to keys."""

    async def known() -> Collection[str]:
        return request.services.ledger.dimensions()

    return Asker(
        services=request.services,
        shared=request.shared,
        actor=request.actor,
        http=request.http,
        known=known,
    )


@dataclass(frozen=True, kw_only=True)
class ManagedResource:
    """
    `noun` is that of its operations, `root` the member under which one is answered. `new` and `changes`
    decode bodies, `item` is a row of the list and `one` an answer about one.

    `show`, `change` and `delete` take what the path names. `fill` adds to a page of the list what the
    query asks for.
    """

    noun: str
    root: str
    lists: List[Any]
    new: type[msgspec.Struct]
    changes: type[msgspec.Struct]
    item: type[msgspec.Struct]
    one: type[msgspec.Struct]
    rows: Callable[[Asker], Awaitable[Rows[Any]]]
    create: Callable[[Asker, Any], Awaitable[Answer]]
    show: Callable[[Asker, str], Awaitable[Answer]]
    change: Callable[[Asker, str, Any], Awaitable[Answer]]
    delete: Callable[[Asker, str], Awaitable[str]]  # the id of what is gone
    fill: Callable[[Asker, Answer], Awaitable[Answer]] | None = None

    async def filled(self, asking: Asker, page: Answer) -> Answer:
        return page if self.fill is None else await self.fill(asking, page)
