"""The aiohttp applications, built from the areas of addresses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import orjson
from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.first_use import import_blocking, import_in_thread
from gateway.core.paths import CONSOLE, OPERATOR_API
from gateway.http import answers, bodies
from gateway.http.address import ApiAddress
from gateway.http.endpoint import Handler, build_endpoint, build_unguarded_endpoint
from gateway.operations.installation.status import (
    DOCUMENT,
    FOR_METRICS,
    FOR_OPERATORS,
    NOWHERE,
    ON_EVERY_LISTENER,
)
from gateway.operations.requests.address import ALL_ROWS, OPENED, ROWS_AT, OperatorApiAddress
from gateway.operations.requests.admission import demo_endpoint, operator_endpoint
from gateway.operations.requests.requests import answer_errors_as_json
from gateway.operations.services import AllServices, OperatorServices
from gateway.people.authentication.bearer import KEPT_UNDER
from gateway.service.addresses.areas import (
    DEMO,
    DEMO_AREAS,
    FOR_SENDERS,
    NOT_IN_DEMO,
    OF_AN_AGENT,
    OPERATOR_AREAS,
    AddressArea,
    AddressAreaResource,
    AddressAreaRoutes,
    find_get_addresses_by_path,
    operator_addresses,
    sender_addresses,
)
from spool.clock import Clock

_PARAMETER = re.compile(r"{(\w+)}")
# this module is imported late, because it imports all areas, which takes half a second of CPU time
_TABLE = "gateway.service.addresses.table"


def _page_handler(name: str) -> Handler:
    async def send_page(request: web.Request) -> web.StreamResponse:
        await import_in_thread("gateway.console.pages")
        from gateway.console import pages

        response: web.StreamResponse = await getattr(pages, name)(request)
        return response

    return send_page


# Address of the console page and of its files. They are for browsers and are not part of the API.
CONSOLE_PAGES: Mapping[str, Handler] = {
    CONSOLE: _page_handler("redirect_to_slash"),
    CONSOLE + "/": _page_handler("serve_index"),
    CONSOLE + "/demo/": _page_handler("serve_demo_index"),
    CONSOLE + "/files/{version}/{path:.*}": _page_handler("serve_file"),
}


def build_application(services: AllServices, *, for_senders: bool, for_operators: bool) -> web.Application:
    """Build the application of one listener: the addresses for senders, those for operators, or both."""
    app = web.Application()

    def add_route(path: str, handler: Handler) -> None:
        # The route accepts all methods, because endpoints answer 405 in their own format.
        app.router.add_route("*", path, handler, expect_handler=bodies.delay_http_100_continue)

    if for_senders:
        metrics = services.receivers.metrics
        is_agent = services.receivers.access.local is not None
        for area in (*FOR_SENDERS, *OF_AN_AGENT) if is_agent else FOR_SENDERS:
            for name in area.endpoints:
                metrics.start_endpoint_series_at_zero(name, 200)
            _add_area(app, area, partial(_add_for_senders, area, lambda rows: build_endpoint(rows, services)))
        if services.receivers.cors:
            app.on_response_prepare.append(services.receivers.cors.on_prepare)
    for row in ON_EVERY_LISTENER:
        add_route(row.path, build_unguarded_endpoint(row, services))
    if for_operators:
        version = services.operators.installation.version
        make_document: Callable[[], bytes] = cache(partial(_openapi_document, version))
        app[DOCUMENT] = make_document
        for row in FOR_OPERATORS:
            add_route(row.path, build_unguarded_endpoint(row, services))
        app.add_subapp(OPERATOR_API, operator_application(services.operators))
        for path, handler in CONSOLE_PAGES.items():
            app.router.add_get(path, handler)
    add_route(NOWHERE.path, build_endpoint([NOWHERE], services))
    return app


def metrics_application(services: AllServices) -> web.Application:
    """Build the application of a listener that serves only metrics and health."""
    app = web.Application()
    for row in (*ON_EVERY_LISTENER, *FOR_METRICS):
        app.router.add_route(
            "*",
            row.path,
            build_unguarded_endpoint(row, services),
            expect_handler=bodies.delay_http_100_continue,
        )
    app.router.add_route(
        "*", NOWHERE.path, build_endpoint([NOWHERE], services), expect_handler=bodies.delay_http_100_continue
    )
    return app


def refusing_application(error: Refusal, clock: Clock, *, shown_reason: str | None) -> web.Application:
    """Build the application that answers every address with `error` until the server is ready."""
    app = web.Application()

    async def answer_live(_: web.Request) -> web.Response:
        return web.Response()

    async def answer_not_ready(_: web.Request) -> web.Response:
        if shown_reason is None:
            return web.Response(status=503)
        return answers.json_response({"ready": False, "reasons": [shown_reason]}, status=503)

    app.router.add_route("*", "/livez", answer_live)
    app.router.add_route("*", "/readyz", answer_not_ready)
    for area in FOR_SENDERS:
        _add_area(
            app, area, partial(_add_for_senders, area, lambda rows: _refusing_handler(rows[0], error, clock))
        )
    app.router.add_route(
        "*",
        NOWHERE.path,
        _refusing_handler(NOWHERE, error, clock),
        expect_handler=bodies.delay_http_100_continue,
    )
    return app


def _refusing_handler(served_address: ApiAddress, error: Refusal, clock: Clock) -> Handler:
    async def refuse_request(request: web.Request) -> web.Response:
        return served_address.error_form(request, error, clock.now())

    return refuse_request


def operator_application(services: OperatorServices) -> web.Application:
    """
    Build an application of the operator API, to be mounted under OPERATOR_API.

    The HTTP listener and the operator socket mount one application each, with the same services.
    """
    app = web.Application(middlewares=[answer_errors_as_json])
    app[OPENED] = _operations_by_scope
    app[ALL_ROWS] = _all_operator_rows
    app[ROWS_AT] = find_get_addresses_by_path
    for area in OPERATOR_AREAS:
        _add_area(app, area, partial(_add_for_operators, area, services))

    for area in DEMO_AREAS:
        paths = [DEMO + path for path in area.paths if path not in NOT_IN_DEMO]
        of_demo = replace(area, paths=paths)
        _add_area(app, of_demo, partial(_add_for_demo, area, services))

    async def end_event_streams(_: web.Application) -> None:
        services.installation.event_streams.end_all()

    app.on_shutdown.append(end_event_streams)
    return app


def _add_area(app: web.Application, area: AddressArea, add: Callable[[web.UrlDispatcher], None]) -> None:
    routes = AddressAreaRoutes(area, add)
    for path in area.paths:
        app.router.register_resource(AddressAreaResource(path, routes))


def _add_for_senders(
    area: AddressArea, handler_of: Callable[[Sequence[ApiAddress]], Handler], router: web.UrlDispatcher
) -> None:
    for path, rows in _group_by_path(sender_addresses(area)).items():
        handler = handler_of(rows)
        # Senders join a base address and a path, so a slash may close the path. It comes first, because a pattern
        # of the path would include the slash.
        paths = (f"{path}/", path) if rows[0].scope in KEPT_UNDER else (path,)
        for accepted_path in paths:
            # all methods, because endpoints answer 405 in their own format
            router.add_route("*", accepted_path, handler, expect_handler=bodies.delay_http_100_continue)


def _add_for_operators(area: AddressArea, services: OperatorServices, router: web.UrlDispatcher) -> None:
    for row in operator_addresses(area):
        (method,) = row.methods
        # A name in a path may contain any character, including the braces that aiohttp's own pattern rejects.
        router.add_route(method, _PARAMETER.sub(r"{\1:[^/]+}", row.path), operator_endpoint(row, services))


def _add_for_demo(area: AddressArea, services: OperatorServices, router: web.UrlDispatcher) -> None:
    for row in operator_addresses(area):
        path = row.path.removeprefix(OPERATOR_API)
        if path not in NOT_IN_DEMO:
            (method,) = row.methods
            path = OPERATOR_API + DEMO + _PARAMETER.sub(r"{\1:[^/]+}", path)
            router.add_route(method, path, demo_endpoint(row, services))


def _openapi_document(version: str) -> bytes:
    import_blocking(_TABLE)
    import_blocking("gateway.http.openapi")
    from gateway.http.openapi import openapi_document
    from gateway.service.addresses.table import ADDRESSES

    return orjson.dumps(openapi_document(ADDRESSES, version=version))


async def _operations_by_scope() -> Mapping[str, tuple[str, ...]]:
    await import_in_thread(_TABLE)
    await import_in_thread("gateway.operations.people.scopes")
    from gateway.operations.people.scopes import list_operations_by_scope
    from gateway.service.addresses.table import FOR_SENDERS

    return list_operations_by_scope(FOR_SENDERS)


async def _all_operator_rows() -> Sequence[OperatorApiAddress]:
    await import_in_thread(_TABLE)
    from gateway.service.addresses.table import OPERATOR_ADDRESSES

    return OPERATOR_ADDRESSES


def _group_by_path(rows: Iterable[ApiAddress]) -> dict[str, list[ApiAddress]]:
    rows_by_path: dict[str, list[ApiAddress]] = {}
    for row in rows:
        rows_by_path.setdefault(row.path, []).append(row)
    return rows_by_path
