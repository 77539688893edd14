"""Reading unit-cost streams: the list of streams, and records by time and dimension."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from spool.registry.scopes import READ_TELEMETRY
from tests.integration.conftest import Serving
from tests.integration.receivers.test_topics import SUM, body, said, usage, writer

RECORDS = "/unit-cost/v1/telemetry/api-calls/records"


async def filled(serving: Serving) -> str:
    """Send three hours of two regions; return the key that reads them."""
    key = await writer(serving)
    records = [
        usage(timestamp=f"2026-11-01T{10 + n}:00:00Z", value=n + 1, filter={"Region": [region]})
        for n in range(3)
        for region in ("eu", "us")
    ]
    assert 200 == (await serving.send(SUM, body(*records), key=key)).status
    return await serving.make_key("reader", scopes=[READ_TELEMETRY])


async def test_streams_are_listed(serving: Serving) -> None:
    """The reading scope lists the streams with their definitions, and filters as in every list."""
    key = await filled(serving)
    page = said(await serving.send("/unit-cost/v1/telemetry", b"", None, method="GET", key=key))
    expected = {"name": "api-calls", "type": "allocation", "granularity": "HOURLY", "dimensions": ["Region"]}
    assert [expected] == page["streams"]
    page = said(await serving.send("/unit-cost/v1/telemetry?type=metric", b"", None, method="GET", key=key))
    assert page["streams"] == []
    assert page["pagination"]["total_count"] == 0


PARTS: Sequence[tuple[str, list[str]]] = [
    ("", ["1", "1", "2", "2", "3", "3"]),
    ("start_time=2026-11-01T11:00:00Z", ["2", "2", "3", "3"]),
    ("start_time=2026-11-01T11:00:00Z&end_time=2026-11-01T12:00:00Z", ["2", "2"]),
    ("end_time=2026-11-01T13:00:00%2B02:00", ["1", "1"]),
    ("dimension=Region%3Deu", ["1", "2", "3"]),
    ("dimension=Region%3Deu&dimension=Region%3Dus&start_time=2026-11-01T12:00:00", ["3", "3"]),
    ("dimension=Region%3Dmars", []),
    ("dimension=Team%3Da", []),
    ("start_time=9999-12-31T23:59:59Z", []),
    ("end_time=0001-01-01T00:00:00Z", []),
]


async def test_a_part_of_the_records(serving: Serving) -> None:
    """The end of a time range is exclusive. Pages keep the time range and the dimension filters."""
    key = await filled(serving)
    for query, values in PARTS:
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            more = f"&cursor={cursor}" if cursor else ""
            page = said(
                await serving.send(f"{RECORDS}?limit=1&{query}{more}", b"", None, method="GET", key=key)
            )
            assert len(values) == page["pagination"]["total_count"]
            found += [record["value"] for record in page["records"]]
            cursor = page["pagination"]["cursor"]["next_cursor"]
        assert values == found, (query, values)


NO_PARTS: Sequence[str] = [
    "start_time=soon", "start_time=", "dimension=Region", "dimension=%3Deu",
    "start_time=2026-11-01&start_time=2026-11-02", "&".join(f"dimension=d{n}%3Dx" for n in range(6)),
]  # fmt: skip


async def test_what_is_no_part_is_refused(serving: Serving) -> None:
    """A wrong filter gets a 400 that says how to write it."""
    key = await filled(serving)
    for query in NO_PARTS:
        answer = await serving.send(f"{RECORDS}?{query}", b"", None, method="GET", key=key)
        assert 400 == answer.status, query
        assert "invalid_parameter" == orjson.loads(answer.body)["error"]["type"], query
