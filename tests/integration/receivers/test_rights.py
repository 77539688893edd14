"""
The rights of every way to authenticate, and the limits of a laptop's own key towards other senders' calls.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
from google.protobuf.json_format import ParseDict

from gateway.configuration.sections import Config
from gateway.operations import services
from gateway.operations.receivers import otlp_grpc
from gateway.operations.requests.operation_requests import OperationKeyRequest
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.identity import dedup_key_of_response_id
from spool.record import AI_TELEMETRY, Correction, Inference
from spool.registry.scopes import AI_HUB, ENROLL, HEARTBEAT, INGEST, PING
from spool.settings import SpoolSettings
from tests.integration.conftest import Serve, Serving
from tests.integration.mcp.people import ADA, open_door
from tests.integration.payloads import JSON, PROTOBUF, REQUESTS, json_span, json_traces
from tests.integration.receivers.test_otlp_grpc import Calling
from tests.rounds import part
from tests.waiting import until

FORGED = "0123456789abcdef" * 2


def rights(bearer: AuthenticatedKey) -> dict[str, Any]:
    """Return the rights of a bearer, without those that are off."""
    told = {field.name: getattr(bearer, field.name) for field in dataclasses.fields(bearer)}
    facts = ("name", "labels", "named", "expects", "number")
    return {name: value for name, value in told.items() if name not in facts and value}


async def own_key(serving: Serving, device: str = "laptop-1", **more: Any) -> str:
    fleet = await serving.make_key(f"fleet of {device}", scopes=[ENROLL])
    body = orjson.dumps({"device_id": device, "want_key": True, **more})
    answer = await serving.send("/v1/ai-control-plane/enroll", body, key=fleet)
    return str(json.loads(answer.body)["key"])


async def test_no_way_in_has_a_right_that_nobody_granted(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    No way to authenticate has a right that nobody granted. The ways are: listed keys, the file's key, device keys,
    Basic, gRPC, assistants with a key or a token, and no credentials.
    """
    seen: list[AuthenticatedKey] = []
    admit = otlp_grpc._admit_call

    def noted(**fields: Any) -> Any:
        seen.append(fields["bearer"])
        return OperationKeyRequest(**fields)

    async def admitted(*given: Any) -> AuthenticatedKey:
        seen.append(await admit(*given))
        return seen[-1]

    monkeypatch.setattr(services, "OperationKeyRequest", noted)
    monkeypatch.setattr(otlp_grpc, "_admit_call", admitted)
    (tmp_path / "deployment.key").write_text("of-the-deployment-0123456789abcdef")
    server: dict[str, Any] = {
        "grpc_listen": "127.0.0.1:0",
        "api_key_file": tmp_path / "deployment.key",
        "accept_bearer": True,
    }
    async with open_door(serve, tmp_path, **server) as door:
        serving = door.serving
        device, hub = await own_key(serving), await serving.make_key("hub", scopes=[AI_HUB])
        seen.clear()

        async def of(path: str, body: bytes = b"{}", **given: Any) -> dict[str, Any]:
            answer = await serving.send(path, body, **given)
            assert answer.status < 500, answer.body
            return rights(seen.pop())

        async def over_grpc(key: str) -> dict[str, Any]:
            async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
                await Calling(serving, channel).export(b"", metadata=(("authorization", key),))
            return rights(seen.pop())

        ingest = {"scopes": frozenset({INGEST})}
        of_device = {"scopes": frozenset({INGEST, HEARTBEAT, PING}), "device": "laptop-1"}
        basic = "Basic " + base64.b64encode(b"pk:" + serving.key.encode()).decode()
        ping = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert ingest == await of("/v1/traces")
        assert ingest == await of("/v1/traces", headers={"Authorization": f"Bearer {serving.key}"})
        assert ingest == await of("/v1/traces", key="of-the-deployment-0123456789abcdef")
        assert ingest == await of("/api/public/ingestion", headers={"Authorization": basic})
        assert ingest == await over_grpc(serving.key)
        assert of_device == await of("/v1/traces", key=device)
        assert of_device == await over_grpc(device)
        assert {"scopes": frozenset({AI_HUB})} == await of("/mcp", ping, key=hub)
        await door.limit(ADA, "search")
        person = await of("/mcp", ping, headers={"Authorization": f"Bearer {door.provider.access_token()}"})
        assert {"scopes", "person"} == person.keys()
        assert {} == await of("/livez", b"", content_type=None, method="GET", key=None)


def attribute(name: str, value: str | int) -> dict[str, Any]:
    kind = "intValue" if isinstance(value, int) else "stringValue"
    return {"key": name, "value": {kind: str(value)}}


