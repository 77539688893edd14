"""
OpAMP over plain HTTP and over WebSocket, at one address.

A message over WebSocket is admitted, counted and given its turn like a request.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from aiohttp import web

from gateway.core.errors import BadPayload, Refusal, not_found_refusal
from gateway.core.schemas import BYTES
from gateway.devices.opamp.instances import InstanceSender, OpampInstances, error_answer, require_not_revoked
from gateway.devices.opamp.messages import decode_agent_message
from gateway.http import answers
from gateway.http.address import (
    WRITE,
    ApiAddress,
    BodyLimit,
    addresses_of_handler,
    authorization_header,
    bearer_token,
)
from gateway.http.admission import find_credential
from gateway.http.answers import PROTOBUF
from gateway.http.error_table import refusal_for_error
from gateway.http.listening.listener import fair_turn_party_of_address, wait_for_turn
from gateway.http.listening.websocket import GOING_AWAY, POLICY, SwitchingProtocols, WebSocket, handshake_key
from gateway.http.requests import Result
from gateway.operations.holders.receivers import ReceiverServices, TopicServices
from gateway.operations.installation.nearest_address import advice_for_path
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.services import AllServices
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import Device
from spool.registry.enrolment_tokens import PREFIX
from spool.registry.scopes import ENROLL, HEARTBEAT

INSTANCE_UID = "OpAMP-Instance-UID"
INSTANCES = 64  # maximum number of instances of one connection
FIRST_MESSAGE_S = 30.0  # seconds within which a connection must name an instance
LOOK_S = 15.0  # seconds; the precision of the time of an open connection's last report
_ENDPOINT = "opamp"
_SETTING = "devices.max_opamp_connections"

_log = logging.getLogger(__name__)


def _check_opamp_enabled(request: web.Request, services: AllServices) -> None:
    if not services.topics.devices.settings.opamp:
        raise not_found_refusal(advice_for_path(request.path))


async def _admit_token(request: web.Request, services: AllServices) -> AuthenticatedKey | None:
    """
    Admit an enrolment token, which has no scope for heartbeats, if the device can exchange it here for its
    own key. Return None otherwise, and for other keys.
    """
    is_token = (bearer_token(request) or "").startswith(PREFIX)
    if not is_token or not services.topics.devices.settings.opamp_keys:
        return None
    key = authorization_header(request)
    return await services.receivers.access.admit_with_current_keys(key, ENROLL, address=request.remote or "")


def _check_protobuf(request: web.Request) -> None:
    if request.content_type != PROTOBUF:
        raise Refusal(415, "unsupported_media_type", f"Send the body as {PROTOBUF}.")


@ApiAddress(
    methods=("POST",),
    path="/v1/opamp",
    summary="Report the state of an OpAMP agent, such as a collector",
    endpoint=_ENDPOINT,
    scope=HEARTBEAT,
    guard=_check_opamp_enabled,
    people=_admit_token,
    check=_check_protobuf,
    takes={PROTOBUF: BYTES},
    limit=BodyLimit(
        "devices.max_body_bytes", lambda services: services.topics.devices.settings.max_body_bytes
    ),
    gives={200: {PROTOBUF: BYTES}},
    refusals=(*WRITE, 404, 409, 410),
)
async def report_to_opamp(request: KeyRequest[TopicServices, bytes]) -> Result:
    message = decode_agent_message(request.body)
    uid = _stated_instance_uid(request.http)
    if uid is not None and uid != message.instance_uid:
        raise BadPayload(f"{INSTANCE_UID} differs from instance_uid.")
    sender = InstanceSender(
        bearer=request.bearer, address=request.http.remote or "", url=_client_url(request.http, "http")
    )
    answer = await request.services.opamp().answer_message(message, sender)
    body = answer.SerializeToString()
    return answers.bytes_response(body, content_type=PROTOBUF, headers=answers.UNCACHED)


@ApiAddress(
    methods=("GET",),
    path="/v1/opamp",
    summary="Open a WebSocket on which OpAMP agents report their state",
    endpoint=_ENDPOINT,
    scope=HEARTBEAT,
    guard=_check_opamp_enabled,
    people=_admit_token,
    gives={101: {}},
    refusals=(400, 401, 403, 404, 410, 429, 500, 503),
)
async def open_opamp(request: KeyRequest[TopicServices, None]) -> Result:
    key = handshake_key(request.http)
    instances = request.services.opamp()
    uid = _stated_instance_uid(request.http)
    if uid is not None:
        require_not_revoked(instances, uid)
    owner = request.bearer.name
    settings = instances.devices.settings
    websockets = request.receivers.websockets
    websockets.check_has_room(owner, settings.max_opamp_connections, _SETTING)
    socket = WebSocket(
        websockets,
        OpampConversation(request, instances),
        owner=owner,
        inflight=request.receivers.inflight,
        max_bytes=settings.max_body_bytes,
        max_control_frames=settings.max_opamp_control_frames,
    )
    return SwitchingProtocols(key, socket)


def _stated_instance_uid(request: web.Request) -> bytes | None:
    text = request.headers.get(INSTANCE_UID)
    if text is None:
        return None
    try:
        return UUID(text).bytes
    except ValueError:
        raise BadPayload(f"{INSTANCE_UID} is not a UUID.") from None


def _client_url(request: web.Request, scheme: str) -> str:
    return f"{scheme}{'s' if request.scheme == 'https' else ''}://{request.host}{request.path}"


class OpampConversation:
    """The OpAMP agents behind one WebSocket, and the key under which they send."""

    __slots__ = (
        "_address", "_bearer", "_code", "_credential", "_instances", "_known", "_look_at", "_opened_at", "_receivers",
        "_row", "_scope", "_uids", "_url", "_version",
    )  # fmt: skip

    def __init__(self, request: KeyRequest[TopicServices, None], instances: OpampInstances) -> None:
        self._receivers: ReceiverServices = request.receivers
        self._instances = instances
        self._credential = find_credential(_ROW, request.http, request.receivers)
        self._bearer: AuthenticatedKey = request.bearer
        self._scope = HEARTBEAT if request.bearer.token is None else ENROLL
        self._known = request.receivers.access.known_key(self._credential)
        self._row: Device | None = None  # row of the device's key, as it was when the key was checked
        self._address = request.http.remote or ""
        self._url = _client_url(request.http, "ws")
        self._uids: tuple[bytes, ...] = ()
        self._code: int | None = None  # WebSocket close code, once the connection must end
        self._opened_at = request.receivers.clock.monotonic()
        self._version = -1  # version of the device table when the instances were last compared with it
        self._look_at = 0.0  # time at which the instances are checked even if the table did not change

    async def answer_message(self, message: bytes) -> bytes:
        receivers = self._receivers
        with receivers.turns.new_request(fair_turn_party_of_address(self._address)) as work:
            answer: bytes = await work.run_and_charge_time_to_party(self._answer_message(message))
            return answer

    async def _answer_message(self, message: bytes) -> bytes:
        receivers = self._receivers
        uid, status = b"", 200
        try:
            with receivers.in_hand, receivers.inflight.new_share(self._bearer.name) as share:
                bearer = receivers.access.admit(self._credential, self._scope, address=self._address)
                await wait_for_turn(bearer.fair_turn_party_name)
                receivers.access.charge_request(bearer, requests=1, bytes=len(message))
                share.reserve_bytes(len(message))
                decoded = decode_agent_message(_strip_header(message))
                uid = decoded.instance_uid
                self._add_instance(uid)
                sender = InstanceSender(bearer=bearer, address=self._address, url=self._url, connection=self)
                answer = await self._instances.answer_message(decoded, sender)
                if decoded.HasField("agent_disconnect"):
                    self._remove_instance(uid)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a message
            refusal = refusal_for_error(error, endpoint=_ENDPOINT)
            status = refusal.status
            self._log_refusal(refusal)
            if not uid:  # without an instance id, the peer does not speak OpAMP
                self._code = POLICY
            elif (
                status == 410
                # The connection of a removed instance ends after a while, so that its client does not
                # reconnect at once.
            ):
                self._remove_instance(uid)
            answer = error_answer(uid, refusal)
        receivers.metrics.count_request(_ENDPOINT, status)
        encoded: bytes = answer.SerializeToString()
        return b"\0" + encoded

    def recheck_and_find_close_code(self) -> int | None:
        if self._code is not None:
            return self._code
        if not self._instances.devices.settings.opamp:
            return GOING_AWAY
        if not self._recheck_whether_key_may_send():
            return POLICY
        now, version = self._receivers.clock.monotonic(), self._instances.devices.table.version
        if not self._uids:
            return POLICY if now > self._opened_at + FIRST_MESSAGE_S else None
        if version == self._version and now < self._look_at:
            return None
        self._version, self._look_at = version, now + LOOK_S
        for uid in self._uids:
            if self._instances.is_revoked(uid):
                self._remove_instance(uid)
            else:
                self._instances.note_open_connection(uid, self._bearer)
        return None if self._uids else POLICY

    def on_closed(self) -> None:
        for uid in self._uids:
            self._remove_instance(uid)

    def _add_instance(self, instance_uid: bytes) -> None:
        if instance_uid in self._uids:
            return
        if len(self._uids) >= INSTANCES:
            message = f"A connection may have at most {INSTANCES} instances. Open another connection."
            raise Refusal(400, "too_many_instances", message)
        self._uids += (instance_uid,)

    def _remove_instance(self, instance_uid: bytes) -> None:
        self._uids = tuple(other for other in self._uids if other != instance_uid)
        self._instances.note_closed_connection(instance_uid, self)

    def _recheck_whether_key_may_send(self) -> bool:
        """Return whether the key may still send. If it cannot be checked now, it may."""
        access = self._receivers.access
        if self._bearer.device is not None:
            row = self._instances.devices.table.find(self._bearer.device)
            if row is self._row:
                return True
            self._row = row
        elif self._known is not None and access.is_still_valid(self._known):
            return True
        try:
            self._bearer = access.admit(self._credential, self._scope, address=self._address)
        except Refusal as refusal:
            return refusal.status == 503
        self._known = access.known_key(self._credential)
        return True

    def _log_refusal(self, refusal: Refusal) -> None:
        self._receivers.metrics.count_refusal(refusal.type)
        extra = {"action": "request_refused", "endpoint": _ENDPOINT, "status": refusal.status}
        _log.log(
            logging.ERROR if refusal.status == 500 else logging.WARNING,
            "refused an OpAMP message",
            extra={**extra, "type": refusal.type, "address": self._address},
        )


def _strip_header(message: bytes) -> bytes:
    """
    Return the protobuf of a WebSocket message, which begins with a varint. Only the header 0 is defined.
    """
    for at, byte in enumerate(message[:10]):
        if byte & 0x7F:
            break
        if not byte:
            return message[at + 1 :]
    raise BadPayload("The header of the message is not 0.")


[_ROW] = addresses_of_handler(open_opamp)
