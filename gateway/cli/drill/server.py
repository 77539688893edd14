"""The server under test: a separate process, `python -m gateway.cli.drill.server`, which can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path

from exporters.settings import DestinationSettings, UpstreamSettings
from gateway.cli import load_config_or_exit
from gateway.cli.serve import run_app_until_stopped
from gateway.configuration.sections import Config, DeviceSettings, LoggingSettings
from gateway.configuration.server import ServerSettings
from gateway.monitoring import logs

READY_S = 60.0
STOP_S = 40.0
# maximum spool.hold of the server under test, because a drill waits several times for records to close
MOST_HOLD_S = 10.0
DATA = "data"


class DrillFailed(Exception):
    """Raised if the server under test of a drill failed. The message quotes its last output."""


class DrillServer:
    """
    The process of the server under test, with its data in the scratch directory. After each `kill`, `start`
    uses another address.
    """

    def __init__(self, config: Path | None, *, scratch: Path, receiver: str) -> None:
        self._config = config
        self._scratch = scratch
        self._receiver = receiver
        self._process: subprocess.Popen[str] | None = None
        self._said: deque[str] = deque(maxlen=5)
        self._listening = threading.Thread()
        self.url = ""
        self.key = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it is ready."""
        # Each start uses a new port, because another program may have taken the previous port.
        arguments = [str(self._config or ""), str(self._scratch), self._receiver, "127.0.0.1:0"]
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli.drill.server", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._listening = threading.Thread(target=self._said.extend, args=(process.stderr,), daemon=True)
        self._listening.start()
        timer = threading.Timer(READY_S, process.kill)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if not line:
            self.kill()
            raise DrillFailed(
                f"the server under test did not start: {' '.join(self._said)[-1000:] or 'it printed nothing'}"
            )
        ready = json.loads(line)
        self.url, self.key = ready["url"], ready["key"] or self.key

    def suspend_process(self) -> None:
        """Stop all threads of the server, and return when none of them runs any more."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """Send SIGKILL, as a crash or the kernel's out-of-memory killer would."""
        self._end_process(signal.SIGKILL)

    def stop(self) -> None:
        self._end_process(signal.SIGTERM)

    def _end_process(self, signal_number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listening.join()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def drill_config(config: Config, *, scratch: Path, receiver: str, listen: str) -> Config:
    """
    Return a configuration for the server under test.

    It uses the scratch directory, one destination on loopback, no upstream, no devices and no public address.
    Limits, retention, prices, attribution and privacy stay those of the operator.
    """
    server = ServerSettings(
        listen=listen,
        grpc_listen="",
        max_body_bytes=config.server.max_body_bytes,
        max_inflight_bytes=config.server.max_inflight_bytes,
    )
    return replace(
        config,
        data_dir=scratch / DATA,
        server=server,
        spool=replace(config.spool, hold=min(config.spool.hold, MOST_HOLD_S)),
        upstream=UpstreamSettings(),
        destinations=(DestinationSettings(name="drill", type="webhook", url=receiver),),
        devices=DeviceSettings(policy="closed"),
        sources={},
        streams=(),
        publish=(),
        log=LoggingSettings(level="warning"),
    )


async def _run_drill_server(config: Config) -> int:
    from gateway.service.app import TollhouseApp

    app = TollhouseApp(config, version="drill")

    async def print_url_and_key() -> None:
        print(json.dumps({"url": app.url, "key": await app.create_first_key()}), flush=True)

    return await run_app_until_stopped(app, print_url_and_key)


def main() -> int:
    """Run the server with the arguments that `DrillServer.start` passes."""
    config, scratch, receiver, listen = sys.argv[1:]
    settings = load_config_or_exit(Path(config) if config else None)
    copy = drill_config(settings, scratch=Path(scratch), receiver=receiver, listen=listen)
    logs.start_logging(copy.log.level)
    return asyncio.run(_run_drill_server(copy))


if __name__ == "__main__":
    sys.exit(main())
