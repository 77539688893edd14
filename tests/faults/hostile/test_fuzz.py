"""
Requests that no client would send: none is answered with 500, nothing grows or stalls, and the accounting balances.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
import urllib3

from gateway.service.addresses.areas import GRPC_SERVICES
from spool.registry.scopes import SCOPES
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.faults.hostile.fuzz import Fuzzer, statuses
from tests.faults.scenarios import Trial
from tests.gateway.normalise.otlp.payloads import in_protobuf
from tests.rounds import IS_LONG

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = "127.0.0.1:0"
"""
CONNECTIONS, CALLS = (8_000, 8_000) if IS_LONG else (250, 250)
GROWTH_MIB = 100  # limit in MiB for memory growth after the first tenth of the requests
OUR_MISTAKES = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}


@pytest.fixture
def server(installations: Any) -> tuple[Tollhouse, str, str]:
    """Return a server, a key with all rights, and the gRPC address."""
    tollhouse: Tollhouse = installations("fuzz", config=CONFIG)
    key = tollhouse.key("everything", *[word for scope in sorted(SCOPES) for word in ("--scope", scope)])
    tollhouse.start()
    assert tollhouse.process is not None
    assert tollhouse.process.stdout is not None
    return tollhouse, key, tollhouse.process.stdout.readline().rpartition("//")[2].strip()


def resident_mib(tollhouse: Tollhouse) -> int:
    assert tollhouse.process is not None
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{tollhouse.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def finish(tollhouse: Tollhouse, key: str, trial: Trial) -> None:
    """Check that a new call is delivered, the accounting balances, and no handler failed."""
    assert 200 == post(tollhouse.url, request([span("chatcmpl-after")]), key).status
    assert tollhouse.json("spool", "verify")["balanced"]
    assert [] == [line for line in tollhouse.log if "endpoint_failed" in line or "Traceback" in line]
    trial.count(acknowledged=1)
    tollhouse.stop()


@pytest.mark.proof
@pytest.mark.fault("F23")
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory as Linux tells it")
def test_http_of_any_kind_is_answered_and_costs_nothing(
    trial: Trial, server: tuple[Tollhouse, str, str]
) -> None:
    """
    Every address of the OpenAPI document gets paths, headers, codings and bodies of any kind, pipelined
    and cut off.
    """
    tollhouse, key, _ = server
    host, _, port = tollhouse.url.removeprefix("http://").rpartition(":")
    document = urllib3.PoolManager().request("GET", f"{tollhouse.url}/openapi.json").json()
    seen: Counter[int] = Counter()
    for rng in trial.rounds(short=1, full=1):
        fuzzer = Fuzzer(rng, key, document)
        warm = 0
        for number in range(CONNECTIONS):
            sent, is_whole = fuzzer.connection()
            found = statuses((host, int(port)), sent, is_whole=is_whole)
            seen.update(found)
            assert 500 not in found, sent[:2000]
            if number == CONNECTIONS // 10:
                warm = resident_mib(tollhouse)
        assert resident_mib(tollhouse) - warm < GROWTH_MIB
    print(dict(seen))
    assert {200, 400, 404} <= seen.keys()
    finish(tollhouse, key, trial)


@pytest.mark.proof
@pytest.mark.fault("F23")
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory as Linux tells it")
def test_grpc_of_any_kind_is_answered_and_costs_nothing(
    trial: Trial, server: tuple[Tollhouse, str, str]
) -> None:
    """Every service gets messages of any kind, and connections that do not speak gRPC."""
    tollhouse, key, address = server
    host, _, port = address.rpartition(":")
    codes: Counter[str] = Counter()
    for rng in trial.rounds(short=1, full=1):
        fuzzer = Fuzzer(rng, key, {"paths": {"/": {"get": {}}}})
        whole = in_protobuf({"resourceSpans": [{"scopeSpans": [{"spans": [span("chatcmpl-1")]}]}]})
        warm = 0
        with grpc.insecure_channel(address) as channel:  # type: ignore[no-untyped-call]
            for number in range(CALLS):
                body = fuzzer.mutated(whole) if rng.random() < 0.7 else fuzzer.body()
                service = rng.choice(sorted(GRPC_SERVICES))
                call = channel.unary_unary(f"/{service}/Export")
                coding = rng.choice(
                    [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
                )
                sender = (("authorization", key if rng.random() < 0.9 else "th_x"),)
                try:
                    call(body, metadata=sender, compression=coding, timeout=30)
                except grpc.RpcError as error:
                    code = error.code()  # type: ignore[attr-defined]
                    codes[code.name] += 1
                    assert code not in {*OUR_MISTAKES, grpc.StatusCode.DEADLINE_EXCEEDED}, body[:2000]
                if number % 10 == 0:
                    statuses((host, int(port)), fuzzer.frames(), is_whole=False)
                if number == CALLS // 10:
                    warm = resident_mib(tollhouse)
        assert resident_mib(tollhouse) - warm < GROWTH_MIB
    print(dict(codes))
    finish(tollhouse, key, trial)
