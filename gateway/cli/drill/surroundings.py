"""
The environment of the server under test: clients with generated calls, an upstream, and a disk that loses power.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import secrets
import shutil
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from gateway.cli.drill.server import DrillServer

CALLS_A_REQUEST = 10
SENDERS = 4
PAUSE_S = 0.02
PATIENCE_S = 30.0
# size of the image file; the file is sparse, so it uses only the space that is written
IMAGE_BYTES = 256 << 20
_SHUTDOWN = 0x8004587D  # request number of the ioctl EXT4_IOC_SHUTDOWN
# argument EXT4_GOING_FLAGS_NOLOGFLUSH of the ioctl: shut down without flushing the journal
_WITHOUT_FLUSH = struct.pack("I", 2)
_UNMOUNT_TRIES = 50


@dataclass(frozen=True)
class DrillRequest:
    """One request with generated calls. `names` are the response ids of the calls."""

    names: tuple[str, ...]
    body: bytes


def build_drill_request(count: int = CALLS_A_REQUEST) -> DrillRequest:
    names = tuple(f"chatcmpl-{secrets.token_hex(12)}" for _ in range(count))
    now = time.time_ns()
    spans = [_make_span(name, now) for name in names]
    return DrillRequest(names, json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode())


class DrillTraffic:
    """
    Senders that retry a request unchanged until it is acknowledged, as real clients do.

    `acknowledged` holds the ids of all calls that the server answered with 2xx.
    """

    def __init__(self, server: DrillServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        # requests without an acknowledgement, whose senders ended with the server
        self._waiting: list[DrillRequest] = []
        self.acknowledged: set[str] = set()
        self.refused = 0

    def send_once(self, request: DrillRequest) -> bool:
        """
        Send the calls; return True if they were acknowledged. Raises OSError or HTTPException if
        no response arrives.
        """
        parts = urlsplit(self._server.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
        try:
            headers = {"Authorization": self._server.key, "Content-Type": "application/json"}
            connection.request("POST", "/v1/traces", request.body, headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        with self._lock:
            if status == 200:
                self.acknowledged.update(request.names)
            else:
                self.refused += 1
        return status == 200

    def send_and_measure_acknowledgement_s(self, request: DrillRequest, timeout_s: float = 60.0) -> float:
        """
        Retry until the calls are acknowledged; return how many seconds that took. Raises
        TimeoutError after `timeout_s`.
        """
        began = time.monotonic()
        while time.monotonic() - began < timeout_s:
            try:
                if self.send_once(request):
                    return time.monotonic() - began
            except (OSError, http.client.HTTPException):
                pass  # try again, because the server is down or starting
            time.sleep(PAUSE_S)
        raise TimeoutError(f"nothing was acknowledged for {timeout_s:.0f} s")

    @contextmanager
    def sending_continuously(self) -> Iterator[None]:
        """
        Send continuously from several threads, beginning with requests that the previous load left unacknowledged.
        """
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._send_calls_until_stopped, args=(stop,), daemon=True)
            for _ in range(SENDERS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def retry_unacknowledged(self) -> None:
        while self._waiting:
            self.send_and_measure_acknowledgement_s(self._waiting.pop())

    def _send_calls_until_stopped(self, stop: threading.Event) -> None:
        calls = None
        while not stop.is_set():
            if calls is None:
                with self._lock:
                    calls = self._waiting.pop() if self._waiting else build_drill_request()
            try:
                if self.send_once(calls):
                    calls = None
            except (OSError, http.client.HTTPException):
                break  # stop sending, because the server was killed
            stop.wait(PAUSE_S)
        if calls is not None:
            with self._lock:
                self._waiting.append(calls)


def _make_span(name: str, now: int) -> dict[str, object]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.id": name,
    }
    counts = {"gen_ai.usage.input_tokens": "1200", "gen_ai.usage.output_tokens": "300"}
    return {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": "chat gpt-4o",
        "kind": 3,
        "startTimeUnixNano": str(now - 10**9),
        "endTimeUnixNano": str(now),
        "attributes": [
            *({"key": key, "value": {"stringValue": value}} for key, value in attributes.items()),
            *({"key": key, "value": {"intValue": value}} for key, value in counts.items()),
        ],
    }


class DrillReceiver:
    """
    The upstream: a webhook receiver on loopback that can be down, or reject one record.

    It remembers idempotency keys, as the cost service does, so a repeated request with the same key counts once.
    """

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.is_down = False
        self.poison = ""
        self._keys: set[str] = set()
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.receive_delivery(body, self.headers.get("Idempotency-Key", "")))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *values: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def receive_delivery(self, body: bytes, key: str) -> int:
        names = [record["request_id"] for record in json.loads(body)["records"]]
        with self._lock:
            if self.is_down:
                return 503
            if self.poison in names:
                return 400
            if key not in self._keys:
                self._keys.add(key)
                self.taken.update(names)
        return 200

    def names_received_twice(self) -> set[str]:
        with self._lock:
            return {name for name, times in self.taken.items() if times > 1}

    def names_not_received(self, names: set[str]) -> set[str]:
        with self._lock:
            return names - self.taken.keys()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class PowerCutFailed(Exception):
    """Raised if a drill cannot simulate a power cut. The message names the missing prerequisite."""


class PowerCutDisk:
    """
    A file system whose power can be cut: ext4 in an image file next to the data directory. Mounting it needs root.

    `cut_power` uses the ext4 shutdown call with which the kernel tests its file systems, and loses everything that
    was not flushed. `mount` replays the journal, as a boot does.
    """

    def __init__(self, scratch: Path) -> None:
        self.directory = scratch / "disk"
        self._image = scratch / "disk.img"
        if os.geteuid() != 0:
            raise PowerCutFailed("mounting a test file system needs root")
        for command in ("mkfs.ext4", "mount", "umount"):
            if shutil.which(command) is None:
                raise PowerCutFailed(f"the command {command} is missing")
        self.directory.mkdir()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run_program_or_fail("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        _run_program_or_fail("mount", "-o", "loop", str(self._image), str(self.directory))

    def cut_power(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_FLUSH)
        except OSError as error:
            raise PowerCutFailed(f"this kernel cannot shut down a file system: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Unmount the file system. Retries, because a process that has just ended may still hold it."""
        for _ in range(_UNMOUNT_TRIES):
            if not os.path.ismount(self.directory):
                return
            subprocess.run(["umount", str(self.directory)], capture_output=True, check=False)
            time.sleep(0.1)
        raise PowerCutFailed(f"{self.directory} cannot be unmounted")


def _run_program_or_fail(*words: str) -> None:
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode:
        raise PowerCutFailed(f"{words[0]} failed: {result.stderr.strip()[-200:]}")
