"""`tollhouse explain`: reasons for each number, and files that cannot be read."""

from __future__ import annotations

import asyncio
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from exporters.otlp.spans import SpanEncoder
from gateway.cli.explain import explain, explain_payload
from gateway.cli.send.command import example_payload
from gateway.configuration.attribution import SourceSettings
from gateway.configuration.sections import Config
from spool.record import AMENDABLE, NS, Inference
from tests.gateway.normalise.otlp.payloads import in_json, span, traces


def test_a_file_that_cannot_be_read_spoils_no_other(tmp_path: Path) -> None:
    """
    If a file cannot be read, the error names the file and the reason, and the exit code is 1. The other
    files are explained.
    """
    good, packed, cut, damaged = (tmp_path / name for name in ("good", "packed", "cut", "damaged"))
    body = example_payload("litellm")
    good.write_bytes(body)
    packed.write_bytes(gzip.compress(body))
    cut.write_bytes(gzip.compress(body)[:-9])
    damaged.write_bytes(b"\x1f\x8b\x08\x00" + b"garbage" * 9)
    missing = tmp_path / "missing"
    result = CliRunner().invoke(explain, [str(path) for path in (cut, good, damaged, missing, packed)])
    explained = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [str(good), str(packed)] == [each["file"] for each in explained]
    assert 3 == result.stderr.count("cannot be read")


def test_a_wrong_format_gets_the_nearest_right_one(tmp_path: Path) -> None:
    """
    With a wrong format name, the command fails before any file is read, and suggests the nearest format.
    """
    result = CliRunner().invoke(explain, [str(tmp_path / "none"), "--as", "bedrok"])
    assert result.exit_code == 2
    assert "did you mean 'bedrock'?" in result.stderr


@pytest.mark.parametrize(
    ("temporality", "why"),
    [
        (1, "the increase that the metric cline.cost.total reports"),
        (2, "the increase of the counter cline.cost.total"),
    ],
)
def test_a_counters_value_has_its_reason(tmp_path: Path, temporality: int, why: str) -> None:
    """
    A delta value is its own increase. The log computes the increase of a cumulative value, and the
    reason says so.
    """
    point = {
        "asDouble": 0.5,
        "startTimeUnixNano": "1790000000000000000",
        "timeUnixNano": "1790000060000000000",
    }
    counter = {"aggregationTemporality": temporality, "isMonotonic": True, "dataPoints": [point]}
    metric = {"name": "cline.cost.total", "sum": counter}
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}))
    result = CliRunner().invoke(explain, [str(file), "--why"])
    (record,) = json.loads(result.stdout)["records"]
    assert record["value"] == "0.5"
    assert why in record["why"]["value"]


NUMBERS = [name for name in AMENDABLE if name.endswith("_tokens")] + ["cost", "value"]
NO_RECORDS = {"sequences"}  # case folders that have no records
ROOT = Path(__file__).parents[2] / "cases"
CASES = [
    path
    for path in sorted(ROOT.rglob("*.*json"))
    if not path.name.endswith(".expected.json") and NO_RECORDS.isdisjoint(path.relative_to(ROOT).parts)
]


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_number_and_every_twin_of_every_case_has_its_reason(case: Path) -> None:
    """Each number has a rule, each estimate its price lines, and each merged item the id of its record."""
    format = None if case.parent.parent.name == "otlp" else case.parent.name
    result = asyncio.run(explain_payload(case.read_bytes(), format, Config(), why=True))
    for record in result["records"]:
        assert [] == [name for name in NUMBERS if record.get(name) is not None and name not in record["why"]]
        assert {"id", "estimated_cost", "cost_source"} <= set(record["why"]) or record[
            "kind"
        ] == "usage_metric"
        lines = record.get("price_lines", [])
        if record.get("estimated_cost") is not None:
            assert Decimal(record["estimated_cost"]) == sum(Decimal(line["amount"]) for line in lines)
            of = {line["of"]: line["quantity"] for line in lines}
            cached = sum(of.get(name, 0) for name in ("cache read", "cache audio read", "cache image read"))
            assert record["cache_read_tokens"] in (None, cached)
        assert not record["shadow"] or "never summed" in record["why"]["shadow"]
    assert all(row["why"] for row in result["ignored"])
    told = {row["reason"]: row["count"] for row in result["ignored"]}
    assert told.get("merged", 0) + told.get("duplicate", 0) == len(result["dropped"])
    assert all(row["why"].startswith("dropped: ") for row in result["dropped"])


