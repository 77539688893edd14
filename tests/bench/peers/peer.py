"""
Interface of a compared server: start it, kill it, restart it at the same address, and count its stored records.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.acceptance.conftest import COMMAND, SEND_AI_TELEMETRY, Tollhouse
from tests.bench.server import targets
from tests.bench.server.meters import affinity
from tests.bench.server.rounds import LoadSink
from tests.bench.server.targets import Running

START_S = 180.0  # limit for a start; some peers first create a database


class Unavailable(Exception):
    """A peer cannot run on this machine; the message says why."""


class Peer(Protocol):
    """A server to compare, installed in its own directory."""

    def start(self) -> Running: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...

    def kept(self, upstream: LoadSink, expected: int) -> tuple[Mapping[str, int], str]:
        """
        Return how often each record arrived or is stored, and a remark. Wait until `expected` records exist
        or no more arrive.
        """
        ...


MakePeer = Callable[[Path, str, set[int]], Peer]  # the arguments are directory, upstream address and cores


def arrived(upstream: LoadSink, expected: int) -> Mapping[str, int]:
    upstream.wait(expected, patience_s=60.0)
    time.sleep(1.0)  # wait a moment, because a duplicate may follow the last record
    return upstream.ids()


class TollhousePeer:
    """
    This checkout, or the checkout of `command`. `path` is added to the modules that the server can import, such as
    the compiled module.
    """

    def __init__(
        self,
        directory: Path,
        upstream: str,
        cores: set[int],
        *,
        command: Path = COMMAND,
        path: Path | None = None,
    ) -> None:
        self._installation = Tollhouse(directory, targets.CONFIG.format(sink=upstream, grpc=""))
        self._command = command
        self._path = str(path or "")
        config = ["--config", str(self._installation.config)]
        made = subprocess.run(
            [command, "keys", "create", "--name", "load", "--use-case", SEND_AI_TELEMETRY, "--json", *config],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        self._key = json.loads(made.stdout)["secret"]
        self._cores = cores

    def start(self) -> Running:
        url = self._installation.url
        where = {"TOLLHOUSE_SERVER__LISTEN": url.removeprefix("http://")} if url else {}
        began = time.perf_counter()
        with affinity(self._cores):
            url = self._installation.start(
                {"SINK_KEY": "sink", "PYTHONPATH": self._path, **where}, (str(self._command),), is_new=True
            )
        assert self._installation.process is not None
        return Running(
            pid=self._installation.process.pid,
            url=url,
            headers={"Authorization": self._key},
            ready_s=time.perf_counter() - began,
            forwards=True,
            has_metrics=True,
        )

    def kill(self) -> None:
        self._installation.kill()

    def stop(self) -> None:
        self._installation.stop(code=None)

    def kept(self, upstream: LoadSink, expected: int) -> tuple[Mapping[str, int], str]:
        ids = arrived(upstream, expected)
        repeated = upstream.figures()["repeated_deliveries"]
        return ids, f"{repeated} deliveries came again under their idempotency key" if repeated else ""


@dataclass(kw_only=True)
class ProcessPeer:
    """A command that listens on `port`. Without `stored`, the records at the upstream count as stored."""

    command: Sequence[str]
    port: int
    directory: Path
    cores: set[int]
    environment: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    health: str = "/"
    stored: Callable[[], Counter[str]] | None = None
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> Running:
        began = time.perf_counter()
        with affinity(self.cores), (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        url = f"http://127.0.0.1:{self.port}"
        while not self._answers(url + self.health):
            if self._process.poll() is not None or time.perf_counter() - began > START_S:
                self.kill()
                raise Unavailable(f"{self.command[0]} did not start: {self._last_words()}")
            time.sleep(0.02)
        return Running(
            pid=self._process.pid,
            url=url,
            headers=self.headers,
            ready_s=time.perf_counter() - began,
            forwards=self.stored is None,
        )

    def _answers(self, url: str) -> bool:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def _last_words(self) -> str:
        lines = (self.directory / "log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: int) -> None:
        """Signal the process and its children, which share a session."""
        process, self._process = self._process, None
        if process is None:
            return
        for each in (how, signal.SIGKILL):
            try:
                os.killpg(process.pid, each)
                process.wait(120)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue

    def kept(self, upstream: LoadSink, expected: int) -> tuple[Mapping[str, int], str]:
        if self.stored is None:
            return arrived(upstream, expected), ""
        have, since = -1, time.perf_counter()
        while have < expected and time.perf_counter() - since < 60.0:
            stored = self.stored()
            if len(stored) != have:
                have, since = len(stored), time.perf_counter()
            time.sleep(1.0)
        return stored, "counted in its database"
