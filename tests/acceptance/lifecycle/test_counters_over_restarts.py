"""After any restart, a counter is recognized as the repeat of a call that was reported before the restart."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.acceptance.conftest import ARCHIVE, DEVICES, Tollhouse
from tests.acceptance.payloads import attribute, post, span
from tests.rounds import part

Installations = Callable[..., Tollhouse]
CONFIG = ARCHIVE.replace("[spool]", '[spool]\ncounter_wait = "0s"').format(server="", hold="1s", more=DEVICES)
RESPONSE = "chatcmpl-8c1f0b7a9d2e4c6f8a0b"


def calls(service: str, response_id: str) -> bytes:
    resource = {"attributes": [attribute("service.name", service)]}
    spans = [span(response_id)]
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode()


def counters(service: str) -> bytes:
    now = time.time_ns()
    points = [
        {
            "startTimeUnixNano": str(now - 10**9),
            "timeUnixNano": str(now),
            "count": "1",
            "sum": float(tokens),
            "attributes": [
                attribute("gen_ai.request.model", "gpt-4o"),
                attribute("gen_ai.provider.name", "openai"),
                attribute("gen_ai.operation.name", "chat"),
                attribute("gen_ai.token.type", kind),
            ],
        }
        for kind, tokens in (("input", 100), ("output", 20))
    ]
    histogram = {
        "name": "gen_ai.client.token.usage",
        "histogram": {"dataPoints": points, "aggregationTemporality": 1},
    }
    resource = {"attributes": [attribute("service.name", service)]}
    metrics = {"resource": resource, "scopeMetrics": [{"metrics": [histogram]}]}
    return json.dumps({"resourceMetrics": [metrics]}).encode()


def stopped(one: Tollhouse) -> None:
    one.stop()
    one.start()


def killed(one: Tollhouse) -> None:
    one.kill()
    one.start()


@pytest.mark.parametrize("restart", part([stopped, killed, Tollhouse.take_over], every=3))
def test_a_counter_that_follows_its_call_after_a_restart(
    installations: Installations, restart: Callable[[Tollhouse], None]
) -> None:
    """
    Two services may report one call. The first report opens the record, and the second joins it, so the
    record does not name the second service. Counters of both services are recognized as repeats.
    """
    one = installations(config=CONFIG)
    key = one.key("load")
    one.start()
    for service in ("proxy", "desk"):  # both services report the same call
        assert 200 == post(one.url, calls(service, RESPONSE), key).status
    for _ in range(2):
        restart(one)
        for service in ("proxy", "desk"):
            assert 200 == post(one.url, counters(service), key, "/v1/metrics").status
    assert 200 == post(one.url, counters("other"), key, "/v1/metrics").status
    one.wait_until_drained()
    shadows: dict[str, list[bool]] = {}
    records = one.records()
    for record in records:
        if record["kind"] == "usage_metric":
            shadows.setdefault(record["tags"]["service"], []).append(record.get("shadow", False))
    assert 1 == sum(record["kind"] == "inference" for record in records)
    assert {"proxy": [True] * 4, "desk": [True] * 4, "other": [False] * 2} == shadows
    assert one.json("spool", "verify")["balanced"]
