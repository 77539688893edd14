"""The aiohttp applications, made from the table of addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from aiohttp import web

from gateway.addresses.table import ADDRESSES, FOR_OPERATORS, FOR_SENDERS, NOWHERE, ON_EVERY_LISTENER
from gateway.api.status import DOCUMENT
from gateway.http import bodies
from gateway.http.address import Address
from gateway.http.endpoint import Handler, endpoint, unguarded
from gateway.http.openapi import document
from gateway.operator import application as operator
from gateway.services import Services


def application(services: Services, *, for_senders: bool, for_operators: bool) -> web.Application:
    """What one listener serves: the addresses for senders, the operator's side, or both."""
    app = web.Application()

    def add(path: str, handler: Handler) -> None:
        # Every method: endpoints answer 405 themselves, in their own form.
        app.router.add_route("*", path, handler, expect_handler=bodies.later)

    if for_senders:
        for path, rows in _by_path(FOR_SENDERS).items():
            add(path, endpoint(rows, services))
        if services.receivers.cors:
            app.on_response_prepare.append(services.receivers.cors.on_prepare)
    for row in ON_EVERY_LISTENER:
        add(row.path, unguarded(row, services))
    if for_operators:
        make_document: Callable[[], dict[str, Any]] = cache(partial(described, services.operators.version))
        app[DOCUMENT] = make_document
        for row in FOR_OPERATORS:
            add(row.path, unguarded(row, services))
        app.add_subapp(operator.PREFIX, operator.application(services.operators))
    add(NOWHERE.path, endpoint([NOWHERE], services))
    return app


def described(version: str) -> dict[str, Any]:
    """The OpenAPI document of the whole table."""
    return document(operator.CALLS, prefix=operator.PREFIX, version=version, addresses=ADDRESSES)


def _by_path(rows: Iterable[Address]) -> dict[str, list[Address]]:
    """The rows of each path, in the order in which the paths are tried."""
    found: dict[str, list[Address]] = {}
    for row in rows:
        found.setdefault(row.path, []).append(row)
    return found
