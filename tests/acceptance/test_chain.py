"""
Two Tollhouses in a row: the second forwards records as the first received them, and a refused key loses nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.lifecycle import parked_soon
from tests.acceptance.payloads import KEEP_ALIVE, post, request, span
from tests.rounds import IS_LONG
from tests.waiting import wait_until

UPSTREAM = """
[upstream]
base_url = "{url}"
[[upstream.keys]]
name = "telemetry"
secret_file = "{secret}"
use_cases = ["Send AI Telemetry"]
"""
RECORDS = 3_000 if IS_LONG else 1_000
PER_REQUEST = 500


def chained(installations: Any, tmp_path: Path) -> tuple[Tollhouse, Tollhouse, str]:
    """
    Start a near Tollhouse that forwards to a far one under a managed key; return both and a key of the near one.
    """
    far = installations("far", server='chain_keys = ["near tollhouse"]')
    secret = tmp_path / "upstream.key"
    secret.write_text(far.key("near tollhouse") + "\n")
    near = installations("near", more=UPSTREAM.format(url=far.start(), secret=secret))
    return near, far, near.key("applications")


def send(near: Tollhouse, key: str, count: int, prefix: str) -> None:
    for first in range(0, count, PER_REQUEST):
        numbers = range(first, min(count, first + PER_REQUEST))
        spans = [
            span(
                f"chatcmpl-{prefix}-{number:024d}",
                tokens=number,
                gen_ai__usage__cost=f"0.{number:07d}1",
                user__id=f"user-{number % 7}",
                session__id=f"session-{number % 11}",
            )
            for number in numbers
        ]
        assert 200 == post(near.url, request(spans), key).status


def test_records_through_two_tollhouses(installations: Any, tmp_path: Path) -> None:
    """The record files of both Tollhouses hold the same records, field by field, including ids and costs."""
    near, far, key = chained(installations, tmp_path)
    near.start()
    send(near, key, RECORDS, "chain")
    near.wait_until_drained("upstream/ai-telemetry")
    near.wait_until_drained("archive/ai-telemetry")
    far.wait_until_drained("archive/ai-telemetry")
    left = {record["id"]: record for record in near.records()}
    right = {record["id"]: record for record in far.records()}
    assert RECORDS == len(left) == len(near.records()) == len(far.records())
    assert left == right
    for tollhouse in (near, far):
        tollhouse.json("spool", "verify")


@pytest.mark.proof
def test_a_disabled_upstream_key_parks_the_route_and_loses_nothing(
    installations: Any, tmp_path: Path
) -> None:
    """
    If the upstream key is disabled, the route is paused in status and readiness (still 200). When the key is
    enabled again, the route resumes without help.
    """
    near, far, key = chained(installations, tmp_path)
    near.start(command=parked_soon.COMMAND)
    send(near, key, 1_000, "before")
    near.wait_until_drained("upstream/ai-telemetry")
    far.run("keys", "disable", "near tollhouse")
    send(near, key, 1_000, "after")
    wait_until(lambda: near.route("upstream/ai-telemetry")["state"] == "parked", "the route is parked")
    ready = KEEP_ALIVE.request("GET", near.url + "/readyz")
    assert 200 == ready.status
    routes = {row["route"]: row for row in ready.json()["routes"]}
    assert "parked" == routes["upstream/ai-telemetry"]["state"]
    assert routes["upstream/ai-telemetry"]["reason"]
    far.run("keys", "enable", "near tollhouse")
    near.wait_until_drained("upstream/ai-telemetry")
    far.wait_until_drained("archive/ai-telemetry")
    assert 2_000 == len(far.records()) == len({record["id"] for record in far.records()})
    near.json("spool", "verify")
