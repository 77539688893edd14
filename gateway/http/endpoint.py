"""
The request boundary: one aiohttp handler from a path's rows.

Order of checks: method (405), key and scope (401, 403, 429), content coding and media type (415), size (413),
bytes in flight (503), body (400). Without a valid key, the body is not read, and the answer says nothing
about it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from aiohttp import web

from gateway.core.errors import BadPayload, Refusal
from gateway.http import answers, bodies
from gateway.http.address import WHOLE_BYTES, ApiAddress
from gateway.http.admission import NOBODY, admit_request, check_single_headers, find_credential, recheck_key
from gateway.http.error_table import (
    delay_refusal_until_durable,
    refusal_for_error,
    statuses_to_delay_until_durable,
)
from gateway.http.handler_services import AdmissionServices
from gateway.http.inflight_bytes import RequestByteReservation
from gateway.http.listening.listener import HttpServerConnection, wait_for_turn
from gateway.http.requests import AdmittedRequest, Result, check_parameters, services_type_of_handler
from gateway.http.turns import QueryTurnScheduler
from gateway.http.viewers import API, MCP, Viewer, ViewingRegistry, record_viewings, viewing_reason
from gateway.normalise.payload.first_bytes import describe_foreign_encoding
from gateway.people.authentication.bearer import KEPT_UNDER, AuthenticatedKey
from spool.registry.scopes import AI_HUB

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = logging.getLogger(__name__)

PATH_LOGGED = ("nowhere", "ai-telemetry")  # endpoints where the log line of a 404 has the path
MAX_LOGGED_PATH = 120  # characters of a path in a log line
# A segment that may be a key or a name is not logged: one that is long, has several digits, or begins like a key.
_LOGGABLE_SEGMENT = re.compile(r"(?!th[de]?_|sk-)[A-Za-z._:-]{0,40}\d?[A-Za-z._:-]{0,24}")


class AnswerServices(Protocol):
    questions: QueryTurnScheduler

    @property
    def registry(self) -> ViewingRegistry | None: ...


class RunningServices(Protocol):
    """The services of a started Tollhouse."""

    @property
    def receivers(self) -> AdmissionServices: ...

    @property
    def shared(self) -> AnswerServices: ...

    def services_of_type(self, kind: type[Any]) -> Any:
        """Return the service of a type. Raises LookupError."""

    def key_request(
        self,
        request: web.Request,
        holder: object,
        bearer: AuthenticatedKey,
        reservation: RequestByteReservation,
    ) -> AdmittedRequest[Any]:
        """Return a request admitted for the key `bearer`, before its body is read."""


def build_endpoint(rows: Sequence[ApiAddress], services: RunningServices) -> Handler:
    """Return the handler of one path. For every request, it answers, counts and logs the outcome."""
    name = rows[0].endpoint
    error_form = rows[0].error_form
    guard = rows[0].guard
    row_of = {method: row for row in rows for method in row.methods}
    holder_of = {row.name: services.services_of_type(services_type_of_handler(row.handler)) for row in rows}
    # in the Allow header, HEAD comes last
    allowed = ", ".join(sorted(row_of, key="HEAD".__eq__))
    receivers = services.receivers
    count = receivers.metrics.count_request
    receivers.metrics.start_endpoint_series_at_zero(name, 200)

    async def handle_request(
        request: web.Request, admitted_head: _AdmittedHead | None = None
    ) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            with receivers.in_hand:
                if admitted_head is not None:
                    request._match_info = admitted_head.match
                    receivers.access.charge_request(admitted_head.bearer, requests=1, bytes=0)
                    response = await _serve_admitted_request(
                        admitted_head.row,
                        request,
                        services,
                        holder_of[admitted_head.row.name],
                        admitted_head.bearer,
                    )
                else:
                    response = await check_and_serve(request)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the request boundary
            response = log_and_refuse(request, refusal_for_error(error, endpoint=name))
        count(name, response.status)
        if receivers.in_hand.leaving:
            response.force_close()
        return response

    async def check_and_serve(request: web.Request) -> web.StreamResponse:
        check_single_headers(request.headers.items())
        if guard is not None:
            guard(request, services)
        row = row_of.get(request.method)
        if row is None:
            return answer_other_method(request)
        bearer = await _admit_before_body(row, request, services)
        response = await _serve_admitted_request(row, request, services, holder_of[row.name], bearer)
        if guard is None and response.status < 300:
            remember_accepted_request_head(row, request, bearer)
        return response

    def remember_accepted_request_head(
        served_address: ApiAddress, request: web.Request, bearer: AuthenticatedKey
    ) -> None:
        """
        Remember the head of an accepted request. Further telemetry requests with the same head skip the
        checks, as long as their key is admitted.
        """
        if (
            served_address.scope not in KEPT_UNDER
            or bearer.number is None
            or not isinstance(request.protocol, HttpServerConnection)
        ):
            return
        is_valid = receivers.access.find_validity_check(find_credential(served_address, request, receivers))
        if is_valid is not None:
            handle = partial(
                handle_request, admitted_head=_AdmittedHead(served_address, request.match_info, bearer)
            )
            request.protocol.remember_head(request, is_valid, handle)

    def answer_other_method(request: web.Request) -> web.Response:
        preflight = receivers.cors.preflight_response(request, allowed)
        if preflight is not None:
            return preflight
        error = Refusal(405, "method_not_allowed", f"This address accepts only {allowed}.")
        response = log_and_refuse(request, error)
        response.headers["Allow"] = allowed
        return response

    def log_and_refuse(request: web.Request, error: Refusal) -> web.Response:
        receivers.metrics.count_refusal(error.type)
        extra = {
            "action": "request_refused",
            "endpoint": name,
            "status": error.status,
            "type": error.type,
            "address": request.remote,
        }
        if error.status == 404 and name in PATH_LOGGED:
            extra["path"] = loggable_path(request.path)
        level = logging.ERROR if error.status == 500 else logging.WARNING
        _log.log(level, "refused a request", extra=extra)
        return error_form(request, error, receivers.clock.now())

    return handle_request


def build_unguarded_endpoint(served_address: ApiAddress, services: RunningServices) -> Handler:
    """
    Return the handler of an address without a key. It also answers while Tollhouse stops, such as health.
    """

    holder = services.services_of_type(services_type_of_handler(served_address.handler))
    receivers = services.receivers

    async def handle_request(request: web.Request) -> web.StreamResponse:
        key_request = services.key_request(request, holder, NOBODY, receivers.inflight.new_share())
        try:
            check_single_headers(request.headers.items())
            return await answers.send_answer(
                request, await served_address.handler(key_request), status=served_address.status
            )
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the request boundary
            refusal = refusal_for_error(error, endpoint=served_address.name)
            return served_address.error_form(request, refusal, receivers.clock.now())

    return handle_request


def loggable_path(path: str) -> str:
    segments = (
        segment if _LOGGABLE_SEGMENT.fullmatch(segment) else "..."
        for segment in path[: 2 * MAX_LOGGED_PATH].split("/")
    )
    return "/".join(segments)[:MAX_LOGGED_PATH]


class _AdmittedHead(NamedTuple):
    """The results of the checks for a remembered request head, which are not repeated."""

    row: ApiAddress
    match: web.UrlMappingMatchInfo
    bearer: AuthenticatedKey


async def _admit_before_body(
    served_address: ApiAddress, request: web.Request, services: RunningServices
) -> AuthenticatedKey:
    receivers = services.receivers
    bearer = None if served_address.people is None else await served_address.people(request, services)
    if bearer is None:
        bearer = await admit_request(served_address, request, receivers)
    else:
        receivers.access.charge_request(bearer, requests=1, bytes=0)
    bodies.check_content_encoding(request, served_address.passes)
    if served_address.check is not None:
        served_address.check(request)
    if bearer is not NOBODY and isinstance(request.protocol, HttpServerConnection):
        receivers.connections.assign_key(request.protocol, bearer.name)
    if served_address.checks_query and served_address.lists is None:
        check_parameters(
            request, (*served_address.required, *served_address.optional), served_address.repeated
        )
    return bearer


async def _serve_admitted_request(
    served_address: ApiAddress,
    request: web.Request,
    services: RunningServices,
    holder: object,
    bearer: AuthenticatedKey,
) -> web.StreamResponse:
    receivers = services.receivers
    if bearer is not NOBODY:
        await wait_for_turn(bearer.fair_turn_party_name)
    with receivers.inflight.new_share(bearer.name) as share:
        admitted = services.key_request(request, holder, bearer, share)
        if served_address.body is not None:
            max_bytes, setting = _body_limit_and_setting_name(served_address, services)
            try:
                body = await bodies.read_body(
                    request, share, max_bytes=max_bytes, setting=setting, min_rate=receivers.min_upload_rate
                )
            except (Refusal, BadPayload):
                # a rejected body cost as much as an accepted one
                receivers.access.charge_refused_bytes(bearer, bytes=share.held)
                raise
            # For telemetry, it is enough that the key was valid at the begin of the request. For a change, the key
            # must still be valid.
            if served_address.body is not bytes:
                recheck_key(served_address, request, receivers)
            receivers.access.charge_request(bearer, requests=0, bytes=len(body))
            admitted.body = body if served_address.body is bytes else _decode_body(served_address, body)
            del body  # the handler decides how long it stays in memory
        if served_address.in_turn and served_address.needs_query_turn(admitted.body):
            work = partial(_call_handler, served_address, admitted, services, bearer)
            return await services.shared.questions.send_in_turn(
                bearer.fair_turn_party_name, request, work, status=served_address.status
            )
        answer = await _call_handler(served_address, admitted, services, bearer)
        if isinstance(answer, web.StreamResponse):
            return answer
        return await answers.send_answer(request, answer, status=served_address.status)


def _call_handler(
    served_address: ApiAddress,
    admitted: AdmittedRequest[Any],
    services: RunningServices,
    bearer: AuthenticatedKey,
) -> Awaitable[Result]:
    registry = services.shared.registry
    statuses = () if bearer is NOBODY else statuses_to_delay_until_durable(admitted.http.method)
    if bearer is NOBODY or served_address.scope in KEPT_UNDER:  # the address shows no figures
        return delay_refusal_until_durable(served_address.handler(admitted), registry, statuses=statuses)
    viewer = _make_viewer(served_address, admitted, services, bearer)
    return delay_refusal_until_durable(
        record_viewings(served_address.handler(admitted), viewer, registry), registry, statuses=statuses
    )


def _make_viewer(
    served_address: ApiAddress,
    admitted: AdmittedRequest[Any],
    services: RunningServices,
    bearer: AuthenticatedKey,
) -> Viewer:
    registry = services.shared.registry
    return Viewer(
        name=bearer.name if bearer.person is None else bearer.person.email,
        face=MCP if served_address.scope == AI_HUB else API,
        page=served_address.path,
        reason=viewing_reason(admitted.http),
        at=services.receivers.clock.now(),
        needs_reason=bearer.person is not None and registry is not None and registry.people.min_group > 0,
    )


def _body_limit_and_setting_name(served_address: ApiAddress, services: RunningServices) -> tuple[int, str]:
    if served_address.limit is not None:
        return served_address.limit.bytes(services), served_address.limit.setting
    if served_address.max_bytes is not None:
        return served_address.max_bytes, ""
    if served_address.body is not bytes:
        return WHOLE_BYTES, ""
    return services.receivers.max_body_bytes, bodies.MAX_BODY


def _decode_body(served_address: ApiAddress, body: bytes) -> object:
    if served_address.may_be_empty and not body:
        body = b"{}"
    try:
        return msgspec.json.decode(body, type=served_address.body)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        problem = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        problem = describe_foreign_encoding(body) or problem
        raise BadPayload(f"The body does not match the schema of this address: {problem}.") from None
