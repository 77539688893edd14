"""
`python -m tests.bench.growth.clusters` reads the metrics of a large cluster, and measures processor time,
memory and event loop pauses of a separate process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pyarrow

from gateway.clusters.usage.reader import REST_S, ContainerUsageReader, UsageSources
from gateway.clusters.usage.series import NAME
from gateway.clusters.usage.usage import CPU, WorkloadOnNode
from gateway.monitoring.memory import trim_and_freeze_memory
from spool.container_files.container_rows import CONTAINER_USAGE
from spool.container_files.values import ClusterIdentity, ContainerSender
from spool.engines import SQLITE, open_storage
from spool.settings import ContainerPrice, ContainerSettings, SpoolSettings
from spool.storage import StorageOptions
from tests.bench.server.meters import peak_mib, written_bytes
from tests.bench.server.table import machine
from tests.gateway.clusters.usage.remote_write import first
from tests.moved_clock import MovedClock

PROD = ClusterIdentity("a-1", "eu-west-1", "prod")
AGENT = ContainerSender(key="agent")
PRICE = ContainerPrice(cpu_hour=Decimal("0.0316"), memory_hour=Decimal("0.0042"))
DAY_S = 86_400
DAY = int(datetime(2026, 10, 5, tzinfo=UTC).timestamp())
PODS_A_NODE = 30
PODS_A_WORKLOAD = 10
SERIES_A_BODY = 5_000
EVERY_S = 60
TICK_S = 0.002


@dataclass(frozen=True, kw_only=True)
class ReadCluster:
    """
    Cost of reading. `cpu_us` is per sample. `pause_ms` is the longest processor time between two turns of the
    event loop. `written` is megabytes per reading. `missing` is the part of the counted seconds that appears
    in no usage.
    """

    samples: int
    cpu_us: float
    peak_mib: float
    pause_ms: float
    written: float
    missing: int


def bodies(nodes: int, round: int) -> Iterator[bytes]:
    """Yield the remote write bodies that the agent of a cluster sends in one round."""
    found: list[Any] = []
    for labels, value in _samples(nodes, round):
        found.append((labels, [((DAY + round * EVERY_S) * 1000, value)]))
        if len(found) == SERIES_A_BODY:
            yield _body(found)
            found = []
    if found:
        yield _body(found)


def _body(found: Sequence[Any]) -> bytes:
    packed: bytes = pyarrow.compress(first(found), codec="snappy", asbytes=True)
    return packed


def _samples(nodes: int, round: int) -> Iterator[tuple[dict[str, str], float]]:
    for number in range(nodes):
        node = f"ip-10-0-{number // 256}-{number % 256}.eu-west-1.compute.internal"
        labels = {"node": node, "provider_id": f"aws:///eu-west-1a/i-{number:017x}"}
        yield {NAME: "kube_node_info", **labels}, 1.0
        for resource, amount in (("cpu", 64.0), ("memory", 2.0**38)):
            yield {NAME: "kube_node_status_capacity", "node": node, "resource": resource}, amount
        for place in range(PODS_A_NODE):
            pod = number * PODS_A_NODE + place
            workload = f"service-{pod // PODS_A_WORKLOAD:05}"
            of = {"namespace": f"team-{pod % 200:03}", "pod": f"{workload}-6d4cf56db6-{pod:05}"}
            info = {
                "node": node,
                "created_by_kind": "ReplicaSet",
                "created_by_name": f"{workload}-6d4cf56db6",
            }
            yield {NAME: "kube_pod_info", **of, **info}, 1.0
            yield {NAME: "kube_pod_labels", **of, "label_team": f"team-{pod % 200:03}"}, 1.0
            of |= {"container": "app", "image": f"registry.example.com/{workload}:1.2.3", "node": node}
            yield {NAME: "container_cpu_usage_seconds_total", **of}, float(30 * round)
            yield {NAME: "container_memory_working_set_bytes", **of}, float(2**28 + pod)


def read(place: Path, nodes: int, rounds: int, at_once: bool) -> ReadCluster:
    """Read the metrics of a cluster in this process, either round by round or all rounds together."""
    return asyncio.run(_read(place, nodes, rounds, at_once))


async def _read(place: Path, nodes: int, rounds: int, at_once: bool) -> ReadCluster:
    trim_and_freeze_memory()  # prepare the memory as a server does after its start
    clock = MovedClock()
    clock.move(DAY + DAY_S // 2 - clock.now())
    container = ContainerSettings(price=(PRICE,))
    options = StorageOptions(settings=SpoolSettings(), clock=clock, container=container, directory=place)
    storage = await open_storage(options, engine=SQLITE)
    sources = UsageSources(
        files=storage.container_files,
        usage=storage.small.open_table(CONTAINER_USAGE),
        prices=lambda: (PRICE,),
        tags=lambda: ["team"],
        retention_s=lambda: 60.0 * DAY_S,
    )
    reader, took, pauses, samples = ContainerUsageReader(sources, clock), 0.0, [0.0], 0
    written = 0
    for round in range(rounds):
        for body in bodies(nodes, round):
            upload = await storage.container_files.begin_remote_write(PROD, AGENT, request="{}")
            await upload.write(body)
            await upload.store_if_new()
        samples += nodes * (3 + 4 * PODS_A_NODE)
        clock.move(REST_S)
        if at_once and round < rounds - 1:
            continue
        before = written_bytes(os.getpid())
        async with _pauses(pauses):
            begun = time.process_time()
            await reader.read_new_files()
            await reader.days_with_usage()
            found = await reader.usage_by_cluster(DAY)
            took += time.process_time() - begun
        written += written_bytes(os.getpid()) - before
    used = sum(amounts[CPU] for amounts in found[PROD].used.values())
    assert {WorkloadOnNode.from_key(key).namespace for key in found[PROD].used} != {""}
    await storage.close()
    expected = nodes * PODS_A_NODE * 30 * (rounds - 1)
    return ReadCluster(
        samples=samples,
        cpu_us=round_(took / samples * 1e6),
        peak_mib=round_(peak_mib(os.getpid())),
        pause_ms=round_(max(pauses) * 1000),
        written=round_(written / rounds / 1e6),
        missing=expected - used // 10**6,
    )


def round_(value: float) -> float:
    return float(f"{value:.3g}")


@asynccontextmanager
async def _pauses(found: list[float]) -> AsyncIterator[None]:
    """
    Add the processor time that the process uses between turns of its event loop. Other processes do not count.
    """

    async def tick() -> None:
        while True:
            begun = time.process_time()
            await asyncio.sleep(TICK_S)
            found.append(time.process_time() - begun)

    task = asyncio.create_task(tick())
    await asyncio.sleep(TICK_S)
    try:
        yield
    finally:
        task.cancel()


def measured(sizes: Sequence[tuple[int, int]], *, at_once: bool = False) -> Iterator[tuple[int, ReadCluster]]:
    """Yield for each number of nodes and rounds the cost of reading in a new process."""
    for nodes, rounds in sizes:
        alone = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        with tempfile.TemporaryDirectory() as place, alone as process:
            yield nodes, process.submit(read, Path(place), nodes, rounds, at_once).result()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", multiple=True, type=int, default=(10, 100, 1_000), show_default=True)
@click.option("--rounds", default=4, show_default=True, help="Readings; a minute of samples each.")
def clusters(nodes: tuple[int, ...], rounds: int) -> None:
    """Read the metrics of clusters of growing size, with 30 pods per node."""
    click.echo(" ".join(f"{key} {value}," for key, value in machine().items()).rstrip(","))
    click.echo(
        "| nodes | pods | samples | µs a sample | peak MiB | longest pause ms | MB written a reading |"
    )
    click.echo("|---" * 7 + "|")
    for count, found in measured([(each, rounds) for each in nodes]):
        figures = (found.samples, found.cpu_us, found.peak_mib, found.pause_ms, found.written)
        shown = (f"{count:,}", f"{count * PODS_A_NODE:,}", *(f"{figure:,g}" for figure in figures))
        click.echo(f"| {' | '.join(shown)} |")


if __name__ == "__main__":
    clusters(prog_name="python -m tests.bench.growth.clusters")
