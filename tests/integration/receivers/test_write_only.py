"""
The endpoints of a managed use case reveal nothing about the organization: neither what is known nor who else sends.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc
import pytest

from gateway.http.address import BASIC, ApiAddress
from gateway.service.addresses.table import ADDRESSES
from spool.registry.scopes import SEND_AI_TELEMETRY, SEND_BILLING_DATA, USE_CASES
from tests.integration.conftest import Answer, Serve, Serving
from tests.integration.payloads import JSON, PROTOBUF, json_span, json_traces, proto_span, proto_traces
from tests.integration.receivers.test_otlp_grpc import SERVICES
from tests.integration.receivers.test_topics import ROW

SPAN = json_span()
TRACES = json_traces(SPAN)
EVENT = {
    "id": "e1",
    "source": "s",
    "type": "tokens",
    "subject": "u",
    "specversion": "1.0",
    "data": {"tokens": 5},
}
LITELLM = {
    "id": "chatcmpl-0123456789abcdef0123", "call_type": "acompletion", "model": "gpt-4o", "prompt_tokens": 12,
    "completion_tokens": 3, "total_tokens": 15, "startTime": 1_790_000_000.0, "endTime": 1_790_000_001.0,
    "response_cost": 0.1, "status": "success",
}  # fmt: skip
DROP = {"month": "2026-11", "operation": "sum", "data": [ROW]}
BATCH = {
    "batch": [{"id": "one", "type": "trace-create", "timestamp": "2026-11-01T00:00:00Z", "body": {"id": "t"}}]
}
PATHS = {"format": "litellm", "segment": "external", "connection_id": "connection-1"}

# For each operation: accepted submissions (at least the first), then refused ones.
SUBMISSIONS: Mapping[str, tuple[Any, ...]] = {
    "export_traces": (TRACES, b"{", json_traces({**SPAN, "startTimeUnixNano": "x"})),
    "export_metrics": (b'{"resourceMetrics": []}', b"[]"),
    "export_logs": (b'{"resourceLogs": []}', b"[]"),
    "export_profiles": (b"{}",),
    "ingest_recognised": (TRACES, LITELLM, {"nothing": "known"}, b"{"),
    "ingest_format": (LITELLM, b"["),
    "langfuse_ingestion": (BATCH, b"{"),
    "langfuse_traces": (TRACES, b"{"),
    "langwatch_traces": (TRACES, b"{"),
    "honeyhive_traces": (TRACES, b"{"),
    "keywords_ai_traces": (TRACES, b"{"),
    "langfuse_projects": (b"",),
    "openmeter_events": (EVENT, b"{"),
    "create_billing_drop": (DROP, {**DROP, "month": "never"}, b"["),
    "validate_billing_drop": (DROP, {"operation": "x"}, b"["),
}


# Other senders get 403. test_people_chain.py compares their answers.
FROM_BELOW = {"link_addresses", "follow_erasures"}


def submissions(address: ApiAddress) -> tuple[Any, ...]:
    """Return the bodies for an address. They are the same for each of its methods."""
    return SUBMISSIONS[address.name]


class Said(NamedTuple):
    """An answer without what has to differ: the time, and the ids of the receipt and of a drop."""

    status: int
    headers: dict[str, str]
    body: Any


@pytest.mark.proves("A write-only key reads data")
@pytest.mark.parametrize("use_case", [SEND_AI_TELEMETRY, SEND_BILLING_DATA])
async def test_equal_submissions_get_equal_answers_whatever_is_stored(serve: Serve, use_case: str) -> None:
    """
    Equal submissions get equal answers from two gateways. One gateway is empty. The other has other keys and
    more traffic, and has already received all submissions twice.
    """
    empty, full = await serve(), await serve()
    await full.make_key("somebody else", use_cases=[SEND_AI_TELEMETRY, SEND_BILLING_DATA])
    for place, server in enumerate((full, full, full, empty)):
        server.key = await server.make_key(f"sender {place}", use_cases=[use_case])
    for server in (empty, full):
        await server.make_connection(PATHS["connection_id"])
    scopes = USE_CASES[use_case]
    addresses = [
        each for each in ADDRESSES if each.scope in scopes and each.security and each.name not in FROM_BELOW
    ]  # addresses with a key in their path are left out
    sent = [
        (each, method, body)
        for each in addresses
        for method in each.operation_ids_by_method
        for body in submissions(each)
    ]
    for each, method, body in sent:
        for _ in range(2):
            await submitted(full, each, method, body)
    for each, method, body in sent:
        here, there = await submitted(empty, each, method, body), await submitted(full, each, method, body)
        assert here == there, each.name
    for each in addresses:
        for method in each.operation_ids_by_method:
            assert (await submitted(full, each, method, submissions(each)[0])).status < 300, each.name


async def test_over_grpc_a_known_call_is_answered_as_a_new_one(serve: Serve) -> None:
    """
    Over gRPC, a known call and a new one get equal answers: code, message, and trailing metadata without
    the receipt's id.
    """
    body = proto_traces(proto_span(), proto_span())
    empty, full = [await serve(grpc_listen="127.0.0.1:0") for _ in range(2)]
    await full.send("/v1/traces", body, PROTOBUF)
    assert await exported(empty, body) == await exported(full, body)
    assert await exported(empty, b"\xff") == await exported(full, b"\xff")


async def submitted(server: Serving, address: ApiAddress, method: str, submission: Any) -> Said:
    body = submission if isinstance(submission, bytes) else json.dumps(submission).encode()
    headers = {}
    if BASIC in address.key.schemes:
        headers["Authorization"] = "Basic " + b64encode(f"public:{server.key}".encode()).decode()
    kind = None if method == "GET" else JSON
    return said(
        await server.send(address.documented_path.format(**PATHS), body, kind, method=method, headers=headers)
    )


def said(answer: Answer) -> Said:
    headers = {
        name: value for name, value in answer.headers.items() if name not in ("Date", "Tollhouse-Receipt")
    }
    receipt = answer.headers.get("Tollhouse-Receipt", "")
    id = receipt.partition("id=")[2].partition(";")[0]
    headers["receipt"] = receipt.replace(id, "ID") if id else receipt
    body = answer.body.decode()
    body = re.sub(r'"drop_id":"[0-9a-f]{32}"', '"drop_id":"ID"', body)
    return Said(answer.status, headers, body.replace(id, "ID") if id else body)


async def exported(server: Serving, body: bytes) -> tuple[object, ...]:
    async with grpc.aio.insecure_channel(server.app.grpc_address) as channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{SERVICES['traces']}/Export"
        )
        call = export(body, metadata=(("authorization", server.key),), timeout=60)
        try:
            answer = await call
        except grpc.aio.AioRpcError:
            answer = b""
        trailing = dict(await call.trailing_metadata())
        receipt = str(trailing.pop("tollhouse-receipt", ""))
        return answer, await call.code(), await call.details(), trailing, receipt.partition(";")[2]