def test_twins_and_repeats_name_what_they_repeat(tmp_path: Path) -> None:
    """
    The three cases are a framework's span around the provider's span, a repeated span, and a report of the
    same call in another trace. Each names the record that it repeats.
    """
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.usage.output_tokens": 5,
            "gen_ai.usage.input_tokens": 100, "gen_ai.response.id": "chatcmpl-0123456789abcdefABCD"}  # fmt: skip
    outer = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4o"}
    other = span(4, chat)
    other["traceId"] = "ab" * 16
    payload = traces(span(1, outer), span(2, chat, parent=1), span(2, chat, parent=1), other)
    result = asyncio.run(explain_payload(in_json(payload), None, Config(), why=True))
    [record] = result["records"]
    assert [
        (
            f"span {other['spanId'][:-1]}2",
            "dropped: repeats an earlier span with the same trace id and span id",
        ),
        (
            f"span {other['spanId'][:-1]}1",
            f"dropped: repeats the enclosed span {record['span_id']}, because the innermost call "
            "with tokens counts",
        ),
        (
            "report of otel with the id chatcmpl-0123456789abcdefABCD",
            f"dropped: repeats record {record['id']}, because that record is recognized by its response id",
        ),
    ] == [(row["item"], row["why"]) for row in result["dropped"]]
    assert [("duplicate", 2), ("merged", 1)] == [(row["reason"], row["count"]) for row in result["ignored"]]


def test_what_another_tollhouse_sends_names_its_attributes() -> None:
    """
    A record of another Tollhouse is accepted unchanged. The reason of each number is the attribute in which
    it was sent.
    """
    given = Inference(
        id=b"\7" * 16, source="litellm", request_id="chatcmpl-1", start_time=NS, end_time=2 * NS, input_tokens=9,
        output_tokens=3, cache_write_tokens=5, cache_write_1h_tokens=4, cost="0.5", estimated_cost="0.25",
        cost_source="reported", price_book="theirs",
    )  # fmt: skip
    body = SpanEncoder().encode_request([(given, 1.0)])
    [record] = asyncio.run(explain_payload(body, "otlp/traces", Config(), why=True))["records"]
    assert (9, 4, "0.5", "0.25") == tuple(
        record[name] for name in ("input_tokens", "cache_write_1h_tokens", "cost", "estimated_cost")
    )
    assert [] == [name for name in NUMBERS if record.get(name) is not None and "." not in record["why"][name]]
    assert "tollhouse.estimated_cost" == record["why"]["estimated_cost"]
    # Another price book made the estimate, so price lines of this price book would not add up to it.
    assert "price_lines" not in record


def meter(id: str, user: str, **data: Any) -> dict[str, Any]:
    time = "2026-11-01T10:00:00Z"
    return {"specversion": "1.0", "type": "tokens", "id": id, "time": time, "subject": user, "data": data}


def test_two_records_of_one_call_and_what_joins_them() -> None:
    """
    One span states the response id, and another the id that the provider gave to the request. A third span states
    both, and so shows that the two are one call.
    """
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", "gen_ai.usage.input_tokens": 41}
    response = {"gen_ai.response.id": "chatcmpl-01AbCdEfGhIjKlMnOpQrStUv"}
    request = {"azure.service.request.id": "3f1d2c4b-0000-4000-8000-0000000000aa"}
    spans = [span(1, call | response), span(2, call | request), span(3, call | response | request)]
    for number, told in enumerate(spans, start=5):
        told["traceId"] = f"{number:032x}"
    result = asyncio.run(explain_payload(in_json(traces(*spans)), None, Config(), why=True))
    first, second = result["records"]
    assert first["shadow"] is False
    assert second["shadow"] is True
    assert first["id"] == second["counted_by"]
    assert f"this record and record {first['id']} are the same call" in second["why"]["shadow"]
    assert [{"reason": "duplicate", "count": 1}] == [
        {name: row[name] for name in ("reason", "count")} for row in result["ignored"]
    ]


