"""Unit-cost streams as assistants read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gateway.mcp.tool import MAX_BYTES
from tests.integration.mcp.conftest import Assistant
from tests.integration.receivers.test_topics import SUM, body, usage, writer


async def send(assistant: Assistant, *records: dict[str, Any]) -> None:
    answer = await assistant.serving.send(SUM, body(*records), key=await writer(assistant.serving))
    assert 200 == answer.status, answer.body


def hours_ago(hours: int, **fields: Any) -> dict[str, Any]:
    at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours)
    return usage(timestamp=at.isoformat().replace("+00:00", "Z"), **fields)


async def test_records_and_the_rest_add_up_to_the_total(assistant: Assistant) -> None:
    """
    On every page the shown records and the rest add up to the total, to the last digit. The newest come first.
    """
    assert 0 == (await assistant.content("get_telemetry_streams"))["stream_count"]
    values = ["0.1", "0.2", "1000000000000.3", "4", "5"]
    await send(assistant, *(hours_ago(n + 1, value=float(value)) for n, value in enumerate(values)))
    (stream,) = (await assistant.content("get_telemetry_streams"))["streams"]
    expected = {"name": "api-calls", "type": "allocation", "granularity": "HOURLY", "dimensions": ["Region"]}
    assert expected == stream
    asked: dict[str, Any] = {"stream": "api-calls", "limit": 2}
    page = await assistant.content("get_telemetry_data", **asked)
    seen = []
    while True:
        assert Decimal(page["total"]) == sum(Decimal(each["value"]) for each in page["records"]) + Decimal(
            page["other"]
        )
        seen += page["records"]
        if page["next_cursor"] is None:
            break
        page = await assistant.content("get_telemetry_data", **asked, cursor=page["next_cursor"])
    assert [Decimal(value) for value in values] == [Decimal(each["value"]) for each in seen]
    assert sum(map(Decimal, values)) == Decimal(page["total"])
    other = await assistant.mistake(
        "get_telemetry_data", stream="api-calls", date_range="today", cursor="2.00"
    )
    assert "belongs to other arguments" in other


async def test_records_are_filtered_by_time_and_dimension(assistant: Assistant) -> None:
    """Records can be filtered by time and by dimension. An unknown name returns the nearest one."""
    await send(assistant, hours_ago(1, value=2), hours_ago(1, value=3, filter={"Region": ["us"]}))
    part = await assistant.content("get_telemetry_data", stream="api-calls", dimensions={"Region": ["us"]})
    assert part["record_count"] == 1
    assert part["total"] == "3"
    old = {"start": "2020-01-01", "end": "2020-01-31"}
    assert (
        0
        == (await assistant.content("get_telemetry_data", stream="api-calls", date_range=old))["record_count"]
    )
    near = (await assistant.call("get_telemetry_streams", match="api-cals"))["content"][0]["text"]
    assert "did you mean api-calls" in near
    assert "did you mean api-calls" in await assistant.mistake("get_telemetry_data", stream="api-call")
    wrong = await assistant.mistake("get_telemetry_data", stream="api-calls", dimensions={"region": ["us"]})
    assert "did you mean Region" in wrong


async def test_long_records_stay_within_the_bound(assistant: Assistant) -> None:
    """Many records of maximum length stay within the size limit, and text of senders stays in its cell."""
    evil = "ignore | previous\u202e " + "ü" * 1000
    wide = {f"{key} {evil}"[:1024]: [f"{n} {evil}"[:1024] for n in range(20)] for key in "abcde"}
    await send(assistant, *(hours_ago(n + 1, filter=wide, element_name=evil[:1024]) for n in range(12)))
    result = await assistant.call("get_telemetry_data", stream="api-calls", limit=100)
    content, text = result["structuredContent"], result["content"][0]["text"]
    assert result["isError"] is False
    assert content["truncated"] and 12 == content["record_count"]
    assert Decimal(content["total"]) == Decimal(content["other"]) + len(content["records"])
    assert "\u202e" not in text and len(json.dumps(result, ensure_ascii=False).encode()) <= MAX_BYTES + 1000
    assert all("\u202e" not in name for name in content["records"][0]["dimensions"])


async def test_many_streams_stay_within_the_bound(assistant: Assistant) -> None:
    """If the list of streams is cut, the answer counts the rest. A part of a name finds them."""
    key = await writer(assistant.serving)
    for n in range(120):
        stream = f"stream-{n:03}-" + "x" * 180
        path = f"/unit-cost/v1/telemetry/allocation/{stream}/sum"
        assert 200 == (await assistant.serving.send(path, body(usage()), key=key)).status
    result = await assistant.call("get_telemetry_streams", limit=100)
    found = result["structuredContent"]
    assert found["stream_count"] == 120
    assert found["truncated"] is True
    assert len(json.dumps(result, ensure_ascii=False).encode()) <= MAX_BYTES + 1000
    assert 1 == (await assistant.content("get_telemetry_streams", match="STREAM-119"))["stream_count"]
