"""Reports to an operator if the upstream answers 200 and rejects all, half or one of the records."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE, post, request, span
from tests.acceptance.test_chain import UPSTREAM, send
from tests.clients.loopback import Loopback, body_of
from tests.rounds import part
from tests.waiting import wait_until

ROUTE = "upstream/ai-telemetry"
WORDS = "no room for these"


class RejectingUpstream(Loopback):
    """Rejects `rejects(size)` spans of each request and accepts the others."""

    def __init__(self) -> None:
        self.rejects: Callable[[int], int] = lambda count: 0
        super().__init__(_handler(self))


def _handler(upstream: RejectingUpstream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = body_of(self)
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found = ExportTraceServiceRequest.FromString(body)
            count = sum(len(scope.spans) for each in found.resource_spans for scope in each.scope_spans)
            answer = ExportTraceServiceResponse()
            answer.partial_success.rejected_spans = upstream.rejects(count)
            answer.partial_success.error_message = WORDS
            body = answer.SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


@pytest.fixture
def upstream() -> Iterator[RejectingUpstream]:
    upstream = RejectingUpstream()
    yield upstream
    upstream.close()


class Screens(NamedTuple):
    """What four outputs say about the route: status, doctor, insights and metrics."""

    status: str
    doctor: list[tuple[str, str]]
    insights: list[str]
    refused_total: float


def seen(tollhouse: Tollhouse) -> Screens:
    tollhouse.json("insights", "check")
    doctor = tollhouse.attempt("doctor", "--json")
    found = json.loads(doctor.stdout)["doctor"]["found"]
    metrics = KEEP_ALIVE.request("GET", f"{tollhouse.url}/metrics").data.decode()
    (figure,) = [
        line
        for line in metrics.splitlines()
        if line.startswith(f'tollhouse_route_refused_total{{route="{ROUTE}"')
    ]
    return Screens(
        status=tollhouse.run("spool", "status"),
        doctor=[(one["status"], one["words"]) for one in found if one["about"] == f"route {ROUTE}"],
        insights=[
            one["title"] for one in tollhouse.json("insights", "list")["insights"] if ROUTE in one["title"]
        ],
        refused_total=float(figure.rpartition(" ")[2]),
    )


def forwarding(installations: Any, tmp_path: Path, upstream: RejectingUpstream) -> tuple[Tollhouse, str]:
    secret = tmp_path / "upstream.key"
    secret.write_text("upstream-secret-1\n")
    near = installations("near", more=UPSTREAM.format(url=upstream.url, secret=secret))
    key = near.key("applications")
    near.start()
    return near, key


@pytest.mark.parametrize(
    ("rejects", "count"), part([(lambda n: n // 2, 5), (lambda n: 1, 1)], every=2), ids=["half", "one"]
)
def test_a_share_that_is_rejected_shows_everywhere(
    installations: Any, tmp_path: Path, upstream: RejectingUpstream, rejects: Callable[[int], int], count: int
) -> None:
    """
    If the upstream rejects a share of the records, the route runs. Status, doctor, insights and the alert's
    metric show the share for a day.
    """
    near, key = forwarding(installations, tmp_path, upstream)
    upstream.rejects = rejects
    assert 200 == post(near.url, request([span(f"chatcmpl-{n:024d}") for n in range(10)]), key).status
    near.wait_until_drained(ROUTE)
    screens = seen(near)
    assert (
        f"{count} records were rejected in the last 24 hours; list them with `tollhouse spool refused`"
        in screens.status
    )
    assert "REFUSED 24H" in screens.status
    words = f"the destination rejected {count} records in the last 24 hours and accepted others: {WORDS}"
    assert [("problem", f"{words} (tollhouse spool refused)")] == screens.doctor
    assert [f"{ROUTE} rejected {count} records within a day"] == screens.insights
    assert count == screens.refused_total
    route = near.route(ROUTE)
    assert route["state"] == "running"
    assert route["refused_24h"] == count
    assert route["refusal"] == WORDS
    near.json("spool", "verify")


def test_a_rejection_of_everything_stops_the_route(
    installations: Any, tmp_path: Path, upstream: RejectingUpstream
) -> None:
    """
    If the upstream rejects everything, no record is acknowledged. Status, doctor, insights and the alert of
    stopped routes show the upstream's reason.
    """
    near, key = forwarding(installations, tmp_path, upstream)
    upstream.rejects = lambda count: count
    assert 200 == post(near.url, request([span(f"chatcmpl-{n:024d}") for n in range(10)]), key).status
    wait_until(lambda: near.route(ROUTE)["state"] == "refusing", "the route refuses")
    screens = seen(near)
    reason = f"200, but 1 of 1 items are rejected: {WORDS}"
    assert reason in screens.status
    assert [("problem", f"rejected, 10 records wait: {reason}")] == screens.doctor
    assert [f"The route {ROUTE} is rejected"] == screens.insights
    assert 0 == screens.refused_total
    upstream.rejects = lambda count: 0
    near.run("spool", "route", "try", ROUTE)
    near.wait_until_drained(ROUTE)
    near.json("spool", "verify")


def test_a_far_tollhouse_without_chain_keys_costs_nothing(installations: Any, tmp_path: Path) -> None:
    """
    Forwarding as in the README, but without the setting at the far side, loses nothing. Once the far side
    lists the key and reloads, it has every record once.
    """
    far = installations("far")
    secret = tmp_path / "upstream.key"
    secret.write_text(far.key("telemetry") + "\n")
    near = installations("near", more=UPSTREAM.format(url=far.start(), secret=secret))
    key = near.key("applications")
    near.start()
    send(near, key, 250, "chain")
    wait_until(lambda: near.route(ROUTE)["state"] == "refusing", "the route refuses")
    route = near.route(ROUTE)
    assert 250 == route["queued"]
    assert "server.chain_keys" in route["reason"]
    assert [] == far.records()
    far.config.write_text(
        far.config.read_text().replace("[server]", '[server]\nchain_keys = ["telemetry"]', 1)
    )
    far.run("reload")
    near.run("spool", "route", "try", ROUTE)
    near.wait_until_drained(ROUTE)
    far.wait_until_drained()
    assert 250 == len(far.records()) == len({record["id"] for record in far.records()})
    near.json("spool", "verify")
    far.json("spool", "verify")
