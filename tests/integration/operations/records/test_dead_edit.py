"""Rejected records that are sent again with changed values."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.operations.records.dead_letters import edit_record_and_list_changes
from spool.deliveries.values import RouteSpec
from spool.engines import SQLITE
from spool.errors import Invalid, NotAllowed
from spool.people import People
from spool.record import (
    AI_TELEMETRY,
    Correction,
    HourlyBillingFile,
    Inference,
    RecalculationEntry,
    Record,
    UnitCostOperation,
    UsageEvent,
    record_to_json,
)
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.processes.copied import copying_command
from tests.spool.contract.examples import add, call

ROUTE = "archive/ai-telemetry"
PEOPLE = People.for_installation(b"p")


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    woken: list[str] = []

    async def wake(route: str) -> None:
        woken.append(route)

    async with operator_server(tmp_path, engine=SQLITE, wake=wake) as server:
        server.woken = woken
        deliveries = server.services.spool.deliveries
        await deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
        await add(server.services.spool.log, call(1, request_model="gpt-4o"))
        delivery = await deliveries.take_due_delivery(ROUTE, now=server.clock.now(), max_records=1)
        assert delivery is not None
        await deliveries.set_aside(delivery, error="no such model", status="400")
        yield server


async def letter(server: OperatorServer) -> dict[str, Any]:
    [listed] = (await server.ask("GET", "/dead")).payload["dead"]
    shown: dict[str, Any] = (await server.ask("GET", f"/dead/{listed['id']}")).payload["dead"]
    return shown


async def test_an_edited_letter_is_sent_again(server: OperatorServer) -> None:
    """
    An edited record is sent at once with the changed fields. The audit row has the actor, the fields, and a
    hash of both versions.
    """
    dead = await letter(server)
    answer = await server.ask(
        "PATCH", f"/dead/{dead['id']}", {"record": {**dead["record"], "request_model": "gpt-5"}}
    )
    assert answer.status == 200
    assert answer.payload["edited"]["fields"] == ["request_model"]
    assert answer.payload["edited"]["record"]["request_model"] == "gpt-5"
    assert [] == (await server.ask("GET", "/dead")).payload["dead"]
    assert [ROUTE] == server.woken
    delivery = await server.services.spool.deliveries.take_due_delivery(
        ROUTE, now=server.clock.now(), max_records=1
    )
    assert delivery is not None and delivery.kept is not None
    assert [call(1, request_model="gpt-5")[0]] == list(delivery.kept.records)
    [row] = (await server.ask("GET", "/audit", action="dead.edit")).payload["audit"]
    assert row["actor"] == ADA
    assert row["target"] == ROUTE
    assert row["after"]["fields"] == ["request_model"]
    assert (
        64 == len(row["after"]["before"]) == len(row["after"]["after"])
        and row["after"]["before"] != row["after"]["after"]
    )


async def test_a_wrong_edit_changes_nothing(server: OperatorServer) -> None:
    """
    An invalid edit gets a 400 that names the field, and the rejected record stays. An unknown record gets a 404.
    """
    dead = await letter(server)
    answer = await server.ask("PATCH", f"/dead/{dead['id']}", {"record": {"input_tokens": -1}})
    assert (400, "invalid") == answer.error[:2] and "input_tokens" in answer.error[2]
    assert dead == await letter(server)
    assert 404 == (await server.ask("PATCH", "/dead/999", {"record": {"provider": "openai"}})).status
    assert [] == (await server.ask("GET", "/audit", action="dead.edit")).payload["audit"]


async def test_the_command_line_edits_a_letter(server: OperatorServer, tmp_path: Path) -> None:
    """
    The file for `dead edit` has the record as `spool dead show` prints it, or only its changed fields.
    Invalid JSON is a usage error.
    """
    dead = await letter(server)
    file = tmp_path / "record.json"

    async def edit(text: str) -> tuple[int, str]:
        file.write_text(text)
        words = ["spool", "dead", "edit", str(dead["id"]), str(file), "--data", str(tmp_path)]
        program, number = copying_command()
        process = await asyncio.create_subprocess_exec(
            program, *words, stdout=PIPE, stderr=PIPE, pass_fds=[number]
        )
        output, errors = await process.communicate()
        return process.returncode or 0, (output + errors).decode()

    assert (done := await edit("{"))[0] == 2
    assert "is not JSON" in done[1]
    assert (done := await edit('{"cost": 1}'))[0] == 2
    assert "cost must be decimal text" in done[1]
    assert (0, f"rejected record {dead['id']} will be sent again, with another provider\n") == await edit(
        json.dumps({**dead["record"], "provider": "openai"})
    )


INFERENCE = Inference(
    id=b"i" * 16, source="otel", estimated_cost="0.5", cost_source="estimated", input_tokens=1
)
EVENT = UsageEvent(id=b"e" * 16, source="app", event_type="api_call", data={"n": 1})
DROP = HourlyBillingFile(id=b"b" * 16, connection_id="c", body=b'{"data":[]}')
ROW = {"time/usage_start": "2026-09-01T00:00:00Z", "cost/cost": "1"}


@pytest.mark.parametrize(
    ("record", "given", "expected"),
    [
        (INFERENCE, {"cost": "0.25"}, {"cost": "0.25", "cost_source": "reported"}),
        (INFERENCE, {"start_time": "2026-09-01T00:00:00.5Z"}, {"start_time": 1_788_220_800_500_000_000}),
        (INFERENCE, {"input_tokens": None, "status": "error"}, {"input_tokens": None, "status": "error"}),
        (INFERENCE, {"tags": {"env": "prod"}}, {"tags": {"env": "prod"}}),
        (INFERENCE, {"region": "East US 2"}, {"region": "eastus2"}),
        (
            EVENT,
            {"data": {"n": 2, "unit": "page"}, "subject": "s"},
            {"data": {"n": 2, "unit": "page"}, "subject": "s"},
        ),
        (DROP, {"body": {"month": "2026-09", "data": [ROW]}}, {"month": "2026-09", "rows": 1}),
    ],
)
def test_what_may_be_changed(record: Record, given: dict[str, Any], expected: dict[str, Any]) -> None:
    """Edits follow the rules for received records, and dependent fields change as well."""
    found, names = edit_record_and_list_changes(record, {**record_to_json(record), **given}, PEOPLE)
    assert set(given) == set(names)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("record", "given", "words"),
    [
        (INFERENCE, {}, "would not change"),
        (INFERENCE, {"id": "00" * 16}, "id cannot be changed"),
        (INFERENCE, {"prompt": "hello"}, "prompt cannot be changed"),
        (INFERENCE, {"input_tokens": 1.5}, "input_tokens must be a whole number"),
        (INFERENCE, {"output_tokens": True}, "output_tokens must be a whole number"),
        (INFERENCE, {"cost": 0.5}, "cost must be decimal text"),
        (INFERENCE, {"cost": "-1"}, "cost must be decimal text"),
        (INFERENCE, {"start_time": "soon"}, "start_time must be an RFC 3339 time"),
        (INFERENCE, {"status": "lost"}, "status must be one of ok, error, cached"),
        (INFERENCE, {"user": ""}, "user must be text of 1 to"),
        (INFERENCE, {"region": "near here!"}, "region must be a region as the provider names it"),
        (INFERENCE, {"tags": {"prompt": "hello"}}, "tags.prompt"),
        (INFERENCE, {"tags": {"api_key": "x"}}, "tags.api_key"),
        (INFERENCE, {"tags": ["env"]}, "tags."),
        (EVENT, {"event_type": None}, "event_type is required"),
        (EVENT, {"data": {"n": [1]}}, "data.n"),
        (
            DROP,
            {"body": {"data": [{**ROW, "cost/cost": "much"}]}},
            "cost/cost must be a decimal number without an exponent",
        ),
    ],
)
def test_what_may_not_be_changed(record: Record, given: dict[str, Any], words: str) -> None:
    """An edit that may not be made is refused, and the message names the field and its rule."""
    with pytest.raises(Invalid, match=words):
        edit_record_and_list_changes(record, {**record_to_json(record), **given}, PEOPLE)


def test_corrections_are_not_edited() -> None:
    """A correction is the difference of two states, so no field can change independently."""
    correction = Correction(
        id=b"c" * 16, source="kong", corrects=INFERENCE.id, reason="late_usage", known_at=1, start_time=1,
        before=INFERENCE, after=INFERENCE,
    )  # fmt: skip
    with pytest.raises(NotAllowed, match="retry or discard"):
        edit_record_and_list_changes(correction, {"cost": "1"}, PEOPLE)


def test_recalculations_are_not_edited() -> None:
    """The totals already have its prices, whatever a destination stores."""
    made = RecalculationEntry(id=b"r" * 16, since=0, price_list=b"", own_prices=b"", user="ada")
    for given in ({"user": "bob"}, {"since": "2026-09-01T00:00:00Z"}, {}):
        with pytest.raises(NotAllowed, match="retry or discard"):
            edit_record_and_list_changes(made, given, PEOPLE)


def test_totals_of_streams_are_not_edited() -> None:
    """A unit-cost record cannot be edited, because it is already in its stream's totals."""
    operation = UnitCostOperation(id=b"u" * 16, stream="s", stream_type="metric", operation="sum", value="1")
    with pytest.raises(NotAllowed, match="send a correction"):
        edit_record_and_list_changes(operation, {"value": "2"}, PEOPLE)


def test_an_address_is_hashed_as_in_records_that_come_in() -> None:
    """
    If an edit states an address, the address is hashed in fields that name somebody and in tags, as in records that
    arrive.
    """
    given = {"user": "Ann@example.com", "tags": {"boss": "eve@example.com", "repo": "a"}}
    found, _ = edit_record_and_list_changes(INFERENCE, {**record_to_json(INFERENCE), **given}, PEOPLE)
    assert isinstance(found, Inference)
    assert PEOPLE.hash_address("ann@example.com") == found.user
    assert {"boss": PEOPLE.hash_address("eve@example.com"), "repo": "a"} == found.tags
