"""
Calls over OTLP into an object store: Tollhouse writes Parquet, the Collector's S3 exporter writes its own formats.

Both receive the same requests from one sender and write files with the same number of calls. The test prints
calls per second and core of the server, its peak memory, and the stored bytes per call. The collector answers
before it stores anything.
"""

from __future__ import annotations

import gzip
import http.client
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from tests.acceptance.conftest import Tollhouse
from tests.bench.load.payloads import numbered, protobuf_spans
from tests.bench.server import meters
from tests.bench.server.targets import Running
from tests.clients import environments
from tests.clients.lake.s3_servers import BUCKET, KEY, KEY_ID, versitygw
from tests.clients.lake.test_s3_servers import PACKAGE
from tests.free_ports import free_port
from tests.rounds import IS_LONG

pytestmark = pytest.mark.clients  # the test builds two Go programs
CALLS, OF_FILE, OF_REQUEST = (200_000, 50_000, 500) if IS_LONG else (10_000, 5_000, 500)
WITHIN_S = 600
LAKE = """
[server]
listen = "127.0.0.1:0"
[spool]
hold = "500ms"
[[destinations]]
name = "lake"
type = "s3"
url = "s3://{bucket}/tollhouse"
endpoint = "{store}"
secret_file = "{secret}"
batch_records = {of_file}
linger = "1h"
"""
COLLECTOR = """
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}
processors:
  batch: {{send_batch_size: {of_file}, send_batch_max_size: {of_file}, timeout: 1h}}
exporters:
  awss3:
    marshaler: {marshaler}
    s3uploader:
      {{region: us-east-1, s3_bucket: {bucket}, s3_prefix: {marshaler}, endpoint: "{store}", s3_force_path_style: true,
        disable_ssl: true, compression: gzip}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}
  pipelines: {{traces: {{receivers: [otlp], processors: [batch], exporters: [awss3]}}}}
"""


@dataclass(frozen=True)
class Store:
    address: str
    objects: Path

    def files(self, prefix: str, ending: str) -> list[Path]:
        """List complete files. A gateway writes a file under a temporary name first."""
        return sorted((self.objects / BUCKET / prefix).rglob(f"*{ending}"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    directory = tmp_path_factory.mktemp("versitygw")
    with versitygw(environments.go("versitygw", PACKAGE), directory) as address:
        yield Store(address, directory / "objects")


@contextmanager
def tollhouse(store: Store, directory: Path) -> Iterator[Running]:
    secret = directory / "secret"
    secret.write_text(f"{KEY_ID}\n{KEY}\n")
    text = LAKE.format(store=store.address, bucket=BUCKET, secret=secret, of_file=OF_FILE)
    house = Tollhouse(directory / "house", text)
    key = house.key("load")
    url = house.start(is_new=True)
    try:
        assert house.process is not None
        yield Running(pid=house.process.pid, url=url, headers={"Authorization": key})
    finally:
        house.stop()


@contextmanager
def collector(store: Store, directory: Path, marshaler: str) -> Iterator[Running]:
    program, port = environments.go("collector_s3", "."), free_port()
    config = directory / "collector.yaml"
    config.write_text(
        COLLECTOR.format(port=port, store=store.address, bucket=BUCKET, marshaler=marshaler, of_file=OF_FILE)
    )
    keys = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": KEY}
    process = subprocess.Popen([str(program), "--config", str(config)], env={**os.environ, **keys})
    try:
        yield Running(pid=process.pid, url=f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def connected(running: Running) -> http.client.HTTPConnection:
    """Connect as soon as the server listens."""
    parts = urlsplit(running.url)
    until = time.monotonic() + WITHIN_S
    while True:
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=WITHIN_S)
        try:
            connection.connect()
        except ConnectionError:
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return connection


def send(running: Running) -> None:
    template = protobuf_spans(OF_REQUEST)
    connection = connected(running)
    headers = {"Content-Type": "application/x-protobuf", **running.headers}
    for number in range(CALLS // OF_REQUEST):
        connection.request("POST", "/v1/traces", numbered(template, number), headers)
        with connection.getresponse() as answer:
            assert answer.status == 200, answer.read()
            answer.read()
    connection.close()


def measured(
    name: str, running: Running, calls_there: Callable[[], int], files: Callable[[], list[Path]]
) -> None:
    """Send all calls, wait until the store has them, and print the cost."""
    connected(running).close()
    used, began = meters.cpu_seconds(running.pid), time.monotonic()
    send(running)
    answered_s = time.monotonic() - began
    while calls_there() < CALLS:
        assert time.monotonic() - began < WITHIN_S, f"{name}: {calls_there()} of {CALLS} calls are there"
        time.sleep(0.1)
    landed_s, cpu_s = time.monotonic() - began, meters.cpu_seconds(running.pid) - used
    size = sum(path.stat().st_size for path in files())
    assert CALLS == calls_there()
    print(
        f"\n{name}: {CALLS:,} calls in {len(files())} files; answered in {answered_s:.1f} s, there after "
        f"{landed_s:.1f} s; {CALLS / cpu_s:,.0f} calls a second of a core, {meters.peak_mib(running.pid):.0f} MiB at "
        f"most, {size / CALLS:.0f} B a call"
    )


@pytest.mark.timeout(WITHIN_S + 100)
def test_tollhouse_lands_parquet(store: Store, tmp_path: Path) -> None:
    """Each call has one Parquet row in the store. The figures include receiving the call with its flush."""

    def files() -> list[Path]:
        return store.files("tollhouse/ai_telemetry", ".parquet")

    def rows() -> int:
        return sum(pq.read_metadata(path).num_rows for path in files())

    with tollhouse(store, tmp_path) as running:
        measured("Tollhouse, Parquet", running, rows, files)


@pytest.mark.timeout(WITHIN_S + 100)
@pytest.mark.parametrize("marshaler", ["otlp_json", "otlp_proto"])
def test_the_collector_writes_to_s3(store: Store, tmp_path: Path, marshaler: str) -> None:
    """Each call is in a compressed file of the exporter, as JSON or as protobuf."""
    counted: dict[Path, int] = {}

    def files() -> list[Path]:
        return store.files(marshaler, ".gz")

    def calls_there() -> int:
        for path in files():
            if path not in counted:
                counted[path] = gzip.decompress(path.read_bytes()).count(b"chatcmpl-")
        return sum(counted.values())

    with collector(store, tmp_path, marshaler) as running:
        measured(f"Collector, {marshaler}", running, calls_there, files)
