"""
OTLP over gRPC, with the same decoding, keys, limits and receipts as over HTTP.

There are no generated stubs. A handler gets the message as bytes, and the response has the same bytes as over
HTTP. In gRPC, a unary call is sent as a stream of one message. Handlers receive it as a stream, so the key is
checked before the message is received.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import grpc

from gateway.configuration.values import split_address
from gateway.core.errors import BadPayload, Refusal, error_reason
from gateway.core.first_use import import_in_thread
from gateway.http import answers
from gateway.http.admission import DEVICE_ID, check_single_headers, find_key_header, with_device_name
from gateway.http.bodies import expire_timeout, inflate_message
from gateway.http.error_table import refusal_for_error
from gateway.http.inflight_bytes import RequestByteReservation
from gateway.http.listening.forwarded import FORWARDED_FOR
from gateway.http.listening.listener import fair_turn_party_of_address, fair_turn_party_of_key, wait_for_turn
from gateway.http.listening.tls import Certificate
from gateway.intake.start_times import describe_misdated_items
from gateway.operations.requests.receiver_services import ReceiverServices
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.registry.scopes import INGEST

if TYPE_CHECKING:
    from gateway.normalise.otlp import Signal

_log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Messages: TypeAlias = AsyncIterator[bytes]
Export: TypeAlias = "Callable[[Messages, Context], Awaitable[bytes]]"
MessageHandler: TypeAlias = (
    "Callable[[bytes, AuthenticatedKey, RequestByteReservation, Context], Awaitable[bytes]]"
)

RECEIVE_S = 120.0  # seconds within which a message must arrive after its call has a slot
LOOKAHEAD_BYTES = 64 * 1024

_CODES = {code.value[0]: code for code in grpc.StatusCode}
RECEIPT = answers.RECEIPT.lower()


class GrpcServer:
    """The server for all OTLP services on one port. Call `start` and `stop` once each."""

    def __init__(
        self, exports: Mapping[str, Export], *, max_bytes: int, max_connections: int, reuse_port: bool = False
    ) -> None:
        """
        Prepare the server. `exports` are the handlers by service name. `export_handlers`, `waiting_handlers`
        and `refusing_handlers` return such handlers.

        `reuse_port` means that another process of this user may listen on the same address if it sets
        `reuse_port` as well.
        """
        self._exports = exports
        self._reuse_port = reuse_port
        self._options = _server_options(max_bytes, max_connections, reuse_port)
        self._server: grpc.aio.Server | None = None
        self.address = ""

    async def start(self, address: str, certificate: Certificate | None) -> None:
        """Start listening. Raises OSError if the address is in use or not on this machine."""
        try:
            check_free(address, reuse_port=self._reuse_port)
        except OSError as error:
            raise OSError(f"cannot listen on {address} for gRPC: {error_reason(error)}") from error
        self._server = server = grpc.aio.server(options=self._options)
        server.add_generic_rpc_handlers(
            [_service_handler(name, export) for name, export in self._exports.items()]
        )
        try:
            if certificate is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, _server_credentials(certificate))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address} for gRPC: another program took it first") from error
        await server.start()
        self.address = f"{address.rpartition(':')[0]}:{port}"

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls at once. Running calls may finish."""
        if self._server is not None:
            await self._server.stop(grace_s)


