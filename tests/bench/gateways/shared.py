"""
Gateways on one PostgreSQL with its standby, each under its own load, and the resources that each part used.
"""

from __future__ import annotations

import os
import random
import re
import time
import urllib.request
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg import sql

from spool.log.runs import SPACE, pack_ids
from spool.settings import REPLICATED
from tests.acceptance.conftest import Tollhouse
from tests.bench.server import meters
from tests.bench.server.rounds import LoadSink, job_of, load_figures, start_load
from tests.bench.server.scenarios import Scenario
from tests.bench.server.targets import SCOPES, Running
from tests.spool.postgres_cluster import Pair, Server, storage_table

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
{storage}
[spool]
hold = "500ms"
max_bytes = "4GiB"
[upstream]
base_url = "{sink}"
[[upstream.keys]]
name = "telemetry"
secret_env = "SINK_KEY"
use_cases = ["Send AI Telemetry"]
"""
IDS_A_RUN = 131_072
APART = 10_000_000  # distance between the request numbers of two loads, so that every call is new
BUCKET = re.compile(r'tollhouse_flush_seconds_bucket\{.*?le="([^"]+)".*?\} (\S+)')


@dataclass(kw_only=True)
class SharedFigures:
    """
    Joint figures of several gateways until everything is delivered. Processor time is microseconds per record.
    """

    name: str
    gateways: int
    accepted_per_s: float = 0.0
    gateway_us: float = 0.0
    primary_us: float | None = None
    standby_us: float | None = None
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    commit_p50_ms: float = 0.0
    commit_p99_ms: float = 0.0
    undelivered: int = 0


@contextmanager
def gateways(
    folder: Path, sink: str, *, count: int, pair: Pair | None, schema: str
) -> Iterator[Sequence[Running]]:
    """Start `count` gateways on a schema of the pair. Without a pair, start a single gateway on files."""
    with ExitStack() as stack:
        running: list[Running] = []
        key = ""
        for number in range(count):
            storage = _replicated(folder, pair, schema, number) if pair else ""
            one = Tollhouse(folder / f"node-{number}", CONFIG.format(sink=sink, storage=storage))
            if pair and not number:
                one.run("storage", "init")
            if not key:
                key = one.key("load", *(word for scope in SCOPES for word in ("--scope", scope)))
            began = time.perf_counter()
            url = one.start({"SINK_KEY": "sink"}, is_new=True)
            stack.callback(one.stop, code=None)
            assert one.process is not None
            ready_s = time.perf_counter() - began
            running.append(
                Running(pid=one.process.pid, url=url, headers={"Authorization": key}, ready_s=ready_s)
            )
        yield running


def _replicated(folder: Path, pair: Pair, schema: str, number: int) -> str:
    name = f'node_name = "node-{number}"'
    return storage_table(folder, dsn=pair.dsn, schema=schema, durability=REPLICATED, more=name)


def measure(
    scenario: Scenario,
    running: Sequence[Running],
    upstream: LoadSink,
    folder: Path,
    pair: Pair | None,
    seconds: float,
) -> SharedFigures:
    """Send each gateway the whole load of the scenario, and add up the accepted records."""
    servers = [pair.primary, pair.standby] if pair else []
    jobs = [job_of(scenario, one, folder / f"bodies-{place}", seconds) for place, one in enumerate(running)]
    before = [sum(meters.cpu_seconds(one.pid) for one in running), *map(used, servers)]
    had = upstream.figures()["records"]
    # all processes share all cores, because there are more processes than cores
    everywhere = os.sched_getaffinity(0)
    begun = [start_load(replace(job, first=place * APART), everywhere) for place, job in enumerate(jobs)]
    loads = [load_figures(process) for process in begun]
    records = sum(load.accepted for load in loads) * scenario.items
    arrived, _ = upstream.wait(had + records)
    after = [sum(meters.cpu_seconds(one.pid) for one in running), *map(used, servers)]
    took = [(late - early) / max(records, 1) * 1e6 for early, late in zip(before, after, strict=True)]
    commits = [bucket for one in running for bucket in commit_buckets(one.url)]
    return SharedFigures(
        name="postgres" if pair else "sqlite",
        gateways=len(running),
        accepted_per_s=sum(load.accepted / load.seconds for load in loads) * scenario.items,
        gateway_us=took[0],
        primary_us=took[1] if pair else None,
        standby_us=took[2] if pair else None,
        p50_ms=max(load.latencies_ms.get("p50", 0.0) for load in loads),
        p99_ms=max(load.latencies_ms.get("p99", 0.0) for load in loads),
        commit_p50_ms=quantile(commits, 0.5) * 1000,
        commit_p99_ms=quantile(commits, 0.99) * 1000,
        undelivered=had + records - arrived,
    )


def used(server: Server) -> float:
    """Return the processor time of a PostgreSQL server, including ended sessions."""
    pid = int((server.folder / "postmaster.pid").read_text().split()[0])
    return meters.cpu_seconds(pid)


def commit_buckets(url: str) -> list[tuple[float, float]]:
    """Return the histogram buckets of one gateway's commit durations since its start."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return [(float(bound), float(value)) for bound, value in BUCKET.findall(text)]


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float:
    """Return the lowest bucket bound that covers this share of all commits."""
    sums: dict[float, float] = {}
    for bound, value in buckets:
        sums[bound] = sums.get(bound, 0.0) + value
    most = max(sums.values(), default=0.0)
    return min((bound for bound, value in sums.items() if value >= share * most), default=0.0)


def join_s(folder: Path, sink: str, pair: Pair, ids: int) -> tuple[float, float]:
    """
    Return the seconds until a gateway is ready on a database with `ids` known ids, and its memory in MiB.
    """
    schema = "joined"
    one = Tollhouse(folder / "joins", CONFIG.format(sink=sink, storage=_replicated(folder, pair, schema, 0)))
    one.run("storage", "init")
    add_ids(pair.dsn, schema, ids)
    began = time.perf_counter()
    one.start({"SINK_KEY": "sink"}, is_new=True)
    try:
        took = time.perf_counter() - began
        assert one.process is not None
        return took, meters.resident_mib(one.process.pid)
    finally:
        one.stop(code=None)


def add_ids(dsn: str, schema: str, ids: int) -> None:
    """Add known ids for calls of the last hours, in the form in which the log stores them."""
    chance, now = random.Random(1), time.time()
    add = sql.SQL(
        "INSERT INTO {}.id_runs (shard, id, hour, count, arrived_at, checksum, ids) VALUES (0, %s, %s, %s, "
        "%s, %s, %s)"
    ).format(sql.Identifier(schema))
    with psycopg.connect(dsn) as connection:
        for key in range(1, -(-ids // IDS_A_RUN) + 1):
            run = array("Q", sorted(chance.randrange(SPACE) for _ in range(IDS_A_RUN)))
            data, checksum = pack_ids(run)
            connection.execute(
                add, (key, int(now) // 3600 * 3600 - key % 48 * 3600, len(run), now, checksum, data)
            )
