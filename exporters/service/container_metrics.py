"""
Container metrics sent to the upstream: files to addresses that the upstream provides, bodies
and statuses unchanged.

Responses have the same meaning as for a route. Each stream is paused separately if its key or address is
wrong. A rejected file is held with the upstream's message, and all other files are sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from math import inf, nextafter
from urllib.parse import urlsplit

import msgspec

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.answers import HttpAnswer
from exporters.pace import Backoff
from exporters.service.upstream_client import UpstreamClient
from spool.clock import Clock
from spool.container_files.files import ContainerFiles
from spool.container_files.values import (
    DELIVERED,
    FILE,
    KINDS,
    REMOTE_WRITE,
    STATUS,
    UPLOADED,
    ClusterIdentity,
    ContainerFile,
    ContainerSender,
)
from spool.deliveries.values import PARKED, RUNNING, RouteState
from spool.errors import SpoolError
from spool.loops import repeat

NAME = "upstream/container-metrics"
TOPIC = "container-metrics"
UPLOAD, ABANDON, STATUSES, LEGACY = (
    "container-upload",
    "container-abandon",
    "container-status",
    "container-legacy",
)
STREAMS = (UPLOAD, ABANDON, STATUSES, LEGACY)
CONFIG_LOAD = "configLoad"

AT_ONCE = 200  # maximum files per announcement, the same number as in the agent's own announcements
EXPIRATION_S = 3600
PARKED_RETRY_S = 60.0
HELD_RETRY_S = 600.0
LOOK_AGAIN_S = 60.0
MAX_REPLAYS = 1000  # maximum references per response
LONGEST_REFERENCE = 512
MAX_ADDRESSES_BYTES = 4 << 20  # maximum bytes of a response, enough for 200 addresses of a few KiB
PROTOBUF = "application/x-protobuf"
EXPIRED = "Request has expired"

_log = logging.getLogger(__name__)


@dataclass
class _StreamLane:
    """The state of one stream to the upstream, and until when it waits."""

    reason: str | None = None
    parked: bool = False
    failures: int = 0
    is_faulty: bool = False  # an internal error occurred
    closed_until: float = 0.0


class _RequestedFile(msgspec.Struct):
    ref_id: str = ""


class ContainerFileSync:
    """
    Sends container metrics until cancelled. Unanswered requests are repeated; the upstream stores each file
    only once.
    """

    def __init__(
        self, files: ContainerFiles, upstream: UpstreamClient, *, clock: Clock, backoff: Backoff | None = None
    ) -> None:
        self._files = files
        self._upstream = upstream
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._lanes = {stream: _StreamLane() for stream in STREAMS}
        self._oldest: dict[str, float] = {}  # upload time of the oldest waiting file, by kind
        self._held: set[str] = set()
        self._poked = asyncio.Event()
        self._poked_at = -inf

    def state(self) -> RouteState:
        """Return the sync's state in the form of a route's. `queued` counts files, bodies and statuses."""
        sums = self._files.sums
        queued = sums.sum_file_counters(UPLOADED, *KINDS)
        reasons = [f"{stream}: {lane.reason}" for stream, lane in self._lanes.items() if lane.reason]
        oldest = min(self._oldest.values(), default=None) if queued else None
        return RouteState(
            name=NAME,
            topic=TOPIC,
            required=True,
            state=PARKED if any(lane.parked for lane in self._lanes.values()) else RUNNING,
            reason="; ".join(reasons) or None,
            progress=0,
            queued=queued,
            oldest_age_s=None if oldest is None else max(0.0, self._clock.now() - oldest),
            delivered=sums.sum_file_counters(DELIVERED, *KINDS),
            refused=min(len(self._held), queued),
            dead=0,
            stuck=0,
        )

    def secret_file_states(self) -> list[object]:
        return self._upstream.secret_file_states()

    def retry_now(self) -> None:
        self._clear_waits()
        self._poked.set()

    def _clear_waits(self) -> None:
        for lane in self._lanes.values():
            lane.closed_until = 0.0
        self._poked_at = self._clock.now()

    async def close(self) -> None:
        await self._upstream.close()

    async def run(self) -> None:
        async def send_and_wait() -> None:
            await self._wait_for_changes(await self.send_due_and_return_wait_s())

        await repeat(
            send_and_wait, every_s=0.0, failed=f"{NAME}: a fault", action="sync_fault", retry_s=PARKED_RETRY_S
        )

    async def send_due_and_return_wait_s(self) -> float:
        """Send everything that is due. Return the seconds to wait if nothing changes."""
        senders: Mapping[str, Callable[[], Awaitable[bool]]] = {
            UPLOAD: self._send_files,
            ABANDON: self._report_some_abandoned_files,
            STATUSES: lambda: self._send_bodies(STATUS),
            LEGACY: lambda: self._send_bodies(REMOTE_WRITE),
        }
        # Streams that have nothing to send in this round. A failed stream waits until its `closed_until`.
        empty: set[str] = set()
        while True:
            now = self._clock.monotonic()  # read once per round, so that each stream is either tried or waits
            closed = {
                name: lane.closed_until for name, lane in self._lanes.items() if lane.closed_until > now
            }
            going = [stream for stream in STREAMS if stream not in empty and stream not in closed]
            if not going:
                return max(0.01, min([*closed.values(), now + LOOK_AGAIN_S]) - now)
            for stream in going:
                if not await self._attempt_send(stream, senders[stream]):
                    empty.add(stream)

    async def _attempt_send(self, stream: str, send: Callable[[], Awaitable[bool]]) -> bool:
        """
        Call `send`. Return False if there was nothing to send. An error that concerns the whole stream pauses
        it for a time.
        """
        lane = self._lanes[stream]
        try:
            has_more = await send()
        except SpoolError as error:
            lane.closed_until = self._clock.monotonic() + LOOK_AGAIN_S
            lane.reason = str(error)
        except Misconfigured as error:
            if lane.reason != str(error):
                extra = {"action": "sync_parked", "stream": stream, "status": error.status}
                _log.warning("%s is paused: %s", NAME, error, extra=extra)
            lane.parked, lane.reason, lane.is_faulty = True, str(error), False
            lane.closed_until = self._clock.monotonic() + PARKED_RETRY_S
        except Retryable as error:
            lane.failures += 1
            wait_s = self._backoff.delay_s(lane.failures, error.retry_after_s)
            lane.reason = str(error)
            lane.closed_until = self._clock.monotonic() + wait_s
            _log.warning(
                "%s: next attempt in %.0f s: %s", NAME, wait_s, error, extra={"action": "sync_retried"}
            )
        except Exception as error:  # noqa: BLE001 - what failed inside was not marked as sent; other streams go on
            _log.exception("%s: a fault", NAME, extra={"action": "sync_fault", "stream": stream})
            lane.parked, lane.reason, lane.is_faulty = True, f"fault: {type(error).__name__}", True
            lane.closed_until = self._clock.monotonic() + PARKED_RETRY_S
        else:
            if lane.is_faulty:
                self._reset_stream_state(stream)
            return has_more
        return True

    async def _send_files(self) -> bool:
        """
        Announce the oldest files of one cluster and agent, and send each file. Return False if no file is due.
        """
        due = await self._load_due_files(FILE)
        if not due:
            return False
        by_sender = groupby(due, key=lambda file: (file.identity, file.shipper, file.agent_version, file.key))
        (identity, shipper, version, key), group = next(iter(by_sender))
        files = list(group)
        by = ContainerSender(key=key, shipper=shipper, agent_version=version)
        descriptions = [
            {"reference_id": file.reference, "sha_256": file.sha256, "size": file.size} for file in files
        ]
        query = {
            **_cluster_query(identity),
            "count": str(len(files)),
            "shipper_id": shipper,
            "expiration": str(EXPIRATION_S),
        }
        body = msgspec.json.encode({"shipperId": shipper, "files": descriptions})
        answer = await self._upstream.post(
            UPLOAD, body, query=query, headers=_agent_headers(by), max_answer_bytes=MAX_ADDRESSES_BYTES
        )
        addresses = _decode_upload_addresses(answer)
        for file in files:
            address = addresses.get(file.reference)
            if address is None:
                await self._postpone_sending_file(file, "the upstream provided no address for the file")
            else:
                await self._upload_file(file, address)
        requested = _requested_file_references(answer)
        if requested:
            await self._files.request_files_again(identity, requested, by)
        return True

    async def _upload_file(self, file: ContainerFile, address: str) -> None:
        """Send one file. No key is sent, because the address itself is secret."""
        problem = await self._file_damage_text(file)
        if problem:
            await self._files.mark_damaged(file, problem)
            return
        self._check_upload_address(address)
        try:
            await self._upstream.client.put_file(address, self._files.contents.read(file.id), size=file.size)
        except Misconfigured as error:
            if EXPIRED in str(error):
                raise Retryable(
                    "the upload address expired before the file arrived", status=error.status
                ) from error
            raise
        except Retryable:
            raise
        except SendError as error:
            await self._postpone_sending_file(file, str(error))
            return
        await self._mark_files_delivered(UPLOAD, [file])

    def _check_upload_address(self, address: str) -> None:
        """Raise Misconfigured if an upload would be unencrypted although the upstream uses TLS."""
        scheme = urlsplit(address).scheme
        upstream = urlsplit(self._upstream.url(UPLOAD) or "").scheme
        if scheme not in ("http", "https") or (scheme == "http" and upstream == "https"):
            raise Misconfigured("the upstream provided an upload address that is not https")

    async def _file_damage_text(self, file: ContainerFile) -> str:
        sum = hashlib.sha256()
        try:
            async for piece in self._files.contents.read(file.id):
                sum.update(piece)
        except FileNotFoundError:
            return "the file no longer exists on disk"
        return "" if sum.hexdigest() == file.sha256 else "the file on disk differs from the received one"

    async def _report_some_abandoned_files(self) -> bool:
        unreported = await self._files.unreported_files(limit=AT_ONCE)
        if not unreported:
            return False
        identity = unreported[0].identity
        files = [file for file in unreported if file.identity == identity]
        body = msgspec.json.encode(
            [{"reference_id": file.reference, "reason": file.problem or ""} for file in files]
        )
        by = ContainerSender(key="", shipper=files[0].shipper, agent_version=files[0].agent_version)
        await self._upstream.post(ABANDON, body, query=_cluster_query(identity), headers=_agent_headers(by))
        await self._files.mark_reported(files)
        self._reset_stream_state(ABANDON)
        return True

    async def _send_bodies(self, kind: str) -> bool:
        """Send one request per body, in order, because a series' times must not go back."""
        due = await self._load_due_files(kind)
        for file in due:
            try:
                await (self._send_status(file) if kind == STATUS else self._send_remote_write(file))
            except (Misconfigured, Retryable):
                raise
            except SendError as error:
                await self._postpone_sending_file(file, str(error))
        return bool(due)

    async def _send_status(self, file: ContainerFile) -> None:
        is_config = file.reference == "config"
        headers = {"X-Cloudzero-Config-Status": CONFIG_LOAD} if is_config else {}
        query = {"type": CONFIG_LOAD} if is_config else {}
        await self._upstream.post(STATUSES, file.body, content_type=PROTOBUF, query=query, headers=headers)
        await self._mark_files_delivered(STATUSES, [file])

    async def _send_remote_write(self, file: ContainerFile) -> None:
        problem = await self._file_damage_text(file)
        if problem:
            await self._files.mark_damaged(file, problem)
            return
        stored_headers = msgspec.json.decode(file.request, type=dict[str, str]) if file.request else {}
        type = stored_headers.pop("Content-Type", PROTOBUF)
        body = await _join_pieces(self._files.contents.read(file.id))
        headers = {**stored_headers, "Content-Encoding": "snappy"}
        query = _cluster_query(file.identity)
        await self._upstream.post(LEGACY, body, content_type=type, query=query, headers=headers)
        await self._mark_files_delivered(LEGACY, [file])

    async def _load_due_files(self, kind: str) -> Sequence[ContainerFile]:
        due = await self._files.due_files(kind, limit=AT_ONCE, due_at=self._due_files_time_limit())
        if due:
            self._oldest[kind] = due[0].uploaded_at or self._clock.now()
        else:
            self._oldest.pop(kind, None)
        return due

    def _due_files_time_limit(self) -> float:
        """Return the time up to which files are due. Files held before the last `retry_now` wait no longer."""
        if self._clock.now() < self._poked_at:  # the clock was set back
            self._poked_at = -inf
        return nextafter(self._poked_at + HELD_RETRY_S, -inf)

    async def _mark_files_delivered(self, stream: str, files: Sequence[ContainerFile]) -> None:
        await self._files.mark_delivered(files)
        self._held.difference_update(file.id for file in files)
        self._reset_stream_state(stream)

    async def _postpone_sending_file(self, file: ContainerFile, reason: str) -> None:
        if file.problem != reason:
            extra = {"action": "container_file_held", "kind": file.kind, "cluster": file.cluster}
            _log.warning("%s: a %s is held: %s", NAME, file.kind, reason, extra=extra)
        self._held.add(file.id)
        await self._files.postpone_sending(file, reason, not_before=self._clock.now() + HELD_RETRY_S)

    def _reset_stream_state(self, stream: str) -> None:
        lane = self._lanes[stream]
        if lane.parked:
            _log.info("%s: running", NAME, extra={"action": "sync_running", "stream": stream})
        self._lanes[stream] = _StreamLane()

    async def _wait_for_changes(self, max_wait_s: float) -> None:
        waits = [asyncio.create_task(self._poked.wait()), asyncio.create_task(self._files.wait_for_changes())]
        try:
            await asyncio.wait(waits, timeout=max_wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            if self._poked.is_set():
                self._clear_waits()  # a response to an earlier request may have set a wait meanwhile
            self._poked.clear()


def _cluster_query(identity: ClusterIdentity) -> dict[str, str]:
    return {"cluster_name": identity.name, "cloud_account_id": identity.account, "region": identity.region}


def _agent_headers(sender: ContainerSender) -> dict[str, str]:
    headers = {"X-CloudZero-Shipper-ID": sender.shipper, "X-CloudZero-Version": sender.agent_version}
    return {name: value for name, value in headers.items() if value}


def _decode_upload_addresses(answer: HttpAnswer) -> Mapping[str, str]:
    try:
        return msgspec.json.decode(answer.body, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Misconfigured(
            "the response of this address contains no upload addresses", status=answer.status
        ) from error


def _requested_file_references(answer: HttpAnswer) -> list[str]:
    """
    Return the references of the files that the upstream requests again. Return [] if the header cannot be read.
    """
    text = answer.headers.get("x-cloudzero-replay")
    if not text:
        return []
    with suppress(msgspec.DecodeError, RecursionError):
        references = msgspec.json.decode(text, type=list[_RequestedFile])
        return [
            reference.ref_id for reference in references if 0 < len(reference.ref_id) <= LONGEST_REFERENCE
        ][:MAX_REPLAYS]
    _log.warning(
        "%s: the upstream requested a replay in a header that cannot be read",
        NAME,
        extra={"action": "replay_unreadable"},
    )
    return []


async def _join_pieces(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])
