"""Properties of every trace payload, valid or not."""

from __future__ import annotations

import copy
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import BadPayload
from gateway.normalise.otlp import semconv, shapes
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.reading import values
from spool.record import AMENDABLE, Inference, pack_records, record_to_json, unpack_records
from tests.gateway.normalise.otlp.payloads import ENCODINGS, in_json, in_protobuf, normalised, span, traces
from tests.rounds import reduced

CASES = Path(__file__).parents[3] / "cases/otlp"
PAYLOADS = [
    json.loads(path.read_text())
    for path in sorted(CASES.rglob("*.json"))
    if not path.name.endswith(".expected.json") and "resourceSpans" in path.read_text()
]

MARKS = {
    name
    for product in PRODUCTS
    for name in (
        *product.marks,
        *product.weak_marks,
        *product.taken_marks,
        *(kind.attribute for kind in product.kinds),
    )
}
NAMES = sorted(
    {
        *(name for table in shapes.FIELD_NAMES.values() for name in table), *semconv.HTTP_STATUS, *shapes.TAG_LISTS,
        *shapes.CONTAINERS, *MARKS, "metadata", "success", "model", "traceloop.span.kind",
        "langsmith.metadata.a", "trace.metadata.b", "gen_ai.prompt", "user.email", "litellm.model_group",
        "langsmith.span.kind", "spring.ai.kind", "logfire.span_type", "langfuse.observation.level", "ai.model.provider",
    }
)  # fmt: skip
VALUES = (
    st.integers(-(2**63), 2**63 - 1)
    | st.integers(-5, 3000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.sampled_from([
        "chat", "embeddings", "LLM", "AGENT", "generation", "ai.generateText.doGenerate", "llm_request", "anthropic",
        "az.ai.agents", "none", "undefined", "1003", "1e400", "-1", "NaN", "0.5", '"CHAT_MODEL"', "{", "[]", "{}",
        '{"input": 5, "output": 2, "total": 7}', '{"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}}',
        '{"total": "x", "input": -1}', "{'cached_tokens': 5}", '{"a": {"b": {"c": 1}}}', "9" * 60, "[" * 600,
        "atext_completion", "tool", "unknown", "ERROR", '{"bedrock": {"usage": {"cacheWriteInputTokens": 7}}}',
        "us.anthropic.claude-3", "claude-sonnet-4-5", "openai/gpt-4o", "1.5", "00" * 16,
    ])
)  # fmt: skip
SCOPES = st.sampled_from(
    ["", "ai", "gen_ai", "langfuse-sdk", "pydantic-ai", "strands.telemetry.tracer", "gcp.vertex.agent", "litellm",
     "opentelemetry.instrumentation.bedrock", "com.anthropic.claude_code.tracing", "openrouter", "copilot-chat",
     "openinference.instrumentation.claude_agent_sdk"]
)  # fmt: skip
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=10)


def assert_sensible(outcome: ReadOutcome) -> None:
    for record, identity in zip(outcome.records, outcome.identities, strict=True):
        row = record_to_json(record)
        counts = [getattr(record, name) for name in AMENDABLE if name.endswith("_tokens")]
        assert all(
            value is None or (type(value) is int and 0 <= value <= 5 * values.MAX_TOKENS) for value in counts
        )
        read, written = row["cache_read_tokens"] or 0, row["cache_write_tokens"] or 0
        assert row["input_tokens"] is None or read + written <= row["input_tokens"]
        assert row["output_tokens"] is None or (row["reasoning_tokens"] or 0) <= row["output_tokens"]
        if row["cost"] is not None:
            assert row["cost"] == f"{Decimal(row['cost']):f}"
            assert Decimal(row["cost"]) >= 0
        assert (row["status"] == "error") == (row["error_type"] is not None)
        assert record.id == identity.id
        assert 16 == len(record.id)
        assert all(isinstance(value, str) for value in row["tags"].values())
    assert unpack_records(pack_records(outcome.records)) == outcome.records


@given(st.lists(st.tuples(ATTRIBUTES, st.none() | st.integers(1, 5)), max_size=5), SCOPES, ATTRIBUTES)
def test_any_attributes_give_sensible_records(
    family: list[tuple[dict[str, Any], int | None]], scope: str, resource: dict[str, Any]
) -> None:
    """
    Any attributes give records without an exception. No count is negative or fractional, and no part exceeds
    its total. The accounting balances, and both encodings agree.
    """
    spans = [
        span(number, attributes, parent=parent) for number, (attributes, parent) in enumerate(family, start=1)
    ]
    payload = traces(*spans, scope=scope, resource=resource)
    by_json = normalised(in_json(payload))
    by_protobuf = normalised(in_protobuf(payload), encoding="protobuf")
    assert_sensible(by_json)
    assert by_json.records == by_protobuf.records
    assert by_json.ignored == by_protobuf.ignored
    assert by_json.rejects == by_protobuf.rejects


@given(st.lists(ATTRIBUTES, max_size=4), SCOPES)
def test_explaining_changes_nothing(spans: list[dict[str, Any]], scope: str) -> None:
    """`--why` changes no record. It adds one set of reasons per record, which contains only field names."""
    payload = traces(
        *(span(number, attributes) for number, attributes in enumerate(spans, start=1)), scope=scope
    )
    plain, explained = normalised(payload), normalised(payload, options=ReadOptions(explain=True))
    assert plain.records == explained.records
    assert explained.why is not None
    for record, why in zip(explained.records, explained.why, strict=True):
        assert set(why) <= set(record.__struct_fields__)


