"""The cost of the largest accepted body in a real server process: memory, and delays for others."""

from __future__ import annotations

import gzip
import re
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from urllib.request import Request, urlopen

import pytest

from tests.acceptance.conftest import Tollhouse
from tests.bench.server import meters
from tests.integration.payloads import PROTOBUF, proto_span
from tests.rounds import IS_LONG, part

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
"""
MIB = 1 << 20
LARGEST = (64 if IS_LONG else 8) * MIB  # largest body that the test sends; a server accepts 64 MiB
TREE = 10  # number of calls per trace
# Memory limit in MiB, in addition to the memory of an idle server. Formerly, the largest body took 450 MiB,
# because all records of a request existed as objects at once.
MEMORY_MIB = 350 if IS_LONG else 50
# limit in seconds for one delay of the event loop; formerly 1.5 s and more, in a request of eight seconds
LAG_S = 0.8
LAG_SHARE = 0.05  # the same limit as a share of the request's duration, for slower machines


def body() -> tuple[bytes, int]:
    """Return an export request just below the limit, and its number of calls."""
    template = proto_span()
    # The span has only one further attribute, so it is as small as possible.
    template.attributes.add(key="deployment.environment.name").value.string_value = "production"
    encoded = template.SerializeToString()
    before, between = encoded.split(template.trace_id)
    between, after = between.split(template.span_id)
    count = (LARGEST - 64) // (len(encoded) + 3)
    span = b"\x12" + _varint(len(encoded))
    parts: list[bytes] = []
    for number in range(count):
        if number % TREE == 0:
            trace_id = secrets.token_bytes(16)
        parts += (span, before, trace_id, between, secrets.token_bytes(8), after)
    scope = b"".join(parts)
    resource = b"\x12" + _varint(len(scope)) + scope
    return b"\x0a" + _varint(len(resource)) + resource, count


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Tollhouse]:
    tollhouse = Tollhouse(tmp_path / "store", CONFIG)
    yield tollhouse
    tollhouse.stop(code=None)


@contextmanager
def most_memory(server: Tollhouse) -> Iterator[list[float]]:
    """Yield a list whose item becomes the server's peak memory, in MiB."""
    assert server.process is not None
    pid, is_over = server.process.pid, Event()
    found = [0.0]

    def look() -> None:
        while not is_over.wait(0.05):
            found[0] = max(found[0], meters.resident_mib(pid))

    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(look)
        try:
            yield found
        finally:
            is_over.set()
            looking.result()


def loop_lag_s(server: Tollhouse) -> float:
    with urlopen(f"{server.url}/metrics") as answer:
        found = re.search(r"^tollhouse_loop_lag_seconds (\S+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory as Linux tells it")
@pytest.mark.parametrize("coding", part(["identity", "gzip"], every=2))
def test_the_largest_body_costs_little_memory_and_nobody_waits_long(server: Tollhouse, coding: str) -> None:
    """
    The largest body has many small calls. It gets one receipt, never needs an object for every record at
    once, and blocks the event loop only for short steps.
    """
    secret = server.key("sender")
    server.start()
    sent, count = body()
    sent = gzip.compress(sent, 1) if coding == "gzip" else sent
    assert server.process is not None
    idle = meters.resident_mib(server.process.pid)
    headers = {"Authorization": secret, "Content-Type": PROTOBUF, "Content-Encoding": coding}
    asked = Request(f"{server.url}/v1/traces", sent, headers)
    began = time.monotonic()
    with most_memory(server) as most, urlopen(asked, timeout=1000) as answer:
        receipt = answer.headers["Tollhouse-Receipt"]
    took_s = time.monotonic() - began
    assert f"records={count}; ignored=0; rejected=0" in receipt
    print(f"{most[0] - idle:.0f} MiB over an idle server")
    assert most[0] - idle < MEMORY_MIB
    assert loop_lag_s(server) < max(LAG_S, LAG_SHARE * took_s)
    shown = server.json("spool", "receipt", receipt.partition("id=")[2].partition(";")[0])["receipt"]
    assert shown["received"] == count
    assert shown["new"] == count
