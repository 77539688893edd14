"""Measure the victim's rate on one server, with and without an abuser."""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

from spool.registry.scopes import SCOPES
from tests.acceptance.conftest import ROOT, SEND_AI_TELEMETRY, Tollhouse
from tests.bench.fairness.abusers import PROTOBUF, Abuser
from tests.bench.load import payloads
from tests.bench.load.job import LoadFigures, LoadJob, quantiles
from tests.bench.server import meters
from tests.bench.server.meters import affinity
from tests.spool.postgres_cluster import Server, folder, storage_table

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = "127.0.0.1:0"
{server}
[spool]
hold = "0s"
max_bytes = "8GiB"
[mcp]
calls_per_minute = 1000000
daily_calls = 0
{storage}
"""
PAUSE_S = 0.02
NICE = (
    19  # priority of the abuser's clients, so low that they take no processor time from the victim's client
)
BEYOND_S = 120.0
IDLE = 0.15  # cores that an idle server may use
SETTLE_S = 20.0
_firsts = itertools.count(0, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class Stand:
    """A running server, with a key for the victim and a key with all rights for the abuser."""

    pid: int
    url: str
    grpc_url: str
    victim: str
    abuser: str
    cookie: str
    connection: str
    work: Path
    load_cores: set[int]


@dataclass(frozen=True, kw_only=True)
class Share:
    """
    The victim's rate and p99 latency with and without an abuser.

    `slices` holds the pairs of figures, without and with the abuser, that the totals are made of.
    """

    abuser: str
    slices: Sequence[tuple[LoadFigures, LoadFigures]]
    load: LoadFigures

    @property
    def alone(self) -> LoadFigures:
        return together([alone for alone, _ in self.slices])

    @property
    def beside(self) -> LoadFigures:
        return together([beside for _, beside in self.slices])

    @property
    def rate(self) -> float:
        return _rate(self.alone, self.beside)

    @property
    def p50(self) -> float:
        return _slower("p50", self.alone, self.beside)

    @property
    def p99(self) -> float:
        return _slower("p99", self.alone, self.beside)

    def spread(self) -> tuple[float, float]:
        alone = self.alone
        found = [_slower("p99", alone, beside) for _, beside in self.slices]
        return min(found), max(found)


def together(slices: Sequence[LoadFigures]) -> LoadFigures:
    """Add up the slices of one client or flood. Quantiles cover all requests."""
    found = LoadFigures()
    for each in slices:
        found.sent += each.sent
        found.accepted += each.accepted
        found.broken += each.broken
        found.seconds += each.seconds
        found.cpu_seconds += each.cpu_seconds
        found.each_ms += each.each_ms
        for status, count in each.refused.items():
            found.refused[status] = found.refused.get(status, 0) + count
    found.latencies_ms = quantiles([milliseconds / 1000 for milliseconds in found.each_ms])
    return found


def _rate(alone: LoadFigures, beside: LoadFigures) -> float:
    alone_rate = alone.accepted / alone.seconds
    return beside.accepted / beside.seconds / max(alone_rate, 1e-9)


def _slower(quantile: str, alone: LoadFigures, beside: LoadFigures) -> float:
    slowest = beside.latencies_ms.get(quantile, float("inf"))
    return slowest / alone.latencies_ms.get(quantile, 1.0)


@contextmanager
def postgres(engine: str) -> Iterator[Server | None]:
    """Yield a PostgreSQL server that flushes if the engine needs it, otherwise None."""
    if engine != "postgres":
        yield None
        return
    with folder() as place:
        server = Server(place, {})
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def stand(
    work: Path, *, database: Server | None = None, schema: str = "bench", server: str = ""
) -> Iterator[Stand]:
    """
    Start an installation on its own cores, and keep the other cores for all clients. `server` has
    further server settings.
    """
    work.mkdir(parents=True, exist_ok=True)
    storage = storage_table(work, dsn=database.dsn, schema=schema) if database else ""
    own = Tollhouse(work / "own", CONFIG.format(storage=storage, server=server))
    if database:
        own.run("storage", "init")
    victim = own.key("victim", "--use-case", SEND_AI_TELEMETRY)
    abuser = own.key("abuser", *(word for scope in sorted(SCOPES) for word in ("--scope", scope)))
    cores, load_cores = meters.cores_for(1)
    try:
        with affinity(cores):
            url = own.start(is_new=True)
        assert own.process is not None
        grpc_url = own.grpc_url()
        _ask(url, "PUT", "/unit-cost/v1/telemetry/allocation/bench", abuser, {"granularity": "DAILY"})
        made = _ask(
            url, "POST", "/v2/connections/billing", abuser, {"name": "bench", "cloud_provider": "MongoDB"}
        )
        yield Stand(
            pid=own.process.pid,
            url=url,
            grpc_url=grpc_url,
            victim=victim,
            abuser=abuser,
            cookie=_signed_in(own, url),
            connection=made["connection"]["id"],
            work=work,
            load_cores=load_cores,
        )
    finally:
        own.stop(code=None)


def _ask(url: str, method: str, path: str, key: str, body: Mapping[str, object]) -> dict[str, dict[str, str]]:
    headers = {"Authorization": key, "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
    return found


def _signed_in(own: Tollhouse, url: str) -> str:
    link = own.json("console", "link")["link"].partition("#link=")[2]
    body = json.dumps({"link": link}).encode()
    request = urllib.request.Request(
        f"{url}/console/api/sessions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = re.match(r"[^;]+", answer.headers["Set-Cookie"])
    assert found is not None
    return found[0]


def measure(running: Stand, abuser: Abuser, *, seconds: float, slices: int = 1) -> Share:
    """
    Measure `seconds` of the victim without and with the abuser, which starts one second earlier. The two
    measurements alternate, so that a slower machine affects both.
    """
    pairs, loads = [], []
    for _ in range(slices):
        settle(running)
        alone = _victim(running, seconds / slices)
        load = abuser_job(running, abuser, seconds / slices + 2)
        flood = _begin(_generator(abuser), load, running, nice=NICE)
        time.sleep(1.0)
        pairs.append((alone, _victim(running, seconds / slices)))
        loads.append(_end(flood))
    return Share(abuser=abuser.name, slices=pairs, load=together(loads))


def _generator(abuser: Abuser) -> str:
    if abuser.repeated:
        return "tests.bench.load.endless"
    return "tests.bench.load.grpc_generator" if abuser.is_grpc else "tests.bench.load.generator"


def _victim(running: Stand, seconds: float) -> LoadFigures:
    return _end(_begin("tests.bench.fairness.steady", victim_job(running, seconds), running))


def settle(running: Stand) -> None:
    """Wait until the server is idle, because it counts records in totals only after it answered."""
    deadline = time.perf_counter() + SETTLE_S
    while time.perf_counter() < deadline:
        before = meters.cpu_seconds(running.pid)
        time.sleep(0.5)
        if (meters.cpu_seconds(running.pid) - before) / 0.5 < IDLE:
            return


def victim_job(running: Stand, seconds: float) -> LoadJob:
    body = running.work / "victim.body"
    body.write_bytes(payloads.protobuf_spans(1))
    return LoadJob(
        url=running.url,
        headers={**PROTOBUF, "Authorization": running.victim},
        bodies=[str(body)],
        seconds=seconds,
        pause_s=PAUSE_S,
        first=next(_firsts) % 100_000_000,
    )


def abuser_job(running: Stand, abuser: Abuser, seconds: float) -> LoadJob:
    body = running.work / f"{abuser.name}.body"
    body.write_bytes(abuser.make())
    repeated = running.work / f"{abuser.name}.repeated"
    repeated.write_bytes(abuser.repeated)
    headers = dict(abuser.headers)
    if abuser.as_person:
        headers["Cookie"] = running.cookie
    elif abuser.has_key:
        headers["Authorization"] = running.abuser
    return LoadJob(
        url=running.grpc_url if abuser.is_grpc else running.url,
        method=abuser.method,
        path="" if abuser.is_raw else abuser.path.format(connection=running.connection),
        headers=headers,
        bodies=[str(body)],
        repeated=str(repeated),
        compression=abuser.compression,
        clients=abuser.clients,
        seconds=seconds,
        first=next(_firsts) % 100_000_000,
    )


def _begin(module: str, job: LoadJob, running: Stand, *, nice: int = 0) -> Popen[str]:
    words = [sys.executable, "-m", module]
    if nice:
        words = ["nice", "-n", str(nice), *words]
    with affinity(running.load_cores):
        process = Popen(words, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT)
    assert process.stdin is not None
    process.stdin.write(job.to_json())
    process.stdin.close()
    process.stdin = None
    return process


def _end(process: Popen[str]) -> LoadFigures:
    said, _ = process.communicate(timeout=BEYOND_S)
    assert process.returncode == 0, "a client failed"
    return LoadFigures.from_json(said.splitlines()[-1])
