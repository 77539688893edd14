"""Unit-cost records, valid and invalid, for each documented rule."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from gateway.core.errors import Refusal
from gateway.http.turns import run_with_pauses
from gateway.normalise import unit_cost
from gateway.normalise.unit_cost import ReadOperations
from spool.record import UnitCostOperation, rfc3339
from spool.streams import TelemetryStream

NOW = 1_790_000_000.0  # 2026-09-21
KNOWN = {
    "hourly": TelemetryStream(name="hourly", type="allocation", granularity="HOURLY", keys=("Region",)),
    "usage": TelemetryStream(name="usage", type="metric", granularity="DAILY", keys=("Account",)),
}


def read(
    record: Any, *, type: str = "allocation", stream: str = "new", operation: str = "sum"
) -> UnitCostOperation:
    body = orjson.dumps({"records": [record]})
    return read_all(body, type=type, stream=stream, operation=operation).records[0]


def read_all(body: bytes, *, type: str, stream: str, operation: str = "sum") -> ReadOperations:
    items = unit_cost.records_of_request(body)
    return asyncio.run(
        run_with_pauses(
            unit_cost.read_operations(
                items, type=type, stream=stream, operation=operation, find=KNOWN.get, now=NOW
            )
        )
    )


def allocation(**changes: Any) -> dict[str, Any]:
    record = {
        "timestamp": "2026-09-01",
        "granularity": "DAILY",
        "element_name": "acme",
        "value": 1,
        **changes,
    }
    return {name: value for name, value in record.items() if value is not ...}


def metric(**changes: Any) -> dict[str, Any]:
    record = {"timestamp": "2026-09-01T10:00:00Z", "value": 1, **changes}
    return {name: value for name, value in record.items() if value is not ...}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (1, "1"),
        (0.1, "0.1"),
        ("2.50", "2.5"),
        ("1e3", "1000"),
        (123456789012345678, "123456789012346000"),
        ("0.1234567890123456", "0.123456789012346"),
        (1e-7, "0.0000001"),
    ],
)
def test_values_are_plain_decimals_of_fifteen_digits(written: Any, stored: str) -> None:
    """
    Numbers and their text are accepted, rounded to 15 significant digits, and written without an exponent.
    """
    assert stored == read(allocation(value=written)).value


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("2026-09-01", "2026-09-01T00:00:00Z"),
        ("2026-09-01T10:30:00", "2026-09-01T10:30:00Z"),
        ("2026-09-01T10:30:00Z", "2026-09-01T10:30:00Z"),
        ("2026-09-01T10:30:00+02:00", "2026-09-01T08:30:00Z"),
        ("2026-09-01T10:30:00.25Z", "2026-09-01T10:30:00.25Z"),
    ],
)
def test_times_become_utc(written: str, stored: str) -> None:
    """Dates and times with any offset are accepted. Without an offset they are UTC."""
    assert stored == rfc3339(read(allocation(timestamp=written)).start_time)


@pytest.mark.parametrize(
    "record",
    [
        allocation(),
        allocation(granularity="hourly"),
        allocation(granularity="MONTHLY"),
        allocation(filter={"Region": ["a"] * 20}),
        allocation(filter={f"custom:{n}": ["v"] for n in range(5)}),
        {**allocation(element_name=...), "element-name": "acme"},
        {**allocation(), "telemetry-stream": "new"},
    ],
)
def test_allocation_records_that_are_accepted(record: dict[str, Any]) -> None:
    """Old and new names, any case of a granularity, and up to 5 dimensions and 20 values are accepted."""
    taken = read(record)
    assert taken.stream == "new"
    assert taken.stream_type == "allocation"
    assert taken.element_name == "acme"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("text", "must be an object"),
        (allocation(timestamp=...), "timestamp is required"),
        (allocation(timestamp="yesterday"), "timestamp must be an ISO 8601"),
        (allocation(timestamp=1790000000), "timestamp is required"),
        (allocation(timestamp="2026-09-23"), "more than a day in the future"),
        (allocation(timestamp="1969-01-01"), "before 1970"),
        (allocation(granularity=...), "granularity is required"),
        (allocation(granularity="WEEKLY"), "granularity is required"),
        (allocation(element_name=...), "element_name is required"),
        (allocation(element_name=" "), "element_name is required"),
        (allocation(element_name=7), "element_name is required"),
        (allocation(**{"element-name": "other"}), "given with different values"),
        (allocation(value=...), "value is required"),
        (allocation(value=True), "value is required"),
        (allocation(value=0), "value must be above 0"),
        (allocation(value=-1), "value must be above 0"),
        (allocation(value="1,000"), "without separators"),
        (allocation(value="NaN"), "without separators"),
        (allocation(value="1e999"), "too large or too close to 0"),
        (allocation(value=orjson.Fragment(b"1e99999999999999999999")), "must be a number"),
        (allocation(filter=["Region"]), "filter must be an object"),
        (allocation(filter={"Region": "eu"}), "must have a list of values"),
        (allocation(filter={"Region": []}), "must have a list of values"),
        (allocation(filter={"Region": ["a"] * 21}), "at most 20 values"),
        (allocation(filter={"Region": [""]}), "non-empty text"),
        (allocation(filter={"Region": [1]}), "non-empty text"),
        (allocation(filter={f"d{n}": ["v"] for n in range(6)}), "at most 5 dimensions"),
        (allocation(filter={"": ["v"]}), "names must be non-empty text"),
        (allocation(associated_cost={"a": "b"}), "unknown field 'associated_cost'"),
        (allocation(unit="calls"), "unknown field 'unit'"),
        ({**allocation(), "telemetry-stream": "else"}, "must match the stream in the address"),
    ],
)
def test_allocation_records_that_are_refused(record: Any, words: str) -> None:
    """
    An invalid record refuses the whole request with 400. The message names the record, the field and the
    rule, never a value.
    """
    with pytest.raises(Refusal) as caught:
        read(record)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_records"
    assert "record 0: " in caught.value.message
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (metric(), None),
        (metric(granularity="DAILY"), None),
        (metric(associated_cost={"Account": "1", "Region": "eu"}), None),
        (metric(granularity="HOURLY"), "DAILY or omitted"),
        (metric(associated_cost={"Account": ["1"]}), "each dimension must have one value"),
        (metric(associated_cost={f"d{n}": "v" for n in range(6)}), "at most 5 dimensions"),
        (metric(associated_cost="Account"), "associated_cost must be an object"),
        (metric(element_name="acme"), "unknown field 'element_name'"),
        (metric(filter={"Region": ["eu"]}), "unknown field 'filter'"),
        (metric(timestamp=...), "timestamp is required"),
        (metric(value=0), "value must be above 0"),
    ],
)
def test_metric_records(record: Any, words: str | None) -> None:
    """A metric record has one value per dimension, covers a day, and has no element."""
    if words is None:
        taken = read(record, type="metric")
        assert taken.stream_type == "metric"
        assert taken.granularity == "DAILY"
        assert taken.element_name is None
        return
    with pytest.raises(Refusal, match=words):
        read(record, type="metric")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"timestamp": "2026-09-01", "granularity": "HOURLY"}, None),
        ({"timestamp": "2026-09-01", "granularity": "HOURLY", "element_name": "acme"}, None),
        ({"timestamp": "2026-09-01", "granularity": "HOURLY", "filter": {"Region": ["eu"]}}, None),
        ({"timestamp": "2026-09-01"}, "granularity is required"),
        ({"granularity": "HOURLY"}, "timestamp is required"),
        ({"timestamp": "2026-09-01", "granularity": "HOURLY", "value": 1}, "value must be omitted"),
        (
            {"timestamp": "2026-09-01", "granularity": "HOURLY", "filter": {"Zone": ["a"]}},
            "do not have these",
        ),
    ],
)
def test_what_deletes(record: dict[str, Any], words: str | None) -> None:
    """A record that deletes needs only a time and the granularity. A value is not allowed."""
    if words is None:
        assert read(record, stream="hourly", operation="delete").value is None
        return
    with pytest.raises(Refusal, match=words):
        read(record, stream="hourly", operation="delete")


@pytest.mark.parametrize(
    ("arguments", "record", "words"),
    [
        ({"stream": "hourly"}, allocation(filter={"Region": ["eu"]}), "granularity of the stream is HOURLY"),
        ({"stream": "hourly"}, allocation(granularity="HOURLY"), "dimensions must be the same"),
        (
            {"stream": "hourly"},
            allocation(granularity="HOURLY", filter={"Zone": ["a"]}),
            "dimensions must be the same",
        ),
        ({"stream": "usage"}, allocation(), "the stream is a metric stream"),
        ({"stream": "hourly", "type": "metric"}, metric(), "the stream is an allocation stream"),
        ({"stream": "nowhere", "operation": "delete"}, allocation(value=...), "the stream does not exist"),
    ],
)
def test_what_a_stream_began_with_stays(
    arguments: dict[str, str], record: dict[str, Any], words: str
) -> None:
    """
    The first record of a stream fixes its type, granularity and dimensions. A later record with others is refused.
    """
    with pytest.raises(Refusal, match=words):
        read(record, **arguments)


def test_records_of_one_request_agree_with_each_other() -> None:
    """A stream created by the first record of a request binds the later ones. Every bad record is named."""
    records = [allocation(), allocation(filter={"Region": ["eu"]}), allocation(value=0)]
    with pytest.raises(Refusal) as caught:
        read_all(orjson.dumps({"records": records}), type="allocation", stream="new")
    assert "record 1: dimensions" in caught.value.message
    assert "record 2: value" in caught.value.message


def test_a_large_request_is_read_in_turns() -> None:
    """A large request is read in slices, and the event loop gets a turn after a part of the records."""
    work = unit_cost.read_operations(
        [allocation() for _ in range(unit_cost.MAX_RECORDS)],
        type="allocation",
        stream="new",
        operation="sum",
        find=KNOWN.get,
        now=NOW,
    )
    # 600 records take longer than a slice of half a millisecond, so there are several slices
    assert len(list(work)) >= 4


@pytest.mark.parametrize(
    ("body", "status", "type"),
    [
        (b"not json", 400, "bad_payload"),
        (b"[]", 400, "bad_payload"),
        (b"{}", 400, "bad_payload"),
        (b'{"records": []}', 400, "bad_payload"),
        (b'{"records": {}}', 400, "bad_payload"),
        (orjson.dumps({"records": [allocation()] * 3001}), 413, "too_many_records"),
        (b" " * (5 * 1024**2 + 1), 413, "body_too_large"),
    ],
)
def test_requests_that_are_refused_as_a_whole(body: bytes, status: int, type: str) -> None:
    """
    A request must be an object with 1 to 3,000 records in at most 5 MB. Other requests are refused as a whole.
    """
    with pytest.raises(Refusal) as caught:
        read_all(body, type="metric", stream="s")
    assert caught.value.status == status
    assert caught.value.type == type


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 257])
def test_names_outside_the_alphabet(name: str) -> None:
    """A stream's name has only letters, digits, '_', '.' and '-'."""
    with pytest.raises(Refusal):
        unit_cost.require_stream_name(name)
