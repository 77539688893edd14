"""`server.workers`: processes that may be killed at any time, and never outlive their server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import urlopen

import pytest

from tests.acceptance.conftest import Tollhouse, wait_for
from tests.acceptance.payloads import post, request, span
from tests.bench.server.meters import metrics, processes

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="finds processes as Linux tells them"
)

WORKERS = 2
SENDERS = 4
KILLS = 2
SPANS = 40  # spans per body, enough that the server gives the body to a worker


@pytest.fixture
def server(installations: Any) -> Iterator[Tollhouse]:
    made: Tollhouse = installations(
        server=f"workers = {WORKERS}", more='[privacy]\nkeep_attributes = ["shop.lane"]'
    )
    yield made


def pids(server: Tollhouse) -> set[int]:
    assert server.process is not None
    return set(processes(server.process.pid)) - {server.process.pid}


def series(url: str) -> dict[str, float]:
    """Return the server's metrics with their labels."""
    with urlopen(f"{url}/metrics") as answer:
        lines = [
            line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#")
        ]
    return {name: float(value) for name, _, value in lines}


def wait_for_workers(server: Tollhouse) -> None:
    wait_for(lambda: metrics(server.url)["tollhouse_workers"] == WORKERS, 60, "the workers")


def test_workers_are_killed_under_load_reloaded_and_gone_with_their_server(server: Tollhouse) -> None:
    """
    Every acknowledged call is stored once and the accounting balances. Workers get new settings. kill -9
    leaves no orphan.
    """
    key = server.key("sender")
    url = server.start()
    wait_for_workers(server)
    enough = Event()

    def send(sender: int) -> list[str]:
        sent: list[str] = []
        while not enough.is_set():
            names = [f"chatcmpl-{sender:04d}{len(sent) + n:020d}" for n in range(SPANS)]
            assert 200 == post(url, request([span(name, shop__lane="left") for name in names]), key).status
            sent += names
        return sent

    with ThreadPoolExecutor() as threads:
        sending = [threads.submit(send, number) for number in range(SENDERS)]
        try:
            for _ in range(KILLS):
                before = pids(server)
                os.kill(min(before), signal.SIGKILL)
                wait_for(lambda before=before: len(pids(server) - before) == 1, 120, "another worker")
                wait_for_workers(server)
        finally:
            enough.set()
        sent = [name for one in sending for name in one.result()]
    server.wait_until_drained()
    records = server.records()
    assert sorted(sent) == sorted(record["request_id"] for record in records)
    assert {"left"} == {record["tags"]["shop.lane"] for record in records}
    # the metrics page is rendered once a second, so it may be outdated
    wait_for(
        lambda: metrics(url).get("tollhouse_worker_deaths_total") == KILLS, 60, "the deaths in the metrics"
    )
    assert series(url)['tollhouse_decoded_bodies_total{by="worker"}'] > 0
    assert not server.json("spool", "verify")["imbalances"]

    server.config.write_text(server.config.read_text().replace("shop.lane", "shop.aisle"))
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    wait_for(
        lambda: any("the new configuration is in effect" in line for line in server.log), 60, "the reload"
    )
    last = [span(f"chatcmpl-last{n:020d}", shop__lane="left", shop__aisle="three") for n in range(SPANS)]
    assert 200 == post(url, request(last), key).status
    server.wait_until_drained()
    tags = server.records()[-1]["tags"]
    assert tags["shop.aisle"] == "three"
    assert tags.get("shop.lane") is None

    left = pids(server)
    assert WORKERS == len(left)
    server.kill()
    wait_for(lambda: not [pid for pid in left if is_alive(pid)], 60, "the end of the workers")


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
