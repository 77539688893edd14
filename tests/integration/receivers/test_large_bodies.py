"""What the largest body that is let in costs a real server process: memory, and the turns of everybody else."""

from __future__ import annotations

import gzip
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.acceptance.conftest import Tollhouse
from tests.integration.payloads import PROTOBUF, proto_span

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
"""
LARGEST = 64 << 20
TREE = 10  # calls of one trace
MEMORY_MIB = 250  # over an idle server; it was 450 while every record of a request was an object at once
LAG_S = 0.8  # of a machine that others keep busy; it was 1.5 and more


def body() -> tuple[bytes, int]:
    """An export request just below 64 MiB, and how many calls it holds."""
    template = proto_span()
    template.attributes.add(
        key="deployment.environment.name"
    ).value.string_value = "production"  # one as small as may be
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


def peak_mib(server: Tollhouse) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


def loop_lag_s(server: Tollhouse) -> float:
    with urlopen(f"{server.url}/metrics") as answer:
        found = re.search(r"^tollhouse_loop_lag_seconds (\S+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.timeout(180)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory as Linux tells it")
@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_the_largest_body_costs_little_memory_and_nobody_waits_long(server: Tollhouse, coding: str) -> None:
    """64 MiB of small calls: one receipt for all of them, no object for every record at once, no long step."""
    secret = server.key("sender")
    server.start()
    sent, count = body()
    sent = gzip.compress(sent, 1) if coding == "gzip" else sent
    idle = peak_mib(server)
    headers = {"Authorization": secret, "Content-Type": PROTOBUF, "Content-Encoding": coding}
    with urlopen(Request(f"{server.url}/v1/traces", sent, headers), timeout=120) as answer:
        receipt = answer.headers["Tollhouse-Receipt"]
    assert f"records={count}; ignored=0; rejected=0" in receipt
    assert peak_mib(server) - idle < MEMORY_MIB
    assert loop_lag_s(server) < LAG_S
    shown = server.json("spool", "receipt", receipt.partition("id=")[2].partition(";")[0])["receipt"]
    assert (count, count) == (shown["received"], shown["new"])