def call(**more: str | int) -> dict[str, Any]:
    """
    Return a span with 120 input and 30 output tokens. In argument names, two underscores stand for a dot.
    """
    span = json_span(startTimeUnixNano="1790000000000000000")
    span["attributes"] += [attribute(name.replace("__", "."), value) for name, value in more.items()]
    return span


def claiming(id: str, **more: str | int) -> dict[str, Any]:
    return call(tollhouse__id=id, tollhouse__cost="777", tollhouse__cost_source="reported", **more)


def points(id: str, value: int) -> dict[str, Any]:
    """Return a counter in dollars, as another Tollhouse would forward it."""
    marks = [attribute("tollhouse.id", id), attribute("tollhouse.source", "claude_code")]
    point = {
        "startTimeUnixNano": "1790000000000000000", "timeUnixNano": "1790000060000000000",
        "asInt": str(value), "attributes": marks,
    }  # fmt: skip
    metric = {
        "name": "claude_code.cost.usage", "unit": "USD",
        "sum": {"aggregationTemporality": 1, "isMonotonic": value > 0, "dataPoints": [point]},
    }  # fmt: skip
    return {"resourceMetrics": [{"scopeMetrics": [{"scope": {"name": "tollhouse"}, "metrics": [metric]}]}]}


async def stored(serving: Serving, count: int) -> list[Any]:
    """Wait until `count` records are closed; return all records and corrections."""
    log = serving.app.services.storage.log
    await until(lambda: log.lowest_open_number(AI_TELEMETRY) > count)
    entries = await log.read(AI_TELEMETRY, 1, log.lowest_open_number(AI_TELEMETRY) - 1)
    return [record for entry in entries for record in entry.records if record is not None]


async def send_spans(serving: Serving, way: str, span: dict[str, Any], key: str) -> None:
    request = orjson.loads(json_traces(span))
    if way == "json":
        assert 200 == (await serving.send("/v1/traces", orjson.dumps(request), JSON, key=key)).status
        return
    for one in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId"):
            one[name] = base64.b64encode(bytes.fromhex(one[name])).decode()
    body = ParseDict(request, REQUESTS["traces"]()).SerializeToString()
    if way == "protobuf":
        assert 200 == (await serving.send("/v1/traces", body, PROTOBUF, key=key)).status
        return
    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        reply = await Calling(serving, channel).export(body, metadata=(("authorization", key),))
    assert grpc.StatusCode.OK == reply.code


@pytest.mark.proves("A laptop changes or claims calls of others through its agent")
@pytest.mark.parametrize("hold", [0, 2])
@pytest.mark.parametrize("way", ["json", "protobuf", "grpc"])
async def test_a_laptops_own_key_changes_no_call_of_others(serve: Serve, way: str, hold: int) -> None:
    """
    A counted call stays unchanged, and a later one counts normally. A laptop's claim under a foreign id
    becomes a call of the laptop, priced by this gateway.
    """
    config = Config(spool=SpoolSettings(hold=hold, counter_wait=0))
    serving = await serve(config=config, grpc_listen="127.0.0.1:0")
    laptop = await own_key(serving)
    send = partial(send_spans, serving, way)
    honest, later = "chatcmpl-" + "a" * 24, "chatcmpl-" + "b" * 24
    spans = {answer: call(gen_ai__response__id=answer) for answer in (honest, later)}
    ids = {answer: dedup_key_of_response_id(answer) for answer in (honest, later)}
    await send(spans[honest], serving.key)
    for id in ids.values():
        await send(claiming(id.hex()), laptop)
        await send(claiming(id.hex()), laptop)  # the laptop sends a duplicate of its own call
    await send(claiming(FORGED, tollhouse__api_key="sender", tollhouse__device="laptop-2"), laptop)
    await send(spans[later], serving.key)
    records = {record.id: record for record in await stored(serving, 5)}
    assert 5 == len(records)
    (price,) = {(record.cost, record.estimated_cost, record.cost_source) for record in records.values()}
    assert (None, "estimated") == price[::2], price
    assert {None} == {records.pop(id).device for id in ids.values()}
    assert bytes.fromhex(FORGED) not in records
    assert {"laptop-1"} == {record.device for record in records.values()}


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_laptop_that_reports_an_answer_sets_no_price(serving: Serving, is_first: bool) -> None:
    """
    If a laptop and a server report the same answer, they are one call, and the cost that the laptop invented does
    not count.
    """
    answer = "chatcmpl-" + "a" * 24
    claim = claiming(dedup_key_of_response_id(answer).hex(), gen_ai__response__id=answer)
    reports = [(call(gen_ai__response__id=answer), serving.key), (claim, await own_key(serving))]
    for report, key in reversed(reports) if is_first else reports:
        await send_spans(serving, "json", report, key)
    (record,) = await stored(serving, 1)
    assert record.cost is None
    assert record.cost_source == "estimated"


