"""
Enrolment of this device at its gateway with an enrolment key, and then heartbeats with the device's own key.

Only telemetry waits for the enrolment: its route is paused until the device's key exists.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.client import Client
from exporters.pace import Backoff
from exporters.secret_source import SecretSource
from exporters.service.paths import Paths

INTERVAL_S = 60.0
LONGEST_INTERVAL_S = 3600.0
REFUSED_S = 600.0
GONE = 410

ENROLLED, PENDING, UNKNOWN = "enrolled", "pending", "unknown"

_log = logging.getLogger(__name__)


class _Device(msgspec.Struct):
    id: str = ""
    state: str = ENROLLED
    heartbeat_interval_s: float = INTERVAL_S


class _DeviceAnswer(msgspec.Struct):
    device: _Device = msgspec.field(default_factory=_Device)
    key: str | None = None


class DeviceReporter:
    """
    A loop that enrols this device and then sends heartbeats.

    `facts` are sent with every request, `report` returns the further fields of a heartbeat, and `keep_key`
    stores the device's key. `accepted` is called after each accepted heartbeat. `state` is the device's state
    in the gateway's last response. `reason` is the reason why the last request failed, or None.
    """

    def __init__(
        self,
        client: Client,
        paths: Paths,
        *,
        facts: Mapping[str, object],
        report: Callable[[], Awaitable[Mapping[str, object]]],
        enrolment_key: SecretSource | None,
        key_file: Path,
        keep_key: Callable[[str], None],
        accepted: Callable[[], None] = lambda: None,
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
        self._accepted = accepted
        self._backoff = backoff or Backoff()
        self._interval_s = INTERVAL_S
        self._failures = 0
        self.state = UNKNOWN
        self.reason: str | None = None

    async def run(self) -> None:
        """Report until cancelled."""
        rest_s = 0.0
        while True:
            await asyncio.sleep(rest_s)
            rest_s = await self.report_once()

    async def close(self) -> None:
        await self._client.close()

    async def report_once(self) -> float:
        """Enrol, or send one heartbeat. Return how many seconds to wait before the next request."""
        try:
            rest_s = await self._heartbeat() if self._key_file.exists() else await self._enrol()
        except Retryable as error:
            self._failures += 1
            self._set_reason(str(error))
            return self._backoff.delay_s(self._failures, error.retry_after_s)
        except SendError as error:
            self._failures = 0
            self.state = "revoked" if error.status == GONE else self.state
            self._set_reason(str(error))
            return REFUSED_S if error.status == GONE or not error.answered else self._interval_s
        self._failures = 0
        # the rest is random, so that devices that started together do not report at the same time
        return rest_s * random.uniform(0.95, 1.05)

    async def _enrol(self) -> float:
        if self._enrolment_key is None:
            message = "this device has no key, and no enrolment key to get one with"
            raise Misconfigured(message, answered=False)
        body = {**self._facts, "want_key": True}
        answer = await self._post("enroll", body, self._enrolment_key.value())
        if answer.key is not None:
            self._keep_key(answer.key)
            _log.info("enrolled", extra={"action": "enrolled", "device": answer.device.id})
            return 0.0  # no wait before the first heartbeat
        if answer.device.state == ENROLLED:
            self._set_reason(
                "this device has lost its key, and the gateway issues a key only once: run tollhouse "
                "devices reset ID on the gateway"
            )
            return REFUSED_S
        self._set_reason(f"the gateway reports this device as {answer.device.state}")
        return self._interval_s

    async def _heartbeat(self) -> float:
        body = {**self._facts, **await self._report()}
        try:
            answer = await self._post("heartbeat", body, self._device_key.value())
        except Misconfigured as error:
            if error.status != 401 or self._enrolment_key is None:
                raise
            return await self._enrol()  # enrol again, because the key was revoked or reset
        is_enrolled = answer.device.state == ENROLLED
        self._accepted()
        self._set_reason(None if is_enrolled else f"the gateway reports this device as {answer.device.state}")
        return self._interval_s

    async def _post(self, stream: str, body: Mapping[str, Any], secret: str) -> _DeviceAnswer:
        url = self._paths.needed(stream)
        answer = await self._client.send(
            url, msgspec.json.encode(body), content_type="application/json", authorization=secret
        )
        try:
            decoded = msgspec.json.decode(answer.body, type=_DeviceAnswer)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Misconfigured(
                "the server at this address is not a gateway", status=answer.status
            ) from error
        self.state = decoded.device.state
        self._interval_s = min(max(1.0, decoded.device.heartbeat_interval_s), LONGEST_INTERVAL_S)
        return decoded

    def _set_reason(self, reason: str | None) -> None:
        """Log each change of the reason once, so that an offline laptop does not fill its log."""
        if reason != self.reason:
            if reason is None:
                _log.info("connected to the gateway", extra={"action": "linked"})
            else:
                _log.warning("not connected to the gateway: %s", reason, extra={"action": "not_linked"})
            self.reason = reason
