"""Run one load on a target, with a sink and a load generator as separate processes, and measure it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import ROOT
from tests.bench.load import payloads, traces
from tests.bench.load.job import LoadFigures, LoadJob
from tests.bench.load.unfamiliar import unfamiliar_spans
from tests.bench.server import meters, profiles, targets
from tests.bench.server.scenarios import Scenario
from tests.bench.server.targets import Running

PATHS = {
    "spans": "/v1/traces",
    "trees": "/v1/traces",
    "mixed": "/v1/traces",
    "unfamiliar": "/v1/traces",
    "real": "/v1/traces",
    "conversations": "/v1/traces",
    "litellm": "/v1/ai-telemetry/litellm",
    "fleet": "/v1/ai-telemetry/litellm",
    "events": "/v1/events",
    "heartbeats": "/v1/ai-control-plane/heartbeat",
    "counters": "/v1/metrics",
}
USERS_OF_ONE_BODY = 50  # with at most this number of users, one body has the calls of all users
LOOK_S = 5.0  # seconds between two reads of the loop lag metric, which reports the worst of the last 15 s
# limit without a new record at the sink; a busy disk may stall for seconds
STANDSTILL_S = 60.0
METRICS_AGE_S = 1.1
BEYOND_S = 120.0  # seconds beyond the expected end after which a generator counts as hung


@dataclass(kw_only=True)
class Figures:
    """
    Figures of one target under one load, until everything is delivered. CPU, bytes and commits are per record.
    """

    scenario: str
    target: str
    requests: int = 0
    records: int = 0
    accepted_per_s: float = 0.0
    delivered_per_s: float | None = None
    cpu_us: float = 0.0
    instructions: float | None = None
    latencies_ms: dict[str, float] = field(default_factory=dict)
    written_bytes: float = 0.0
    commits: float | None = None
    peak_mib: float = 0.0
    ready_s: float | None = None
    lag_ms: float | None = None
    refused: dict[str, int] = field(default_factory=dict)
    broken: int = 0
    undelivered: int = 0
    load_busy: float = 0.0  # number of cores that the generator and the sink used during the load
    others_busy: float = 0.0  # number of cores that other processes used during the load

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """
    Options of a round. `warm_up` and `seconds` are durations of the load; 0 omits the warm-up. `profile` is
    the directory for profiles; None takes none.

    Counting commits adds two seconds, because `/metrics` is rendered once a second.
    """

    seconds: float = 8.0
    warm_up: float = 1.0
    server_cores: int = 1
    profile: Path | None = None
    counts_commits: bool = True


class LoadSink:
    """Client of the sink process."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.pid = process.pid
        self.url = url

    def figures(self) -> dict[str, int]:
        return dict(self._ask("figures"))

    def ids(self) -> Mapping[str, int]:
        """Return how often each record arrived. Empty unless the sink was set to `keep` ids."""
        return dict(self._ask("ids"))

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/{what}", timeout=120) as answer:
            return json.load(answer)

    def behave(self, **wish: object) -> None:
        body = json.dumps(wish).encode()
        request = urllib.request.Request(f"{self.url}/behaviour", body, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    def wait(self, expected: int, *, patience_s: float = STANDSTILL_S) -> tuple[int, float]:
        """
        Wait until the sink has `expected` records or no more arrive; return their number and the time
        of the last.
        """
        have, since = -1, time.perf_counter()
        while True:
            now, records = time.perf_counter(), self.figures()["records"]
            if records != have:
                have, since = records, now
            if have >= expected or now - since > patience_s:
                return have, since
            time.sleep(0.05)


@contextmanager
def sink(cores: set[int]) -> Iterator[LoadSink]:
    with targets.program("tests.bench.load.sink", cores=cores) as (process, (url,)):
        yield LoadSink(process, url)


def bodies_of(scenario: Scenario) -> Iterator[bytes]:
    """Yield the prepared bodies of a scenario, as many as its users, devices or series need."""
    size = scenario.items
    if scenario.kind == "heartbeats":
        yield from (payloads.heartbeat(number) for number in range(scenario.devices))
    elif scenario.kind == "counters":
        yield from (payloads.counter_points(size, first=first) for first in range(0, scenario.series, size))
    elif scenario.kind == "litellm":
        yield payloads.litellm_events(size)
    elif scenario.kind == "fleet":
        yield from payloads.fleet_events(size)
    elif scenario.kind == "events":
        yield payloads.usage_events(size)
    elif scenario.kind == "trees":
        yield traces.tree_spans(size)
    elif scenario.kind == "mixed":
        yield from traces.captured_spans()
    elif scenario.kind == "unfamiliar":
        yield from unfamiliar_spans(size, scenario.seed)
    elif scenario.kind in ("real", "conversations"):
        for service in range(payloads.REAL_SERVICES):
            yield payloads.real_spans(size, service, conversation_of_span=scenario.kind == "conversations")
    elif scenario.form == "json":
        yield payloads.json_spans(size)
    else:
        for first in range(0, max(1, scenario.users), size) if scenario.users > USERS_OF_ONE_BODY else (0,):
            yield payloads.protobuf_spans(size, first=first, users=scenario.users, age_s=scenario.age_s)


def write_bodies(scenario: Scenario, directory: Path) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, body in enumerate(bodies_of(scenario)):
        paths.append(directory / f"{number}.body")
        paths[-1].write_bytes(body)
    return [str(path) for path in paths]


def job_of(scenario: Scenario, running: Running, directory: Path, seconds: float) -> LoadJob:
    media = "application/x-protobuf" if scenario.form == "protobuf" else "application/json"
    headers = {} if scenario.is_grpc else {"Content-Type": media}
    return LoadJob(
        url=running.grpc_url if scenario.is_grpc else running.url,
        path=PATHS[scenario.kind],
        headers=headers | dict(running.headers),
        keys=running.keys,
        bodies=write_bodies(scenario, directory),
        compression=scenario.compression,
        clients=scenario.clients,
        seconds=seconds,
        rate=scenario.rate / scenario.items,
    )


def start_load(job: LoadJob, cores: set[int], *, grpc: bool = False) -> subprocess.Popen[str]:
    """Start the generator process. `load_figures` reads its output."""
    module = "tests.bench.load.grpc_generator" if grpc else "tests.bench.load.generator"
    with meters.affinity(cores):
        process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
    assert process.stdin is not None
    process.stdin.write(job.to_json())
    process.stdin.close()
    process.stdin = None
    return process


def load_figures(process: subprocess.Popen[str]) -> LoadFigures:
    """
    Return the generator's final output. `communicate` with a timeout would lose data that was buffered after
    an earlier line.
    """
    assert process.stdout is not None
    late = threading.Timer(BEYOND_S, process.kill)
    late.start()
    with process.stdout as stdout:
        said = stdout.read()
    code = process.wait()
    late.cancel()
    assert code == 0, "the load generator failed"
    return LoadFigures.from_json(said.splitlines()[-1])


def watch_lag(process: subprocess.Popen[str], running: Running, seconds: float) -> float | None:
    """Return the worst loop lag in milliseconds by the server's metric, until the generator ends."""
    worst = None
    deadline = time.perf_counter() + seconds + BEYOND_S
    while process.poll() is None and time.perf_counter() < deadline:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
        if running.has_metrics:
            worst = max(worst or 0.0, meters.metrics(running.url)["tollhouse_loop_lag_seconds"] * 1000)
    return worst


def measure(
    scenario: Scenario,
    target: str,
    running: Running,
    upstream: LoadSink,
    work: Path,
    options: RoundOptions,
    first: int = 0,
) -> Figures:
    """
    Run the warm-up if the scenario has one, then the load, and wait until everything is delivered.

    Requests are numbered from `first`.
    """
    _, load_cores = meters.cores_for(options.server_cores)
    job = replace(job_of(scenario, running, work / "bodies", options.warm_up), first=first)
    had = upstream.figures()["records"]
    warm = LoadFigures()
    if options.warm_up:
        warm = load_figures(start_load(job, load_cores, grpc=scenario.is_grpc))
    follows = running.forwards and scenario.is_forwarded
    if follows:
        upstream.wait(had + warm.accepted * scenario.calls)
    else:
        wait_for_routes(scenario, running)
    counts_commits = options.counts_commits and running.has_metrics
    commits = commits_of(running) if counts_commits else 0.0
    before = Readings(running, upstream)
    job = replace(job, seconds=options.seconds, first=first + warm.sent)
    profiled = (
        profiles.flame_graph(running.pid, options.profile / f"{scenario.name}-{target}.svg", options.seconds)
        if options.profile
        else nullcontext()
    )
    began = time.perf_counter()
    with profiled, meters.instructions(running.pid) as counted:
        process = start_load(job, load_cores, grpc=scenario.is_grpc)
        lag = watch_lag(process, running, options.seconds)
        load = load_figures(process)
        loaded = Readings(running, upstream)
        records = load.accepted * scenario.items
        due = before.sink["records"] + load.accepted * scenario.calls
        arrived, last = upstream.wait(due) if follows else (0, 0.0)
        if not follows:
            wait_for_routes(scenario, running)
    after = Readings(running, upstream)
    elapsed = loaded.at - before.at
    load_busy = load.cpu_seconds + loaded.sink_cpu - before.sink_cpu
    strangers = loaded.busy - before.busy - (loaded.cpu - before.cpu) - load_busy
    per_record = max(records, 1)
    return Figures(
        scenario=scenario.name,
        target=target,
        requests=load.accepted,
        records=records,
        accepted_per_s=records / load.seconds,
        delivered_per_s=(arrived - before.sink["records"]) / (last - began) if follows else None,
        cpu_us=(after.cpu - before.cpu) / per_record * 1e6,
        instructions=counted["instructions"] / per_record if counted else None,
        latencies_ms=load.latencies_ms,
        written_bytes=(after.written - before.written) / per_record,
        commits=(commits_of(running) - commits) / per_record if counts_commits else None,
        peak_mib=meters.peak_mib(running.pid),
        ready_s=running.ready_s or None,
        lag_ms=lag,
        refused=load.refused,
        broken=load.broken,
        undelivered=due - arrived if follows else 0,
        load_busy=load_busy / elapsed,
        others_busy=max(0.0, strangers / elapsed),
    )


def commits_of(running: Running) -> float:
    """Return the number of commits. `/metrics` may be one second old."""
    time.sleep(METRICS_AGE_S)
    return meters.metrics(running.url)["tollhouse_flush_seconds_count"]


def wait_for_routes(scenario: Scenario, running: Running) -> None:
    """Wait until the server's routes stop shrinking, if the sink does not know how many records to expect."""
    if scenario.kind != "mixed" or not running.has_metrics:
        return
    deadline, queued = time.perf_counter() + STANDSTILL_S, float("inf")
    while queued and time.perf_counter() < deadline:
        time.sleep(METRICS_AGE_S)
        before, queued = queued, meters.metrics(running.url)["tollhouse_route_queued_records"]
        if queued >= before:
            return


class Readings:
    """Values of all meters at one moment."""

    def __init__(self, running: Running, upstream: LoadSink) -> None:
        self.at = time.perf_counter()
        self.cpu = meters.cpu_seconds(running.pid)
        self.written = meters.written_bytes(running.pid)
        self.busy = meters.busy_seconds()
        self.sink_cpu = meters.cpu_seconds(upstream.pid)
        self.sink = upstream.figures()
