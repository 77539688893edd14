"""Mappings of usage events: the preview, who may set them, and what the configuration decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from exporters.service.events import event_operation
from gateway.service.assembly.parts import to_event_stream
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import USAGE_EVENTS, UsageEvent
from tests.exporters.spools import record_id
from tests.integration.operations.server import OperatorServer, operator_server

MAPPING = {"event_type": "order", "stream": "orders"}


def event(n: int, type: str = "order", **data: Any) -> UsageEvent:
    return UsageEvent(
        id=record_id(n), source="shop", event_id=str(n), event_type=type, subject="ada", data=data, tags={}
    )


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        server.services.spool.map_event = lambda event, mapping: event_operation(
            event, to_event_stream(mapping), 0
        )
        events = [
            event(1, pages=2, plan="pro"),
            event(2, pages=3.5),
            event(3, plan="free"),
            event(4, "export", pages=9),
        ]
        await server.services.spool.log.append_submission(
            Submission(
                topic=USAGE_EVENTS,
                received=len(events),
                records=events,
                identities=[RecordIdentity(each.id) for each in events],
            )
        )
        yield server


@pytest.mark.parametrize(
    ("change", "sent", "amount"),
    [
        ({}, 3, "3"),
        ({"value": "1"}, 3, "3"),
        ({"value": "pages"}, 2, "5.5"),
        ({"value": "pages", "element": "plan"}, 1, "2"),
        ({"value": "pages", "element": "plan", "type": "metric"}, 2, "5.5"),
        ({"value": "plan"}, 0, "0"),
    ],
)
async def test_the_preview_is_of_stored_events(
    server: OperatorServer, change: dict[str, str], sent: int, amount: str
) -> None:
    """
    The preview of a mapping reads only stored events of its type. It lists fields that are numbers first, and
    stores nothing.
    """
    shown = (await server.ask("POST", "/event-mappings/preview", {**MAPPING, **change})).payload["preview"]
    assert (3, sent, amount) == (shown["events"], shown["sent"], shown["amount"])
    assert [("pages", 2, 2), ("plan", 0, 2)] == [
        (each["name"], each["numbers"], each["events"]) for each in shown["fields"]
    ]
    assert [] == (await server.ask("GET", "/event-mappings")).payload["event_mappings"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event_type": " "}, "event_type must have"),
        ({"stream": "a b"}, "stream name"),
        ({"type": "sum"}, "type must be one of"),
        ({"granularity": "YEARLY"}, "granularity must be one of"),
    ],
)
async def test_a_wrong_mapping_is_refused(
    server: OperatorServer, change: dict[str, str], message: str
) -> None:
    for path in ("/event-mappings", "/event-mappings/preview"):
        refused = await server.ask("POST", path, {**MAPPING, **change})
        assert refused.status == 400
        assert message in refused.error[2]


async def test_a_type_has_one_mapping(server: OperatorServer) -> None:
    made = await server.ask("POST", "/event-mappings", MAPPING)
    assert made.status == 201
    second = await server.ask("POST", "/event-mappings", {**MAPPING, "stream": "other"})
    assert second.status == 409
    assert "already has a mapping" in second.error[2]
    [types] = [
        each
        for each in (await server.ask("GET", "/event-types")).payload["event_types"]
        if each["type"] == "order"
    ]
    assert types["count"] == 3
