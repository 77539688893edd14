"""
A data directory with a problem on every page: rejected records, a route without a
destination, an unconfirmed delivery.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event

from gateway.configuration.sections import Config
from gateway.service.assembly.storage import open_storage
from spool.clock import SystemClock
from spool.deliveries.values import Delivery, RouteSpec
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, UNIT_COST, USAGE_EVENTS, UnitCostOperation, UsageEvent
from spool.settings import SpoolSettings
from spool.storage import Storage
from tests.acceptance.conftest import Tollhouse
from tests.clients.loopback import Loopback, body_of
from tests.spool.contract.examples import add, call

ARCHIVE = "archive/ai-telemetry"
LAKE = "old-lake/ai-telemetry"
UPSTREAM = "upstream/unit-cost"
REFUSED = "upstream/ai-telemetry"
CALLS = 5
DEAD = 3
CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
[upstream]
base_url = "{upstream}"
[[upstream.keys]]
name = "costs"
secret_env = "UPSTREAM_SECRET"
use_cases = ["Send AI Telemetry"]
[[destinations]]
name = "archive"
type = "ndjson"
path = "records.ndjson"
"""


class RefusingUpstream(Loopback):
    """
    An upstream that answers every request with 403, like a service that revoked the key, until `mended` is set.
    """

    def __init__(self) -> None:
        self.mended = Event()

        class Handler(_Refusing):
            mended = self.mended

        super().__init__(Handler)


class _Refusing(BaseHTTPRequestHandler):
    mended: Event

    def do_POST(self) -> None:
        body_of(self)
        self.send_response(200 if self.mended.is_set() else 403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def in_trouble(directory: Path, upstream: str) -> Tollhouse:
    """Create an unstarted installation with these problems on disk."""
    tollhouse = Tollhouse(directory, CONFIG.format(upstream=upstream))
    with ThreadPoolExecutor(
        1
    ) as aside:  # a separate thread has its own event loop, because Playwright's loop occupies this thread
        aside.submit(asyncio.run, _fill(directory / "tollhouse-data")).result()
    return tollhouse


async def _fill(data: Path) -> None:
    clock = SystemClock()
    async with open_storage(Config(data_dir=data, spool=SpoolSettings(hold=0)), clock=clock) as storage:
        await storage.deliveries.set_routes([
            RouteSpec(name=ARCHIVE, topic=AI_TELEMETRY),
            RouteSpec(name=LAKE, topic=AI_TELEMETRY),
            RouteSpec(name=UPSTREAM, topic=UNIT_COST),
        ])  # fmt: skip
        at = clock.now() - 60
        await add(storage.log, *[call(n, at=at, request_model="toll-1", team="search") for n in range(CALLS)])
        for _ in range(DEAD):
            letter = await _due(storage, ARCHIVE)
            await storage.deliveries.set_aside(letter, error="model toll-1 is not known", status="400")
        await _add_others(storage, int(at * NS))
        await storage.deliveries.mark_outcome_unknown(
            await _due(storage, UPSTREAM), reason="the connection ended before an answer"
        )


async def _due(storage: Storage, route: str) -> Delivery:
    delivery = await storage.deliveries.take_due_delivery(route, now=SystemClock().now(), max_records=1)
    assert delivery is not None
    return delivery


async def _add_others(storage: Storage, at: int) -> None:
    operation = UnitCostOperation(
        id=b"o" * 16, stream="api-calls", stream_type="allocation", operation="sum", start_time=at,
        granularity="DAILY", element_name="acme", value="2",
    )  # fmt: skip
    events = [UsageEvent(id=bytes([n]) * 16, source="app", event_type="page.rendered") for n in (1, 2)]
    for topic, records in ((UNIT_COST, [operation]), (USAGE_EVENTS, events)):
        identities = [RecordIdentity(record.id) for record in records]
        await storage.log.append_submission(
            Submission(topic=topic, received=len(records), records=records, identities=identities)
        )
