"""The unit-cost totals of one key cannot use up the space of others."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.configuration.sections import Config
from spool.settings import MIB, SpoolSettings
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces

SUM = "/unit-cost/v1/telemetry/allocation/{}/sum"
SCOPE = "unit-cost_v1:manage_telemetry_records"


def records(first: int, n: int) -> bytes:
    def record(number: int) -> dict[str, Any]:
        return {
            "timestamp": "2026-11-01T10:20:00Z", "granularity": "HOURLY", "element_name": f"element {number}",
            "filter": {"Region": ["eu"]}, "value": 1,
        }  # fmt: skip

    return orjson.dumps({"records": [record(number) for number in range(first, first + n)]})


async def limit_used(serving: Serving, name: str) -> float:
    text = (await serving.send("/metrics", b"", method="GET", key=None)).body.decode()
    prefix = f'tollhouse_limit_used{{name="{name}"}} '
    return next(float(line.removeprefix(prefix)) for line in text.splitlines() if line.startswith(prefix))


async def test_a_key_that_fills_its_totals_is_refused_alone(serve: Serve) -> None:
    """
    When the totals of a key reach their limit, the key gets 429 for new records and 200 for existing ones.
    Other keys and topics are not affected, even with a small spool.max_bytes.
    """
    section = SpoolSettings(hold=0, counter_wait=0, max_bytes=16 * MIB, max_stream_bytes=1 * MIB)
    serving = await serve(config=Config(spool=section))
    flood = await serving.make_key("flood", scopes=[SCOPE])
    other = await serving.make_key("other", scopes=[SCOPE])
    statuses = []
    for place in range(16):
        answer = await serving.send(SUM.format(f"flood-{place % 3}"), records(place * 1000, 1000), key=flood)
        # the next request is admitted as if a second had passed
        serving.app.services.single.stream_admission._good_until = 0
        statuses.append(answer.status)
    assert {200, 429} == set(statuses)
    assert answer.headers["Retry-After"] == "300"
    assert (
        "spool.max_stream_bytes" if b"spool.max_stream_bytes" in answer.body else answer.body
    ) == "spool.max_stream_bytes"
    assert 0.5 * MIB < await limit_used(serving, "spool.max_stream_bytes") < 0.75 * MIB
    assert 200 == (await serving.send(SUM.format("flood-0"), records(0, 1000), key=flood)).status
    assert 200 == (await serving.send(SUM.format("other"), records(0, 1000), key=other)).status
    assert 200 == (await serving.send("/v1/traces", json_traces(json_span()))).status
    assert 200 == (await serving.send("/readyz", b"", method="GET", key=None)).status


async def test_a_key_creates_no_more_streams_than_it_leaves(serve: Serve) -> None:
    """
    Beyond its share of new streams, a key gets 429 with what to do. Another key can still create streams.
    """
    section = SpoolSettings(hold=0, counter_wait=0, max_streams=6)
    serving = await serve(config=Config(spool=section))
    flood = await serving.make_key("flood", scopes=[SCOPE])
    other = await serving.make_key("other", scopes=[SCOPE])
    answers = [await serving.send(SUM.format(f"stream-{n}"), records(0, 1), key=flood) for n in range(5)]
    assert [200, 200, 200, 429, 429] == [answer.status for answer in answers]
    assert "too_many_streams" == orjson.loads(answers[-1].body)["error"]["type"]
    assert 200 == (await serving.send(SUM.format("mine"), records(0, 1), key=other)).status
    assert 6.0 - 2 == await limit_used(serving, "spool.max_streams")
