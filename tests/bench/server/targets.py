"""
Measured targets: Tollhouse, Tollhouse without the flush or without decoding, and the yardstick. Each has
its own processes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.conftest import COMMAND, ROOT, Tollhouse
from tests.bench.server import backlog
from tests.bench.server.meters import affinity

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = "{grpc}"
[spool]
hold = "500ms"
[upstream]
base_url = "{sink}"
[[upstream.keys]]
name = "telemetry"
secret_env = "SINK_KEY"
use_cases = ["Send AI Telemetry"]
"""
SCOPES = (
    "ai-telemetry-ingest:ingest-ai-telemetry",
    "events_v1:create_event",
    "ai-control-plane:enroll-device",
    "ai-control-plane:heartbeat-device",
)
COMMANDS = {"tollhouse": (str(COMMAND),), "unflushed": (sys.executable, "-m", "tests.bench.unflushed")}
PROFILED = (sys.executable, "-m", "tests.bench.profiled")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that is measured under load."""

    pid: int
    url: str
    grpc_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()  # several keys instead of the single key in `headers`
    ready_s: float = 0.0  # seconds from the start of the process until the server is ready
    forwards: bool = False  # whether accepted records are forwarded to the sink
    has_metrics: bool = False


@contextmanager
def tollhouse(
    directory: Path,
    sink: str,
    *,
    name: str = "tollhouse",
    cores: set[int],
    grpc: bool = False,
    prepare: Callable[[Path], object] | None = None,
    profile: Path | None = None,
    keys: int = 1,
) -> Iterator[Running]:
    """
    Start an installation with a key for every kind of load. `prepare` may fill its directory. With `profile`
    it runs slowly under cProfile and writes the profile there when it stops. With several `keys` the load uses
    the keys in turn.
    """
    installation = Tollhouse(directory, CONFIG.format(sink=sink, grpc="127.0.0.1:0" if grpc else ""))
    if prepare is not None:
        prepare(directory)
    key = installation.key("load", *(word for scope in SCOPES for word in ("--scope", scope)))
    others = backlog.add_keys(directory, keys) if keys > 1 else ()
    command = (*PROFILED, str(profile)) if profile else COMMANDS[name]
    try:
        began = time.perf_counter()
        with affinity(cores):
            url = installation.start({"SINK_KEY": "sink"}, command, is_new=True)
        assert installation.process is not None
        yield Running(
            pid=installation.process.pid,
            url=url,
            ready_s=time.perf_counter() - began,
            grpc_url=installation.grpc_url() if grpc else "",
            headers={"Authorization": key},
            keys=others,
            forwards=True,
            has_metrics=True,
        )
    finally:
        installation.stop(code=None)


@contextmanager
def program(module: str, *words: str, cores: set[int]) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """
    Start a benchmark module as a process; yield it and the addresses that it prints, one per line, once it listens.
    """
    with affinity(cores):
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
    assert process.stdout is not None
    try:
        lines = process.stdout.readline().split()
        assert lines[:2] == ["listening", "on"], f"{module} did not start"
        yield process, lines[2:]
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@contextmanager
def yardstick(*, cores: set[int]) -> Iterator[Running]:
    """Start bare handlers that decode requests and store nothing."""
    with program("tests.bench.yardstick", cores=cores) as (process, (url, grpc_url)):
        yield Running(pid=process.pid, url=url, grpc_url=grpc_url)
