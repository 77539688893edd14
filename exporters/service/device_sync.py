"""
Devices sent to the upstream row by row: first the enrolment of a device, then its newest heartbeat.

Responses have the same meaning as for a route, but concern one row. A rejected row is held with the
upstream's message, and all other rows are sent. If the key or address is refused, the whole sync is paused.
Telemetry never waits for the sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

import msgspec

from exporters.device_reporter import GONE
from exporters.errors import DeliveryTooLarge, Misconfigured, Rejected, Retryable, SendError
from exporters.http.answers import HttpAnswer
from exporters.pace import Backoff
from exporters.service.upstream_client import UpstreamClient
from spool.clock import Clock
from spool.deliveries.values import PARKED, RUNNING, RouteState
from spool.devices.device import ENROLLED, REVOKED, REVOKED_UPSTREAM, Device, change_for_existing_device
from spool.devices.table import DeviceTable
from spool.errors import NotThere, SpoolError
from spool.loops import failure_reason, log_failure, repeat

NAME = "upstream/devices"
ENROLL, HEARTBEAT = "enroll", "heartbeat"
USES = ("use", "state_since", "unheard_since", "heard_at", "slots")  # fields of an assistant in heartbeats

PARKED_RETRY_S = 60.0
HELD_RETRY_S = 600.0  # seconds to wait after a rejected row; a change of the device's facts ends the wait
# Seconds after which the devices to send are listed again, so that a revocation does not wait behind the heartbeats
# of a whole fleet.
ROUND_S = 0.3
# Seconds after which a device that only pings is reported again. Otherwise the upstream would show it as offline,
# because agents send a heartbeat only every 15 minutes.
ALIVE_S = 45.0
DRAINED_LOOK_S = 15.0  # seconds between checks whether the calls were sent that a heartbeat said to wait
LONGEST_ID = 256
# type of a 403 about one device, which must use its own key at the upstream
OWN_KEY_NEEDED = "device_key_needed"
_NOT_FOLLOWED = (
    "the upstream did not revoke the device: add the name of this gateway's key to server.chain_keys there"
)
_ABOUT_ALL_ROWS = (429, 502, 503, 504)  # status codes of responses that concern all rows

# The changes of heartbeats for another Tollhouse: what is stored, the device, and when the oldest record began to wait.
# Returns whether the heartbeat now states that calls wait here.
StateWhatWaits = Callable[[dict[str, Any], Device, float | None], bool]

_log = logging.getLogger(__name__)


async def _no_waiting_record_time() -> float | None:
    return None


class DeviceSync:
    """
    Sends devices to the upstream until cancelled. Unanswered requests are repeated.

    With `tells_changes`, the upstream is a Tollhouse, which also gets revocations and resets.
    `state_what_waits` adds to the heartbeats that this sync sends since when the oldest record waits.
    `waiting_since` returns that time. A heartbeat that states waiting calls is sent once more after they were sent,
    because its device may sleep then.
    """

    def __init__(
        self,
        table: DeviceTable,
        upstream: UpstreamClient,
        *,
        clock: Clock,
        in_flight: int = 4,
        tells_changes: bool = False,
        waiting_since: Callable[[], Awaitable[float | None]] = _no_waiting_record_time,
        state_what_waits: StateWhatWaits = lambda heartbeat, device, since: False,
        backoff: Backoff | None = None,
    ) -> None:
        self._table = table
        self._upstream = upstream
        self._clock = clock
        self._in_flight = in_flight
        self._tells_changes = tells_changes
        self._read_waiting_since, self._state_what_waits = waiting_since, state_what_waits
        self._waiting_since: float | None = None  # as of the begin of the round
        self._backoff = backoff or Backoff()
        self._state = RUNNING
        self._reason: str | None = None
        self._failures = 0
        self._is_faulty = False  # True after an internal error
        self._closed_until = 0.0
        # by device id: the version of the facts that wait, and the time until which they wait
        self._backoffs: dict[str, tuple[int, float]] = {}
        # by device id: the version of the row that stated waiting calls, and the time of the report
        self._stated_waits: dict[str, tuple[int, float]] = {}
        self._reported_at: dict[str, float] = {}  # by device id: the last report that the upstream knows of
        self._poked = asyncio.Event()

    def state(self) -> RouteState:
        """
        Return the sync's state in the form of a route's. `queued` counts devices, including rejected ones.
        """
        waiting = [device for device in self._table.all() if self._is_due_to_send(device)]
        held = [device.held for device in waiting if device.held is not None]
        return RouteState(
            name=NAME,
            topic="devices",
            required=True,
            state=self._state,
            reason=self._reason,
            progress=0,
            queued=len(waiting),
            oldest_age_s=self._oldest_age_s(waiting),
            delivered=0,
            refused=len(held),
            dead=0,
            stuck=0,
            refused_recently=len(held),
            refusal=next(iter(held), None),
        )

    def secret_file_states(self) -> list[object]:
        return self._upstream.secret_file_states()

    def retry_now(self) -> None:
        self._clear_waits()
        self._poked.set()

    def _clear_waits(self) -> None:
        self._closed_until = 0.0
        self._backoffs.clear()

    async def close(self) -> None:
        await self._upstream.close()

    async def run(self) -> None:
        await repeat(
            self._send_and_wait,
            every_s=0.0,
            failed=f"{NAME}: a fault",
            action="sync_fault",
            retry_s=PARKED_RETRY_S,
        )

    async def _send_and_wait(self) -> None:
        try:
            rest_s = await self._send_due_devices_and_return_wait_s()
            if self._is_faulty:  # this round succeeded, so the internal error is over
                self._note_success()
        except SpoolError as error:
            _log.warning("%s: the storage failed: %s", NAME, error, extra={"action": "sync_put_off"})
            self._reason, rest_s = str(error), PARKED_RETRY_S
        except Exception as error:  # noqa: BLE001 - nothing was marked as sent
            _log.exception("%s: a fault", NAME, extra={"action": "sync_fault"})
            self._state, self._reason, self._is_faulty = PARKED, f"fault: {type(error).__name__}", True
            rest_s = PARKED_RETRY_S
        await self._wait_for_change(rest_s)

    async def _wait_for_change(self, rest_s: float) -> None:
        """
        Wait for a change, for `retry_now`, or at most `rest_s` seconds. While the whole sync is paused,
        changes do not end the wait.
        """
        change = asyncio.create_task(
            self._poked.wait() if self._is_sync_waiting() else self._wait_for_retry_or_change()
        )
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if rest_s == inf else rest_s):
                    await asyncio.shield(change)
        finally:
            change.cancel()
            await asyncio.gather(change, return_exceptions=True)
            if self._poked.is_set():
                self._clear_waits()  # end waits that the response to an earlier request began
            self._poked.clear()

    async def _wait_for_retry_or_change(self) -> None:
        poked = asyncio.create_task(self._poked.wait())
        changed = asyncio.create_task(self._table.wait_for_changes())
        try:
            await asyncio.wait({poked, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (poked, changed):
                task.cancel()
            await asyncio.gather(poked, changed, return_exceptions=True)

    async def _send_due_devices_and_return_wait_s(self) -> float:
        """Send everything that is due. Return the seconds to wait if nothing changes."""
        while True:
            await self._forget_ended_waits()
            now = self._clock.monotonic()  # read once per round, so that each device is either sent or waits
            due = self._due_devices(now)
            if not due:
                return self._remove_ended_backoffs_and_return_wait_s(now)
            if self._closed_until > now:
                return max(0.01, self._closed_until - now)
            if self._tells_changes:
                self._waiting_since = await self._read_waiting_since()
            while due and not self._is_sync_waiting():
                count = self._in_flight if self._failures == 0 and self._state == RUNNING else 1
                await asyncio.gather(*(self._send_device(device) for device in due[:count]))
                del due[:count]
                if self._clock.monotonic() >= now + ROUND_S:
                    break

    def _due_devices(self, now: float) -> list[Device]:
        due = [
            device
            for device in self._table.all()
            if self._is_due_to_send(device)
            and not self._is_backing_off(device, now)
            and not self._waits_for_calls(device)
        ]
        return sorted(due, key=lambda device: (device.state != REVOKED, device.last_seen))

    async def _send_device(self, device: Device) -> None:
        try:
            if device.state == REVOKED:
                await self._revoke_device(device)
                return
            if device.sent_version < device.facts_version:
                device = await self._enrol_device(device)
            if device.last_heartbeat is not None and (
                device.version > device.sent_version or self._needs_alive_report(device)
            ):
                await self._send_heartbeat(device)
        except Misconfigured as error:
            if error.type == OWN_KEY_NEEDED:
                await self._mark_device_held_and_back_off(device, error)
            else:
                self._pause_sync(error)
        except Retryable as error:
            self._schedule_retry(device, error)
        except (Rejected, DeliveryTooLarge) as error:
            await self._mark_device_held_and_back_off(device, error)
        except SpoolError:
            raise
        except Exception as error:  # noqa: BLE001 - a device that fails costs only itself
            log_failure(f"{NAME}: the device {device.id} is held", error, action="device_held")
            await self._hold_device_and_back_off(device, failure_reason(error))

    async def _enrol_device(self, device: Device) -> Device:
        """Enrol a device upstream, and return it with the answer. Changes made meanwhile are sent later."""
        body = {"device_id": device.id, **_device_facts(device)}
        if (
            self._tells_changes
            and device.upstream_id is not None
            and device.reset_version > device.sent_version
        ):
            body["reset"] = True
        answer = await self._upstream.send(ENROLL, msgspec.json.encode(body))
        upstream_id = _text_in_answer(answer, "id") or device.upstream_id or device.id
        self._note_success()
        changes: dict[str, Any] = {
            "sent_version": device.facts_version,
            "upstream_id": upstream_id,
            "held": None,
        }
        await self._update_device(device.id, **changes)
        return replace(device, **changes)

    async def _revoke_device(self, device: Device) -> None:
        answer = await self._upstream.send(
            ENROLL, msgspec.json.encode({"device_id": device.id, "state": REVOKED})
        )
        self._note_success()
        held = None if _text_in_answer(answer, "state") == REVOKED else _NOT_FOLLOWED
        await self._update_device(device.id, sent_version=device.version, held=held)

    async def _send_heartbeat(self, device: Device) -> None:
        own = msgspec.json.decode(device.heartbeat, type=dict[str, Any]) if device.heartbeat else {}
        # the time of an earlier report would look like a clock that is behind
        if self._tells_changes and device.clock_offset_s is not None:
            own["sent_at"] = self._clock.now() + device.clock_offset_s
        elif self._needs_alive_report(device):
            own.pop("sent_at", None)
        states_wait = False
        if self._tells_changes:
            states_wait = self._state_what_waits(own, device, self._waiting_since)
            if device.left_at is not None:
                own["leaving"] = "removed"
        else:
            _remove_tollhouse_only_fields(own)
        body = {"device_id": device.upstream_id or device.id, **_device_facts(device), **own}
        await self._upstream.send(HEARTBEAT, msgspec.json.encode(body))
        self._note_success()
        self._reported_at[device.id] = device.last_seen
        if states_wait:  # the row counts as not sent, also after a restart
            self._stated_waits[device.id] = device.version, self._clock.now()
            return
        self._stated_waits.pop(device.id, None)
        # The change is not awaited. If a crash loses it, the same heartbeat is sent again and changes nothing.
        self._table.change_and_write_soon(
            device.id, lambda known: replace(known, sent_version=device.version, held=None)
        )

    async def _update_device(self, id: str, **changes: Any) -> None:
        if self._table.find(id) is not None:
            with suppress(NotThere):
                await self._table.update(
                    id, change_for_existing_device(lambda known: replace(known, **changes))
                )

    def _note_success(self) -> None:
        if self._state != RUNNING:
            _log.info("%s: running", NAME, extra={"action": "sync_running"})
        self._state, self._reason, self._failures, self._is_faulty = RUNNING, None, 0, False

    def _pause_sync(self, error: SendError) -> None:
        if self._state != PARKED or self._reason != str(error):
            fields = {"action": "sync_parked", "status": error.status}
            _log.warning("%s is paused: %s", NAME, error, extra=fields)
        self._state, self._reason, self._is_faulty = PARKED, str(error), False
        self._closed_until = self._clock.monotonic() + PARKED_RETRY_S

    def _schedule_retry(self, device: Device, error: Retryable) -> None:
        self._failures += 1
        wait_s = self._backoff.delay_s(self._failures, error.retry_after_s)
        if self._state == RUNNING:
            self._reason = str(error)
        _log.warning("%s: next attempt in %.0f s: %s", NAME, wait_s, error, extra={"action": "sync_retried"})
        until = self._clock.monotonic() + wait_s
        if error.status is None or error.status in _ABOUT_ALL_ROWS:
            self._closed_until = max(self._closed_until, until)
        else:
            self._backoffs[device.id] = (device.facts_version, until)

    async def _mark_device_held_and_back_off(self, device: Device, error: SendError) -> None:
        reason = REVOKED_UPSTREAM if error.status == GONE else str(error)
        current = self._table.find(device.id)
        if current is not None and current.held != reason:
            fields = {"action": "device_held", "status": error.status}
            _log.warning("%s: the device %s is held: %s", NAME, device.id, reason, extra=fields)
        await self._hold_device_and_back_off(device, reason)

    async def _hold_device_and_back_off(self, device: Device, reason: str) -> None:
        self._backoffs[device.id] = (device.facts_version, self._clock.monotonic() + HELD_RETRY_S)
        current = self._table.find(device.id)
        if current is not None and current.held != reason:
            await self._update_device(device.id, held=reason)

    def _is_backing_off(self, device: Device, now: float) -> bool:
        facts_version, until = self._backoffs.get(device.id, (0, 0.0))
        return facts_version == device.facts_version and until > now

    def _waits_for_calls(self, device: Device) -> bool:
        version, _ = self._stated_waits.get(device.id, (0, 0.0))
        return version == device.version and not self._needs_alive_report(device)

    async def _forget_ended_waits(self) -> None:
        """Let devices be sent again of which no call waits any more that waited at their last report."""
        if self._stated_waits:
            since = await self._read_waiting_since()
            self._stated_waits = {
                id: wait for id, wait in self._stated_waits.items() if since is not None and since <= wait[1]
            }

    def _remove_ended_backoffs_and_return_wait_s(self, now: float) -> float:
        self._backoffs = {id: rest for id, rest in self._backoffs.items() if rest[1] > now}
        self._reported_at = {
            id: at for id, at in self._reported_at.items() if self._table.find(id) is not None
        }
        ends = [until for _, until in self._backoffs.values()]
        ends += [now + DRAINED_LOOK_S] if self._stated_waits else []
        return max(0.01, min(ends, default=inf) - now)

    def _is_due_to_send(self, device: Device) -> bool:
        """
        Return whether a device must be sent. A pending device is never sent, and a revoked device is sent
        only to a Tollhouse that knows it.
        """
        if device.version <= device.sent_version:
            return device.state == ENROLLED and self._needs_alive_report(device)
        is_reported = self._tells_changes and device.state == REVOKED and device.upstream_id is not None
        return device.state == ENROLLED or is_reported

    def _needs_alive_report(self, device: Device) -> bool:
        if device.last_heartbeat is None:
            return False
        known = max(device.last_heartbeat, self._reported_at.get(device.id, 0.0))
        return device.last_seen >= known + ALIVE_S

    def _is_sync_waiting(self) -> bool:
        return self._closed_until > self._clock.monotonic()

    def _oldest_age_s(self, waiting: list[Device]) -> float | None:
        if not waiting:
            return None
        return max(0.0, self._clock.now() - min(device.last_seen for device in waiting))


def _device_facts(device: Device) -> dict[str, object]:
    facts: dict[str, object] = {
        "hostname": device.hostname,
        "platform": device.platform,
        "agent_version": device.agent_version,
        "user": device.user,
        "fingerprint": device.fingerprint,
        "labels": dict(device.all_labels),
    }
    return {name: value for name, value in facts.items() if value}


def _remove_tollhouse_only_fields(heartbeat: dict[str, Any]) -> None:
    """Remove the fields that only a Tollhouse reads, because a cost service gets the published fields."""
    for fields in (heartbeat.get("assistants") or {}).values():
        for name in USES:
            fields.pop(name, None)
    heartbeat.pop("serial_hash", None)
    (heartbeat.get("policy") or {}).pop("number", None)


def _text_in_answer(answer: HttpAnswer, name: str) -> str | None:
    try:
        decoded = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return None
    device = decoded.get("device") if isinstance(decoded, dict) else None
    text = device.get(name) if isinstance(device, dict) else None
    return text if isinstance(text, str) and 0 < len(text) <= LONGEST_ID else None
