"""
Enrolment of this device with an enrolment key, then heartbeats and pings with the device's own key.

A ping costs the gateway less than a heartbeat, so heartbeats are only sent after changes and every 15
minutes. Of the program's work, only telemetry waits for the enrolment.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.answers import HttpAnswer
from exporters.http.client import HttpClient, reach_problem
from exporters.pace import Backoff
from exporters.secret_source import SecretSource
from exporters.service.paths import UpstreamPaths
from spool.loops import failure_reason, repeat

INTERVAL_S = 60.0
LONGEST_INTERVAL_S = 3600.0
REFUSED_S = 600.0
HEARTBEAT_S = 900.0  # seconds between heartbeats without a change
CHECK_S = 5.0  # seconds between checks for a change
GONE = 410

ENROLLED, PENDING, UNKNOWN = "enrolled", "pending", "unknown"

_NO_VERDICTS = b"null"

_log = logging.getLogger(__name__)


class _Device(msgspec.Struct):
    id: str = ""
    state: str = ENROLLED
    heartbeat_interval_s: float = INTERVAL_S


class _DeviceAnswer(msgspec.Struct):
    device: _Device = msgspec.field(default_factory=_Device)
    key: str | None = None
    next: str = ""
    verdicts: msgspec.Raw = msgspec.Raw(_NO_VERDICTS)


class DeviceReporter:
    """
    A loop that enrols this device and then sends heartbeats and pings.

    - `facts` returns the fields of enrolments and heartbeats, and `report` the further fields of a heartbeat.
    - If `version` returns another value than at the last heartbeat, the next one is sent at once.
    - `keep_key` stores the device's key. `keep_word` stores a word that the next heartbeat repeats, so that
      the gateway detects copies of the device.
    - `keep_verdicts` gets the verdicts of each answer, as JSON. While there are some, heartbeats replace
      pings.
    - `accepted` is called after each accepted heartbeat, and `requested` after each request.

    `state` is the device's state in the gateway's last response. `reason` is the reason why the last request
    failed, or None, and `problem` is its code.
    """

    def __init__(
        self,
        client: HttpClient,
        paths: UpstreamPaths,
        *,
        facts: Callable[[], Mapping[str, object]],
        report: Callable[[], Awaitable[Mapping[str, object]]],
        version: Callable[[], object] = lambda: None,
        enrolment_key: SecretSource | None,
        key_file: Path,
        keep_key: Callable[[str], None],
        keep_word: Callable[[str], None] = lambda word: None,
        keep_verdicts: Callable[[bytes], None] = lambda text: None,
        accepted: Callable[[], None] = lambda: None,
        requested: Callable[[], Awaitable[None]] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = client
        self._paths = paths
        self._facts = facts
        self._report = report
        self._enrolment_key = enrolment_key
        self._key_file = key_file
        self._device_key = SecretSource("the device's key", file=key_file)
        self._keep_key = keep_key
        self._version = version
        self._keep_word = keep_word
        self._keep_verdicts = keep_verdicts
        self._has_verdicts = False
        self._accepted = accepted
        self._requested = requested
        self._backoff = backoff or Backoff()
        self._interval_s = INTERVAL_S
        self._failures = 0
        self._sent_at: float | None = None  # time of the last accepted heartbeat
        self._sent_version: object = None
        self.state = UNKNOWN
        self.reason: str | None = None
        self.problem = ""

    async def run(self) -> None:
        rest_s = 0.0

        async def wait_and_send_report() -> None:
            nonlocal rest_s
            await self._wait_for_change(rest_s)
            rest_s = self._interval_s
            try:
                rest_s = await self.send_report_and_return_wait_s()
                if self._requested is not None:
                    await self._requested()
            except Exception as error:
                # an error such as a full disk must not end the reports
                self._set_disconnection_reason(
                    f"the report cannot be made or stored: {failure_reason(error)}"
                )
                raise

        await repeat(
            wait_and_send_report,
            every_s=0.0,
            failed="the report of this device cannot be made or stored",
            action="device_not_reported",
        )

    async def _wait_for_change(self, rest_s: float) -> None:
        """
        Wait until the report changes, at most `rest_s` seconds. After an error, only a changed key ends the
        wait early.
        """
        end = time.monotonic() + rest_s
        stamps = self._key_file_stamps()
        while (left_s := end - time.monotonic()) > 0:
            if self._key_file_stamps() != stamps:
                return
            if self.reason is None and self._sent_at is not None and self._version() != self._sent_version:
                return
            await asyncio.sleep(min(left_s, CHECK_S))

    def _key_file_stamps(self) -> list[object]:
        return [key.change_stamp() for key in (self._device_key, self._enrolment_key) if key is not None]

    async def close(self) -> None:
        await self._client.close()

    async def send_report_and_return_wait_s(self) -> float:
        """Send a report. Return the seconds to wait until the next one."""
        try:
            if not self._key_file.exists():
                rest_s = await self._send_enrolment_and_return_wait_s()
            elif self._is_heartbeat_due():
                rest_s = await self._send_heartbeat_and_return_wait_s()
            else:
                rest_s = await self._send_ping_and_return_wait_s()
        except Retryable as error:
            self._failures += 1
            self.problem = reach_problem(error)
            self._set_disconnection_reason(str(error))
            return self._backoff.delay_s(self._failures, error.retry_after_s)
        except SendError as error:
            self._failures = 0
            self.problem = reach_problem(error)
            self.state = "revoked" if error.status == GONE else self.state
            self._set_disconnection_reason(str(error))
            return REFUSED_S if error.status == GONE or not error.answered else self._interval_s
        self._failures = 0
        self.problem = ""
        # random, so that devices that started together do not report together
        return rest_s * random.uniform(0.95, 1.05)

    async def _send_enrolment_and_return_wait_s(self) -> float:
        if self._enrolment_key is None:
            message = "this device has neither a key of its own nor an enrolment key with which to get one"
            raise Misconfigured(message, answered=False)
        body = {**self._facts(), "want_key": True}
        answer = await self._post_and_decode("enroll", body, self._enrolment_key.value())
        if answer.key is not None:
            self._keep_key(answer.key)
            _log.info("enrolled", extra={"action": "enrolled", "device": answer.device.id})
            return 0.0
        if answer.device.state == ENROLLED:
            self._set_disconnection_reason(
                "this device has lost its key, and the gateway issues a key only once: run tollhouse "
                "devices reset ID on the gateway"
            )
            return REFUSED_S
        self._set_disconnection_reason(f"the gateway reports this device as {answer.device.state}")
        return self._interval_s

    def _is_heartbeat_due(self) -> bool:
        return (
            self._sent_at is None
            or self._has_verdicts
            or self.state != ENROLLED
            or time.monotonic() - self._sent_at >= HEARTBEAT_S
            or self._version() != self._sent_version
        )

    async def _send_ping_and_return_wait_s(self) -> float:
        body = {"device_id": self._facts()["device_id"]}
        try:
            answer = await self._send_body("ping", body, self._device_key.value())
        except Misconfigured as error:
            if error.status not in (401, 403, 404, 405):
                raise
            # the gateway does not know the device, its key, or the address for pings
            return await self._send_heartbeat_and_return_wait_s()
        if not answer.body.startswith(b"{"):  # a web page answered, which the heartbeat states
            return await self._send_heartbeat_and_return_wait_s()
        self._set_disconnection_reason(None)
        return self._interval_s

    async def _send_heartbeat_and_return_wait_s(self) -> float:
        version = self._version()
        body = {**self._facts(), **await self._report()}
        try:
            answer = await self._post_and_decode("heartbeat", body, self._device_key.value())
        except Misconfigured as error:
            if error.status != 401 or self._enrolment_key is None:
                raise
            return await self._send_enrolment_and_return_wait_s()  # the key was revoked or reset
        if answer.next:
            self._keep_word(answer.next)
        verdicts = bytes(answer.verdicts)
        self._has_verdicts = verdicts != _NO_VERDICTS
        self._keep_verdicts(verdicts)
        self._sent_at, self._sent_version = time.monotonic(), version
        is_enrolled = answer.device.state == ENROLLED
        self._accepted()
        self._set_disconnection_reason(
            None if is_enrolled else f"the gateway reports this device as {answer.device.state}"
        )
        return self._interval_s

    async def _post_and_decode(self, stream: str, body: Mapping[str, Any], secret: str) -> _DeviceAnswer:
        answer = await self._send_body(stream, body, secret)
        try:
            decoded = msgspec.json.decode(answer.body, type=_DeviceAnswer)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Misconfigured(
                "the server at this address is not a gateway", status=answer.status
            ) from error
        self.state = decoded.device.state
        self._interval_s = min(max(1.0, decoded.device.heartbeat_interval_s), LONGEST_INTERVAL_S)
        return decoded

    async def _send_body(self, stream: str, body: Mapping[str, Any], secret: str) -> HttpAnswer:
        url = self._paths.required_url(stream)
        return await self._client.send(
            url, msgspec.json.encode(body), content_type="application/json", authorization=secret
        )

    def _set_disconnection_reason(self, reason: str | None) -> None:
        """
        Store why the gateway cannot be reached. Each change is logged once, so that an offline laptop does
        not fill its log.
        """
        if reason != self.reason:
            if reason is None:
                _log.info("connected to the gateway", extra={"action": "linked"})
            else:
                _log.warning("not connected to the gateway: %s", reason, extra={"action": "not_linked"})
            self.reason = reason