def _spots(node: Any) -> list[tuple[Any, Any]]:
    """Return every value in a tree that can be replaced."""
    found: list[tuple[Any, Any]] = []
    for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        found.append((node, key))
        found += _spots(node[key])
    return found


@given(st.data())
def test_mutated_cases_are_understood_or_refused(data: st.DataObject) -> None:
    """A real payload with replaced, removed or doubled members gives valid records or a 400."""
    payload = copy.deepcopy(data.draw(st.sampled_from(PAYLOADS)))
    for _ in range(data.draw(st.integers(1, 4))):
        if not (spots := _spots(payload)):
            break
        node, key = data.draw(st.sampled_from(spots))
        match data.draw(st.sampled_from(["replace", "remove", "double"])):
            case "replace":
                node[key] = data.draw(st.none() | VALUES | st.just([]) | st.just({}))
            case "remove":
                del node[key]
            case "double" if isinstance(node, list):
                node.append(copy.deepcopy(node[key]))
    try:
        assert_sensible(normalised(in_json(payload)))
    except BadPayload as refusal:
        assert 400 == refusal.status


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_every_case_is_explained(payload: dict[str, Any]) -> None:
    """Source, operation, meters and every count have a reason, which names an attribute or a rule."""
    outcome = normalised(payload, options=ReadOptions(explain=True))
    for record, why in zip(outcome.records, outcome.why or (), strict=True):
        stated = {
            name for name in AMENDABLE if name.endswith("_tokens") and getattr(record, name) is not None
        }
        if isinstance(record, Inference) and record.meters:
            stated.add("meters")
        assert {"source", "operation"} | stated <= set(why)
        assert all(reason and isinstance(reason, str) for reason in why.values())


def test_values_from_other_spans_have_a_reason() -> None:
    """
    Values from other spans have a reason as well: cost and tokens of a dropped span, and inherited users.
    """
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10}
    outer = {**call, "gen_ai.usage.cost": 0.5, "gen_ai.usage.output_tokens": 1, "user.id": "u"}
    outcome = normalised(traces(span(1, outer), span(2, call, parent=1)), options=ReadOptions(explain=True))
    assert outcome.why is not None
    (why,) = outcome.why
    assert {
        "cost": "gen_ai.usage.cost, from a dropped duplicate span",
        "input_tokens": "gen_ai.usage.input_tokens, from a dropped duplicate span",
        "output_tokens": "gen_ai.usage.output_tokens, from a dropped duplicate span",
        "user": "inherited from a dropped duplicate span, an enclosing span or the resource",
        "request_model": "gen_ai.request.model",
    } == {field: why[field] for field in ("cost", "input_tokens", "output_tokens", "user", "request_model")}


_AGENT_RUN = {
    "gen_ai.system": "az.ai.agents",
    "gen_ai.operation.name": "get_thread_run",
    "gen_ai.thread.run.id": "run-1",
}


@pytest.mark.parametrize(
    ("scope", "name", "attributes", "decided_by"),
    [
        ("", "span", {"gen_ai.operation.name": "chat"}, "gen_ai.operation.name"),
        ("", "span", {}, "the span has a model or provider, and usage or an error"),
        ("pi-otel-extension", "agent.turn", {}, "set by dialect pi"),
        ("litellm", "span", {"gen_ai.operation.name": "chat"}, "gen_ai.operation.name"),
        ("", "span", _AGENT_RUN, "gen_ai.operation.name, by dialect azure_ai"),
    ],
)
def test_reason_of_an_operation_names_its_attribute_or_rule(
    scope: str, name: str, attributes: dict[str, str], decided_by: str
) -> None:
    """
    The reason of an operation names its attribute. If no attribute states the operation in the conventions'
    words, the reason names the product's own rule.
    """
    call = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10, **attributes}
    outcome = normalised(traces(span(1, call, name=name), scope=scope), options=ReadOptions(explain=True))
    assert outcome.why is not None
    assert decided_by == outcome.why[0]["operation"]


def test_configured_attributes_become_tags_but_content_is_dropped() -> None:
    """
    `privacy.keep_attributes` names attributes of spans or resources. Content names are dropped and counted.
    """
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "feature": "search",
        "answer.output": "x",
    }
    outcome = normalised(
        traces(span(1, call), resource={"k8s.namespace.name": "shop"}),
        options=ReadOptions(keep_attributes=frozenset({"feature", "k8s.namespace.name", "answer.output"})),
    )
    assert [{"feature": "search", "k8s.namespace.name": "shop"}] == [
        record.tags for record in outcome.records
    ]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_caches_of_long_names_are_limited_in_characters(encoding: str) -> None:
    """
    Caches of names (attributes, metadata, scopes) are limited in characters as well as in number, so long
    names do not fill the memory.
    """
    size = 100_000

    def take(number: int) -> None:
        name = f"{number}" + "n" * size
        attributes = {name: 1, f"langfuse.trace.metadata.{name}": "x", "metadata": json.dumps({name: 1})}
        normalised(
            traces(span(1, {"gen_ai.operation.name": "chat", **attributes}), scope=name), encoding=encoding
        )

    take(0)
    tracemalloc.start()
    try:
        for number in range(1, 1 + reduced(30, by=2)):
            take(number)
        assert tracemalloc.get_traced_memory()[0] < 10 * size
    finally:
        tracemalloc.stop()
