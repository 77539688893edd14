"""Streams, billing and FOCUS with the installed command."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest

from tests.acceptance.payloads import post, request, span

FOCUS = """
[[destinations]]
name = "focus"
type = "focus"
path = "focus.csv"
"""


@pytest.mark.parametrize("running", [True, False])
def test_streams_billing_and_focus(installations: Any, running: bool) -> None:
    """
    With and without a server, the commands show the streams, the waiting billing files, and the same
    spend as FOCUS.
    """
    tollhouse = installations(more=FOCUS)
    telemetry, streams = (
        tollhouse.key("telemetry"),
        tollhouse.key("streams", "--scope", "unit-cost_v1:manage_telemetry_records"),
    )
    tollhouse.start()
    record = {"timestamp": "2026-01-01", "granularity": "DAILY", "element_name": "acme", "value": 2}
    path = "/unit-cost/v1/telemetry/allocation/api-calls/sum"
    assert 200 == post(tollhouse.url, json.dumps({"records": [record]}).encode(), streams, path).status
    spans = [span(f"chatcmpl-{n:032d}", tokens=1000 + n) for n in range(20)]
    assert 200 == post(tollhouse.url, request(spans), telemetry).status
    tollhouse.wait_until_drained("focus/ai-telemetry")
    if not running:
        tollhouse.stop()
    (stream,) = tollhouse.json("streams", "list")["streams"]
    assert {"name": "api-calls", "type": "allocation", "granularity": "DAILY", "dimensions": []} == stream
    assert [] == tollhouse.json("streams", "list", "--unknown")["unknown"]
    tollhouse.run("streams", "resolve", "7", "sent", code=2)
    days = sorted(
        {row["ChargePeriodStart"][:10] for row in rows((tollhouse.directory / "focus.csv").read_text())}
    )
    exported = rows(tollhouse.run("export", "focus", "--from", days[0], "--to", days[-1]))
    by_destination = rows((tollhouse.directory / "focus.csv").read_text())
    assert spend(exported) == spend(by_destination) > 0
    planned = tollhouse.json("billing", "preview", "--from", days[0], "--to", days[-1])["billing"]
    assert planned["hours"] == 0 or spend(exported) >= Decimal(planned["cost"])
    dry = tollhouse.json("billing", "push", "--from", days[0], "--to", days[-1], "--dry-run")["billing"]
    assert dry["sent"] == 0
    assert dry["dry_run"] is True


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def spend(found: list[dict[str, str]]) -> Decimal:
    return sum((Decimal(row["BilledCost"]) for row in found), Decimal())