def check_free(address: str, *, reuse_port: bool) -> None:
    """
    Raise OSError if the process can listen on none of the addresses behind a host name.

    gRPC itself does not report the reason, and sometimes aborts the process when it ends after such an error.
    """
    host, number = split_address(address)
    errors = []
    for family, kind, protocol, _, where in socket.getaddrinfo(host, number, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                probe.bind(where)
            except OSError as error:
                errors.append(error)
            else:
                return
    raise errors[0]


def _server_options(max_bytes: int, max_connections: int, reuse_port: bool) -> list[tuple[str, int]]:
    return [
        # option: connections above this limit are closed at once
        ("grpc.max_allowed_incoming_connections", max_connections),
        # Limit in bytes of a message as sent. A larger message gets RESOURCE_EXHAUSTED without RetryInfo.
        ("grpc.max_receive_message_length", max_bytes),
        # options that switch off decompression, because gRPC would inflate bytes before Tollhouse can check
        # its limit
        ("grpc.per_message_decompression", 0),
        # This option and the next limit the bytes that are buffered for a call that does not receive yet.
        # Without them, gRPC may buffer megabytes for each call.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
        # Without this option, gRPC shares a port that is in use, so a second server would silently get half
        # of the calls.
        ("grpc.so_reuseport", int(reuse_port)),
        ("grpc.max_concurrent_streams", 64),
        ("grpc.keepalive_time_ms", 120_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 5),
        ("grpc.max_connection_idle_ms", 3_600_000),
    ]


def export_handlers(
    services: ReceiverServices, table: Mapping[str, Signal | None], address: str
) -> Mapping[str, Export]:
    """
    Return the handlers of the services in a table, each with its signal, for the server at an address. A service
    without a signal is accepted, but nothing is stored.
    """
    return {
        name: _wrap_endpoint(
            f"grpc/{signal}", _make_export_storing_handler(signal, services), services, address
        )
        if signal
        else _wrap_endpoint("grpc/profiles", _answer_profiles, services, address)
        for name, signal in table.items()
    }


def waiting_handlers(
    table: Mapping[str, object], ready: Callable[[], Awaitable[Mapping[str, Export]]]
) -> Mapping[str, Export]:
    """Return handlers whose calls wait until the real handlers are ready."""

    def make_handler_when_ready(name: str) -> Export:
        async def wait_and_handle_export(messages: Messages, context: Context) -> bytes:
            return await (await ready())[name](messages, context)

        return wait_and_handle_export

    return {name: make_handler_when_ready(name) for name in table}


def refusing_handlers(error: Refusal, table: Mapping[str, object]) -> Mapping[str, Export]:
    """Return handlers that refuse every call before its message is read."""

    async def abort_with_refusal(_: Messages, context: Context) -> bytes:
        return await _abort_call(context, error)

    return dict.fromkeys(table, abort_with_refusal)


def _service_handler(name: str, export: Export) -> grpc.GenericRpcHandler:
    method = grpc.stream_unary_rpc_method_handler(export)  # type: ignore[no-untyped-call]
    methods = {"Export": method}
    handler: grpc.GenericRpcHandler = grpc.method_handlers_generic_handler(name, methods)  # type: ignore[no-untyped-call]
    return handler


def _make_export_storing_handler(signal: Signal, services: ReceiverServices) -> MessageHandler:
    async def store_export(
        body: bytes, bearer: AuthenticatedKey, reservation: RequestByteReservation, context: Context
    ) -> bytes:
        await import_in_thread("gateway.operations.receivers.otlp_http")
        from gateway.operations.receivers import otlp_http

        outcome = await otlp_http.read_export(
            signal, body, json=False, receivers=services, reservation=reservation
        )
        del body  # release the memory of the body, because the commit may take a while
        outcome.set_sending_program(_metadata_value(context, "user-agent"))
        receipt = await services.intake.store_outcome(outcome, bearer)
        otlp_http.refuse_when_all_malformed(outcome)
        context.set_trailing_metadata(((RECEIPT, answers.receipt_line(receipt)),))
        warnings = [*outcome.warnings, *describe_misdated_items(outcome.misdated)]
        return answers.otlp_success(outcome.rejects, warnings, member=otlp_http.MEMBERS[signal], json=False)

    return store_export


async def _answer_profiles(
    body: bytes, bearer: AuthenticatedKey, reservation: RequestByteReservation, context: Context
) -> bytes:
    await import_in_thread("gateway.operations.receivers.otlp_http")
    from gateway.operations.receivers import otlp_http

    return otlp_http.answer_to_profiles(body, json=False)


async def _admit_call(services: ReceiverServices, context: Context, server: str) -> AuthenticatedKey:
    metadata = context.invocation_metadata() or ()
    check_single_headers(metadata)
    key = find_key_header(metadata, services.access.key_headers)
    if key is None:
        key = _metadata_value(context, "authorization")
    address = _sender_address(services, context)
    bearer = await services.access.admit_with_current_keys(key, INGEST, address=address)
    services.access.charge_request(bearer, requests=1, bytes=0)
    if bearer is services.access.local:
        bearer = services.access.with_user_of_connection(bearer, context.peer(), server)
    return with_device_name(bearer, _metadata_value(context, DEVICE_ID.lower()))


async def _receive_message(
    services: ReceiverServices,
    reservation: RequestByteReservation,
    bearer: AuthenticatedKey,
    context: Context,
) -> bytes:
    """
    Return the message of a call. Its size counts for its key and for the bytes in flight. Raises BadPayload
    if there is no message.

    The message is read from the context, because the iterator of messages would keep it in memory
    until garbage collection.
    """
    try:
        async with services.receiving.hold_slot(bearer.name), asyncio.timeout(RECEIVE_S) as limit:
            with reservation.allow_cutoff_during_upload(partial(expire_timeout, limit)):
                message = await context.read()
    except TimeoutError:
        reservation.raise_if_upload_was_cut_off()
        message = grpc.aio.EOF
    if not isinstance(message, bytes):
        raise BadPayload("The call contained no message.")
    body = await inflate_message(message, reservation, max_bytes=services.max_body_bytes)
    services.access.charge_request(bearer, requests=0, bytes=len(body))
    return body


def _wrap_endpoint(
    name: str, handle_message: MessageHandler, services: ReceiverServices, server: str
) -> Export:
    services.metrics.start_endpoint_series_at_zero(name, grpc.StatusCode.OK.name)

    async def admit_and_take(context: Context) -> bytes:
        try:
            with services.in_hand:
                bearer = await _admit_call(services, context, server)
                await wait_for_turn(fair_turn_party_of_key(bearer.name))
                with services.inflight.new_share(bearer.name) as share:
                    answer = await handle_message(
                        await _receive_message(services, share, bearer, context), bearer, share, context
                    )
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the request boundary
            refusal = _drop_traceback(refusal_for_error(error, endpoint=name))
            code = grpc_code(refusal)
            services.metrics.count_request(name, code.name)
            services.metrics.count_refusal(refusal.type)
            extra = {"action": "request_refused", "endpoint": name, "status": code.name, "type": refusal.type}
            _log.warning("refused a request", extra={**extra, "address": _sender_address(services, context)})
        else:
            services.metrics.count_request(name, grpc.StatusCode.OK.name)
            return answer
        await wait_for_turn()
        # Call abort outside the except block. It raises an exception, which would otherwise carry the error's
        # text as its context.
        return await _abort_call(context, refusal)

    async def handle_export_in_turn(_: Messages, context: Context) -> bytes:
        with services.turns.new_request(
            fair_turn_party_of_address(_sender_address(services, context))
        ) as work:
            return await work.run_and_charge_time_to_party(admit_and_take(context))

    return handle_export_in_turn


def _drop_traceback(refusal: Refusal) -> Refusal:
    """Return the refusal without its traceback, because the frames in it would keep the message in memory."""
    refusal.__traceback__ = refusal.__cause__ = refusal.__context__ = None
    return refusal


async def _abort_call(context: Context, refusal: Refusal) -> bytes:
    code = grpc_code(refusal)
    details = answers.status_details(refusal, code.value[0])
    await context.abort(code, refusal.message, (("grpc-status-details-bin", details),))
    raise AssertionError("unreachable: context.abort always raises")


def grpc_code(refusal: Refusal) -> grpc.StatusCode:
    """Return the gRPC code for a refusal. The HTTP status decides, unless only gRPC has a more exact code."""
    match refusal.status:
        case 413:
            return grpc.StatusCode.RESOURCE_EXHAUSTED
        case 500:
            return grpc.StatusCode.INTERNAL
    return _CODES[answers.grpc_code_for_status(refusal.status)]


def _metadata_value(context: Context, name: str) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return value if isinstance(value, str) else None
    return None


def _sender_address(services: ReceiverServices, context: Context) -> str:
    """
    Return the sender's address without the port, from a form such as `ipv6:%5B::1%5D:50312`, or the one that
    a trusted proxy reports.
    """
    family, _, rest = context.peer().partition(":")
    peer = unquote(rest).rpartition(":")[0].strip("[]") if family in ("ipv4", "ipv6") else family
    origin = services.proxies.origin(peer, _metadata_value(context, FORWARDED_FOR.lower()) or "")
    return peer if origin is None or origin.address is None else origin.address


def _server_credentials(certificate: Certificate) -> Any:
    """
    Return credentials that read the certificate at every connection, so that a renewed one is used at once.
    """

    def current_tls_configuration() -> Any:
        text = certificate.text
        return grpc.ssl_server_certificate_configuration(  # type: ignore[no-untyped-call]
            [(text.key, text.cert)], text.client_ca
        )

    needs_client = certificate.text.client_ca is not None
    return grpc.dynamic_ssl_server_credentials(  # type: ignore[no-untyped-call]
        current_tls_configuration(), current_tls_configuration, require_client_authentication=needs_client
    )
