"""The aiohttp applications, made from the table of addresses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

import orjson
from aiohttp import web

from gateway.addresses.operator import CONSOLE_PAGES, OPERATOR_ADDRESSES
from gateway.addresses.table import ADDRESSES, FOR_METRICS, FOR_OPERATORS, FOR_SENDERS, NOWHERE, ON_EVERY_LISTENER
from gateway.api.status import DOCUMENT
from gateway.errors import Refusal
from gateway.http import answers, bodies
from gateway.http.address import Address
from gateway.http.endpoint import Handler, endpoint, unguarded
from gateway.http.openapi import document
from gateway.http.services import OperatorServices, Services
from gateway.mounts import OPERATOR_API
from gateway.operator.admission import operator_endpoint
from gateway.operator.body import errors_as_json
from gateway.operator.people.role_preview import OPERATOR_ROWS
from gateway.operator.scopes import OPENED, opened_by_scope
from spool.clock import Clock

_PARAMETER = re.compile(r"{(\w+)}")


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
        version = services.operators.version
        make_document: Callable[[], bytes] = cache(lambda: orjson.dumps(document(ADDRESSES, version=version)))
        app[DOCUMENT] = make_document
        for row in FOR_OPERATORS:
            add(row.path, unguarded(row, services))
        app.add_subapp(OPERATOR_API, operator_application(services.operators))
        for path, handler in CONSOLE_PAGES.items():
            app.router.add_get(path, handler)
    add(NOWHERE.path, endpoint([NOWHERE], services))
    return app


def metrics_application(services: Services) -> web.Application:
    """What a listener for metrics alone serves: these and health, and nothing of the operator API."""
    app = web.Application()
    for row in (*ON_EVERY_LISTENER, *FOR_METRICS):
        app.router.add_route("*", row.path, unguarded(row, services), expect_handler=bodies.later)
    app.router.add_route("*", NOWHERE.path, endpoint([NOWHERE], services), expect_handler=bodies.later)
    return app


def refusing_application(error: Refusal, clock: Clock, *, shown_reason: str | None) -> web.Application:
    """What a listener answers before there is anything behind it: every address with `error`, in its own form."""
    app = web.Application()

    async def live(_: web.Request) -> web.Response:
        return web.Response()

    async def not_ready(_: web.Request) -> web.Response:
        if shown_reason is None:
            return web.Response(status=503)
        return answers.json_response({"ready": False, "reasons": [shown_reason]}, status=503)

    app.router.add_route("*", "/livez", live)
    app.router.add_route("*", "/readyz", not_ready)
    for path, rows in _by_path([*FOR_SENDERS, NOWHERE]).items():
        app.router.add_route("*", path, _refusing(rows[0], error, clock), expect_handler=bodies.later)
    return app


def _refusing(row: Address, error: Refusal, clock: Clock) -> Handler:
    async def refuse(request: web.Request) -> web.Response:
        return row.error_form(request, error, clock.now())

    return refuse


def operator_application(services: OperatorServices) -> web.Application:
    """
    A new application of the operator API, to be mounted under OPERATOR_API.

    The HTTP side and the operator socket each mount one of their own, over the same services.
    """
    app = web.Application(middlewares=[errors_as_json])
    app[OPENED] = opened_by_scope(FOR_SENDERS)
    app[OPERATOR_ROWS] = OPERATOR_ADDRESSES
    for row in OPERATOR_ADDRESSES:
        (method,) = row.methods
        # Names hold any character: aiohttp's own pattern of a parameter refuses braces.
        path = _PARAMETER.sub(r"{\1:[^/]+}", row.path.removeprefix(OPERATOR_API))
        app.router.add_route(method, path, operator_endpoint(row, services))

    async def end_streams(_: web.Application) -> None:
        services.event_streams.end()

    app.on_shutdown.append(end_streams)
    return app


def _by_path(rows: Iterable[Address]) -> dict[str, list[Address]]:
    """The rows of each path, in the order in which the paths are tried."""
    found: dict[str, list[Address]] = {}
    for row in rows:
        found.setdefault(row.path, []).append(row)
    return found