def test_a_counter_before_its_calls_is_a_shadow_and_says_why() -> None:
    """
    A counter of a user with calls is kept for reference, with this reason, wherever it is in the file. A
    counter of a user without calls counts.
    """
    counters = [meter(f"m-{user}", user, tokens=9, model="gpt-4o", type="input") for user in ("anna", "bert")]
    call = meter("c-1", "anna", model="gpt-4o", prompt_tokens=9, completion_tokens=2)
    for events in ([*counters, call], [call, *counters]):
        result = asyncio.run(explain_payload(json.dumps(events).encode(), "openmeter", Config(), why=True))
        metrics = {row["user"]: row for row in result["records"] if row["kind"] == "usage_metric"}
        assert {"anna": True, "bert": False} == {user: row["shadow"] for user, row in metrics.items()}
        assert (
            "the same program (source openmeter, user anna) also reports calls"
            in metrics["anna"]["why"]["shadow"]
        )
        assert "shadow" not in metrics["bert"]["why"]


def test_a_source_that_does_not_count_says_so() -> None:
    """If a source has `count = false`, this setting is the only reason why its calls are kept for reference."""
    config = Config(sources={"litellm": SourceSettings(count=False)})
    [record] = asyncio.run(explain_payload(example_payload("litellm"), None, config, why=True))["records"]
    assert (
        "stored and shown, but never summed or sent upstream: [sources.litellm] count = false"
        == record["why"]["shadow"]
    )


def test_an_agents_sum_says_what_it_sums_up() -> None:
    """
    If an agent span contains the span of its call, it is a sum and does not count. Without that call, the
    agent span counts.
    """
    agent = {
        "openinference.span.kind": "AGENT", "llm.model_name": "claude-sonnet-4-5", "session.id": "s-1",
        "llm.token_count.prompt": 100, "llm.token_count.completion": 10,
    }  # fmt: skip
    call = {
        "span.type": "llm_request", "model": "claude-sonnet-4-5", "session.id": "s-1", "input_tokens": 100,
        "output_tokens": 10, "request_id": "req_0123456789abcdef0123",
    }  # fmt: skip
    payload = traces(span(1, agent), scope="openinference.instrumentation.claude_agent_sdk")
    alone = asyncio.run(explain_payload(in_json(payload), None, Config(), why=True))["records"]
    payload["resourceSpans"] += traces(span(2, call, parent=1), scope="com.anthropic.claude_code")[
        "resourceSpans"
    ]
    beside = asyncio.run(explain_payload(in_json(payload), None, Config(), why=True))["records"]
    assert [("openinference", False)] == [(row["source"], row["shadow"]) for row in alone]
    shadows = {row["source"]: row["why"]["shadow"] for row in beside if row["shadow"]}
    assert ["openinference"] == list(shadows)
    assert "it sums up a run, and claude_code also reports the calls" in shadows["openinference"]


def test_tags_left_out_are_counted(tmp_path: Path) -> None:
    """The number of left-out tags is reported only for the file with the long tag."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
    files = [tmp_path / "fits.json", tmp_path / "does_not.json"]
    for file, plan in zip(files, ("gold", "g" * 257), strict=True):
        attributes["langsmith.metadata.plan"] = plan
        pairs = [{"key": name, "value": {"stringValue": value}} for name, value in attributes.items()]
        file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": pairs}]}]}]}))
    result = CliRunner().invoke(explain, [str(file) for file in files])
    fits, does_not = (json.loads(line) for line in result.stdout.splitlines())
    assert fits["records"][0]["tags"] == {"plan": "gold"}
    assert does_not["records"][0]["tags"] == {}
    assert "left_out" not in fits
    assert does_not["left_out"] == 1