@pytest.mark.parametrize("hold", part([0, 2], every=2))
@pytest.mark.parametrize("way", ["json", "protobuf", "grpc"])
async def test_a_laptop_that_knows_an_answer_changes_nothing(serve: Serve, way: str, hold: int) -> None:
    """
    A laptop that knows another's answer cannot change its call. Here an ordinary span under a laptop's key states a
    cost, a failure, cached input and a tier of another's call, before or after the server's report. Each call
    counts as if the laptop had not reported it.
    """
    config = Config(spool=SpoolSettings(hold=hold, counter_wait=0))
    serving = await serve(config=config, grpc_listen="127.0.0.1:0")
    laptop = await own_key(serving)
    send = partial(send_spans, serving, way)
    answers = ["chatcmpl-" + letter * 24 for letter in "abc"]
    alone, before, after = [call(gen_ai__response__id=answer) for answer in answers]
    await send(alone, serving.key)
    for answer, span in ((answers[1], before), (answers[2], after)):
        if span is after:
            await send(span, serving.key)
        claim = call(
            gen_ai__response__id=answer, gen_ai__usage__cost="777", gen_ai__usage__cache_read_tokens=90,
            gen_ai__openai__response__service_tier="flex", error__type="500", user__id="mallory",
        )  # fmt: skip
        claim["status"] = {"code": 2}
        await send(claim, laptop)
        if span is before:
            await send(span, serving.key)
    counted = dict.fromkeys(map(dedup_key_of_response_id, answers))
    for record in await stored(serving, 3):
        last = record.after if isinstance(record, Correction) else record
        counted[last.id] = [
            getattr(last, name)
            for name in (
                "input_tokens",
                "cache_read_tokens",
                "cost",
                "estimated_cost",
                "cost_source",
                "status",
                "error_type",
            )
        ]
    assert 3 == len(counted)
    assert [counted[dedup_key_of_response_id(answers[0])]] * 3 == list(counted.values())


async def test_the_costs_of_a_laptops_own_calls_do_not_count(serving: Serving) -> None:
    """The gateway prices a call that an ordinary span reports under a laptop's key."""
    await send_spans(serving, "json", call(gen_ai__usage__cost="777"), await own_key(serving))
    (record,) = await stored(serving, 1)
    assert (None, "estimated", "laptop-1") == (record.cost, record.cost_source, record.device)


async def test_a_laptops_counters_are_its_own(serving: Serving) -> None:
    """
    A counter under a foreign id belongs to the laptop. A negative counter cannot take back what was counted.
    """
    laptop = await own_key(serving)
    for value, rejected in ((777, False), (-777, True)):
        answer = await serving.send("/v1/metrics", orjson.dumps(points(FORGED, value)), key=laptop)
        assert answer.status == 200
        assert (b"server.chain_keys" in answer.body) == rejected
    (record,) = await serving.records()
    assert record.id != bytes.fromhex(FORGED)
    assert record.device == "laptop-1"


async def test_log_records_of_a_laptop_are_no_records_of_another_tollhouse(serving: Serving) -> None:
    """Attributes named `tollhouse.*` are ignored in log records."""
    laptop = await own_key(serving)
    marks = claiming(FORGED)["attributes"]
    record = {"eventName": "gen_ai.client.inference.operation.details", "attributes": marks}
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    await serving.send("/v1/logs", orjson.dumps(body), key=laptop)
    for kept in await serving.records():
        assert isinstance(kept, Inference)
        assert kept.id != bytes.fromhex(FORGED)
        assert kept.cost is None


async def test_an_operator_may_name_devices_that_chain(serve: Serve) -> None:
    """
    If an operator names a device in server.chain_keys, its records are accepted unchanged. The records of
    other devices are not.
    """
    serving = await serve(chain_keys=("device laptop-1",))
    for device in ("laptop-1", "laptop-2"):
        await send_spans(serving, "json", claiming(FORGED), await own_key(serving, device))
    costs = {record.device: (record.id.hex(), record.cost) for record in await stored(serving, 2)}
    assert (FORGED, "777") == costs["laptop-1"]
    assert costs["laptop-2"][0] != FORGED
    assert costs["laptop-2"][1] is None
