"""The installed command as an operator runs it: real processes, real files, real sockets on port 0."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.core.paths import AS, OPERATOR_API, socket_path
from tests.processes.copied import COMMAND as COMMAND
from tests.processes.copied import ROOT as ROOT
from tests.processes.copied import Process, run_process, start_process
from tests.waiting import wait_until

SEND_AI_TELEMETRY = "Send AI Telemetry"

ARCHIVE = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
{server}
[spool]
hold = "{hold}"
[[destinations]]
name = "archive"
type = "ndjson"
path = "records.ndjson"
{more}
"""
# The interval is long, because a device counts as offline after three intervals without a heartbeat.
DEVICES = """
[devices]
heartbeat_interval = "1d"
"""

_ONE_COMMAND = threading.Lock()  # in-process commands share standard output and the working directory


class Tollhouse:
    """One installation in its own directory: configuration, data, and at most one running server."""

    verb = "serve"

    def __init__(self, directory: Path, config: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.config = directory / "tollhouse.toml"
        self.config.write_text(config)
        self.make_data_directory()
        self.process: Process | None = None
        self.url = ""
        self.log: list[str] = []

    @property
    def archive(self) -> Path:
        return self.directory / "records.ndjson"

    def run(self, *words: str, code: int = 0, config: bool = True) -> str:
        done = self.attempt(*words, config=config)
        assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def attempt(
        self, *words: str, config: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        where = ["--config", str(self.config)] if config else []
        return run_process([str(COMMAND), *words, *where], cwd=self.directory, env=env)

    def json(self, *words: str, code: int = 0) -> Any:
        """
        Run a command with --json inside this process; return its output.

        It saves half a second of processor time per command, so it suits the preparation and assertions
        of a test.
        """
        with ThreadPoolExecutor(
            max_workers=1
        ) as thread:  # a separate thread, because a command runs its own event loop
            done = thread.submit(self._invoke, *words, "--json").result()
        assert done.exit_code == code, f"{words}: exit {done.exit_code}\n{done.output}\n{done.exception!r}"
        return json.loads(done.stdout)

    def _invoke(self, *words: str) -> Result:
        with _ONE_COMMAND, chdir(self.directory):
            return CliRunner().invoke(main, [*words, "--config", str(self.config)])

    def key(self, name: str, *grants: str) -> str:
        grants = grants or ("--use-case", SEND_AI_TELEMETRY)
        secret: str = self.json("keys", "create", "--name", name, *grants)["secret"]
        return secret

    def start(
        self,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = (str(COMMAND),),
        *,
        more: Sequence[str] = (),
        close_fds: bool = True,
        is_new: bool = False,
    ) -> str:
        """
        Start a server; return its address once it is ready. `is_new` has the meaning of `start_process`.
        """
        assert self.process is None
        self.process = start_process(
            [*command, self.verb, "--config", str(self.config), *more],
            cwd=self.directory,
            env={**os.environ, **(env or {})},
            is_read=True,
            close_fds=close_fds,
            is_new=is_new,
        )
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._collect, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if found := re.fullmatch(r"listening on (http://\S+)\n", line):
                self.url = found[1]
                return self.url
        raise AssertionError(f"not ready: exit {self.process.poll()}\n" + "\n".join(self.log[-20:]))

    def grpc_url(self) -> str:
        """Return the gRPC address of the running server, from the line after the one that `start` read."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.readline().removeprefix("listening on grpc://").strip()

    def _collect(self, stream: Any) -> None:
        for line in stream:
            self.log.append(line.rstrip("\n"))

    def stop(self, how: int = signal.SIGTERM, code: int | None = 0) -> None:
        """Send the signal to the server and wait until it ends."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        returned = process.wait()
        self._reader.join()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
        if code is not None:
            assert returned == code, "\n".join(self.log[-20:])

    def kill(self) -> None:
        self.stop(signal.SIGKILL, code=None)

    def take_over(self, env: Mapping[str, str] | None = None) -> None:
        """Start another process that takes over. The first one must exit with 0."""
        first, self.process = self.process, None
        assert first is not None
        reader = self._reader
        self.start(env, more=["--take-over"])
        assert 0 == first.wait()
        reader.join()
        for stream in (first.stdout, first.stderr):
            assert stream is not None
            stream.close()

    def records(self) -> list[dict[str, Any]]:
        """
        Read the record file. A torn last line is an error unless a running server completes it.

        Acknowledged records are first in the spool. They are in this file once the route is
        drained, see `wait_until_drained`.
        """
        text = b""

        def is_whole() -> bool:
            nonlocal text
            text = self.archive.read_bytes() if self.archive.exists() else b""
            return not text or text.endswith(b"\n")

        if not is_whole() and self.process is not None:
            wait_until(is_whole, "the end of the last line")
        return [json.loads(line) for line in text.split(b"\n") if line]

    def wait_until_drained(self, route: str = "archive/ai-telemetry") -> None:
        """
        Wait until the route has delivered everything acknowledged. Call it before a stop if the test reads
        the destination later.
        """
        wait_until(lambda: self.queued(route) == 0, f"{route} drained")

    def queued(self, route: str) -> int:
        return int(self.route(route)["queued"])

    def route(self, name: str) -> dict[str, Any]:
        """Return the route's row of `spool status`."""
        status = self.json("spool", "status") if self.process is None else self.asked("/status")
        found: dict[str, Any] = next(row for row in status["routes"] if row["route"] == name)
        return found

    def make_data_directory(self) -> None:
        """Create the data directory like `tollhouse init`, for commands before the first start."""
        named = re.search(r'^data_dir = "(.+)"$', self.config.read_text(), re.MULTILINE)
        (self.directory / (named[1] if named else "tollhouse-data")).mkdir(
            mode=0o700, parents=True, exist_ok=True
        )

    @property
    def data(self) -> Path:
        return self.directory / str(tomllib.loads(self.config.read_text()).get("data_dir", "tollhouse-data"))

    def asked(self, path: str) -> Any:
        """
        Send a GET request to the running server's socket, like a command.

        Use it for polling, because a command is a process that takes a second of processor time to start.
        """
        connection = UnixConnection(socket_path(self.data))
        try:
            connection.request("GET", OPERATOR_API + path, headers={AS: "test"})
            answer = connection.getresponse()
            payload = json.loads(answer.read())
        finally:
            connection.close()
        assert 200 == answer.status, payload
        return payload


class UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("tollhouse", timeout=60)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


@pytest.fixture
def installations(tmp_path: Path) -> Iterator[Any]:
    """Return a function that creates installations, and kill their servers at the end."""
    made: list[Tollhouse] = []

    def make(
        name: str = "one",
        *,
        config: str | None = None,
        server: str = "",
        hold: str = "0s",
        more: str = "",
        kind: type[Tollhouse] = Tollhouse,
    ) -> Tollhouse:
        if "[devices]" not in more:
            more += DEVICES
        text = ARCHIVE.format(server=server, hold=hold, more=more) if config is None else config
        made.append(kind(tmp_path / name, text))
        return made[-1]

    yield make
    for installation in made:
        installation.stop(signal.SIGKILL, code=None)
