"""
Counts inside one attribute: usage objects of every form, answers, and the choice between counts by a total.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.configuration.sections import Config
from gateway.intake.prices import PriceBook
from spool.record import Inference
from tests.gateway.normalise.otlp.payloads import ENCODINGS, only, records, span, traces

SECRET = "canary-5d1e"
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-sonnet-4-5"}
LLM = {"openinference.span.kind": "LLM", "llm.model_name": "claude-sonnet-4-5"}
LANGCHAIN = {
    "input_tokens": 1508, "output_tokens": 20, "total_tokens": 1528,
    "input_token_details": {
        "cache_read": 1000, "cache_creation": 0, "ephemeral_5m_input_tokens": 288, "ephemeral_1h_input_tokens": 100,
    },
}  # fmt: skip
GEMINI = {"promptTokenCount": 1508, "candidatesTokenCount": 20, "totalTokenCount": 1528}
ANTHROPIC = {
    "input_tokens": 120, "output_tokens": 20, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 388,
}  # fmt: skip
OPENAI = {
    "prompt_tokens": 1508, "completion_tokens": 20, "total_tokens": 1528,
    "prompt_tokens_details": {"cached_tokens": 1000, "cache_write_tokens": 388},
}  # fmt: skip
CONVERSE = {
    "inputTokens": 120,
    "outputTokens": 20,
    "cacheReadInputTokens": 1000,
    "cacheWriteInputTokens": 388,
}
SETTLED = (1508, 20, 1000, 388)
MESSAGE_ID, ANSWER_ID = "msg_01AbCdEfGhIjKlMnOpQrStUv", "chatcmpl-AbCdEfGhIjKlMnOpQrStUv"


def counted(record: Inference) -> tuple[int | None, ...]:
    return (record.input_tokens, record.output_tokens, record.cache_read_tokens, record.cache_write_tokens)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("usage", [LANGCHAIN, ANTHROPIC, OPENAI, CONVERSE])
@pytest.mark.parametrize("name", ["gen_ai.usage.raw", "usage", "langsmith.metadata.usage_metadata"])
@pytest.mark.parametrize("written", [json.dumps, str])
def test_usage_object_is_read_under_every_name_and_form(
    name: str, usage: dict[str, Any], written: Any, encoding: str
) -> None:
    """
    A usage object is read under every name, in any provider's form, as JSON or as the text of a Python dict.
    """
    assert SETTLED == counted(only(traces(span(1, {**CHAT, name: written(usage)})), encoding=encoding))


@pytest.mark.parametrize("stated", [120, 1508])
def test_a_usage_object_says_whether_the_input_holds_the_cache(stated: int) -> None:
    """
    A usage object shows whether the input includes the cache. The attribute by itself would be ambiguous if
    the cache is smaller than the input.
    """
    usage = {**ANTHROPIC, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 0}
    attributes = {
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.raw": usage,
    }
    written = {**attributes, "gen_ai.usage.raw": json.dumps(usage)}
    assert (210, 20, 90, 0) == counted(only(traces(span(1, {**CHAT, **written}))))
    inclusive = {**written, "gen_ai.usage.input_tokens": stated, "gen_ai.usage.raw": json.dumps(ANTHROPIC)}
    assert SETTLED == counted(only(traces(span(1, {**CHAT, **inclusive}))))


def test_attributes_that_say_something_else_stay() -> None:
    """An object with other sums adds only values that no attribute states."""
    attributes = {"gen_ai.usage.input_tokens": 5000, "gen_ai.usage.output_tokens": 21}
    record = only(traces(span(1, {**CHAT, **attributes, "gen_ai.usage.raw": json.dumps(OPENAI)})))
    assert (5000, 21, 1000, 388) == counted(record)


def test_a_zero_of_an_attribute_hides_no_count_of_an_object() -> None:
    """
    A 0 in an attribute does not hide the count of a usage object. For example, LangChain states cache writes
    only by lifetime, in two attributes of LangSmith.
    """
    attributes = {
        "langsmith.span.kind": "llm",
        "gen_ai.usage.input_tokens": 1508,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.input_token_details": str(LANGCHAIN["input_token_details"]),
    }
    record = only(traces(span(1, {**CHAT, **attributes})))
    assert counted(record) == SETTLED
    assert record.cache_write_1h_tokens == 100
    plain = {**attributes, "gen_ai.usage.input_token_details": "{'cache_read': 1000, 'cache_creation': 0}"}
    plain["langsmith.metadata.usage_metadata"] = str(LANGCHAIN)
    record = only(traces(span(1, {**CHAT, **plain})))
    assert counted(record) == SETTLED
    assert record.cache_write_1h_tokens == 100


HOURLY = {"ephemeral_5m_input_tokens": 288, "ephemeral_1h_input_tokens": 100}
COUNTED = {
    "gen_ai.usage.input_tokens": 1508, "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 1000, "gen_ai.usage.cache_write.input_tokens": 388,
}  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "attributes"),
    [
        ("com.anthropic.sdk.python", {
            **CHAT, **COUNTED, **{f"anthropic.usage.cache_creation.{name}": count for name, count in HOURLY.items()},
        }),
        ("litellm", {
            **CHAT, "gen_ai.usage.input_tokens": 1508, "gen_ai.usage.output_tokens": 20, "metadata.usage_object": str({
                "prompt_tokens_details": {
                    "cached_tokens": 1000, "cache_creation_tokens": 388, "cache_creation_token_details": HOURLY,
                },
            }),
        }),
        ("ai", {
            "ai.operationId": "ai.generateText.doGenerate", "ai.model.provider": "anthropic.messages",
            "ai.model.id": "claude-sonnet-4-5", "ai.usage.promptTokens": 120, "ai.usage.completionTokens": 20,
            "ai.response.providerMetadata": json.dumps({"anthropic": {
                "cacheCreationInputTokens": 388, "usage": {**ANTHROPIC, "cache_creation": HOURLY},
            }}),
        }),
    ],
)  # fmt: skip
def test_one_hour_cache_writes_are_read_where_stated(scope: str, attributes: dict[str, Any]) -> None:
    """
    One-hour cache writes are read in every product that states them. They are stored separately, because
    their price differs.
    """
    record = only(traces(span(1, attributes), scope=scope))
    assert counted(record) == SETTLED
    assert record.cache_write_1h_tokens == 100


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"anthropic": {"usage": {"service_tier": "batch"}}}, "batch"),
        ({"openai": {"serviceTier": "flex"}}, "flex"),
        ({"openai": {"serviceTier": "default"}}, None),
        ({"openai": "flex"}, None),
    ],
)
def test_ai_sdk_tier_is_read_from_the_provider_metadata(
    metadata: dict[str, Any], expected: str | None
) -> None:
    """
    The AI SDK states the tier that decides the price. It is in the provider metadata, next to the counts.
    """
    attributes = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.id": "m",
        "ai.usage.promptTokens": 1,
    }
    attributes["ai.response.providerMetadata"] = json.dumps(metadata)
    assert expected == only(traces(span(1, attributes), scope="ai")).tags.get("service_tier")


def test_writes_for_an_hour_come_from_either_of_two_spans() -> None:
    """
    One-hour cache writes may be in either of two spans of a call. The span with more fields gives the counts,
    and the other span adds this part.
    """
    answer = {"id": MESSAGE_ID, "model": "claude-sonnet-4-5", "usage": {
        **ANTHROPIC, "cache_creation": {"ephemeral_5m_input_tokens": 288, "ephemeral_1h_input_tokens": 100},
    }}  # fmt: skip
    outer = {**LLM, "output.value": json.dumps(answer), "output.mime_type": "application/json"}
    inner = {
        **CHAT, "gen_ai.provider.name": "anthropic", "gen_ai.response.id": MESSAGE_ID,
        "gen_ai.usage.input_tokens": 1508, "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 1000, "gen_ai.usage.cache_write.input_tokens": 388,
    }  # fmt: skip
    record = only(traces(span(1, outer), span(2, inner, parent=1)))
    assert counted(record) == SETTLED
    assert record.cache_write_1h_tokens == 100


@pytest.mark.parametrize(
    "written",
    ["", "12", "{", "[]", "{'", "{}", "null", '{"input_tokens": -3}', '{"input_tokens": "x"}', "{\"a\": \"\ud800\"}",
     '{"prompt_tokens": 1e400}', '{"input_tokens": {"a": 1}}', "[" * 3000, json.dumps({"usage": OPENAI})],
)  # fmt: skip
def test_what_is_no_usage_object_says_nothing(written: str) -> None:
    """Invalid text has no effect on the call."""
    record = only(traces(span(1, {**CHAT, "gen_ai.usage.input_tokens": 7, "usage": written})))
    assert (7, None, None, None) == counted(record)


def message(**members: Any) -> dict[str, Any]:
    """Create an answer of Anthropic with content."""
    return {
        "id": MESSAGE_ID, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": SECRET}], "usage": ANTHROPIC, **members,
    }  # fmt: skip


def generation(**kwargs: Any) -> dict[str, Any]:
    """Create LangChain's result for one prompt."""
    inner = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"]}
    return {
        "generations": [[{"text": SECRET, "message": {**inner, "kwargs": {"content": SECRET, **kwargs}}}]]
    }


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["output.value", "gen_ai.completion", "gen_ai.output.messages"])
@pytest.mark.parametrize(
    "answer",
    [
        message(),
        generation(id=MESSAGE_ID, usage_metadata=LANGCHAIN),
        generation(
            id="run--0197ba1c-0e0f-7f80", usage_metadata=LANGCHAIN, response_metadata={"id": MESSAGE_ID}
        ),
        generation(response_metadata={"id": MESSAGE_ID, "usage": ANTHROPIC}),
        {**generation(usage_metadata=LANGCHAIN), "llm_output": {"id": MESSAGE_ID}},
    ],
)
def test_an_answer_gives_its_id_and_what_is_missing_of_its_counts(
    answer: dict[str, Any], name: str, encoding: str
) -> None:
    """
    An answer gives its id and missing counts. With the id, a framework's span is the same call as the span of
    the provider's SDK in another trace.
    """
    ours = only(traces(span(1, {**LLM, name: json.dumps(answer)})), encoding=encoding)
    theirs = only(traces(span(2, {**CHAT, "gen_ai.response.id": MESSAGE_ID}, traceId=f"{2:032x}")))
    assert theirs.id == ours.id
    assert ours.request_id == MESSAGE_ID
    assert SETTLED == counted(ours)
    assert SECRET not in repr(ours)


def test_an_answer_of_mlflows_gives_its_id() -> None:
    """MLflow has a separate attribute for the answer, which gives the id."""
    answer = {
        "id": ANSWER_ID,
        "object": "chat.completion",
        "model": "gpt-4o",
        "usage": OPENAI,
        "choices": [SECRET],
    }
    record = only(
        traces(span(1, {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanOutputs": json.dumps(answer)}))
    )
    assert (ANSWER_ID, *SETTLED) == (record.request_id, *counted(record))


@pytest.mark.parametrize("name", ["output.value", "mlflow.spanOutputs"])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (message(usage={**ANTHROPIC, "service_tier": "batch"}), "batch"),
        (message(service_tier="flex"), "flex"),
        (message(response_metadata={"service_tier": "priority"}), "priority"),
        (generation(usage_metadata=LANGCHAIN, response_metadata={"service_tier": "flex"}), "flex"),
        (generation(response_metadata={"usage": {**ANTHROPIC, "service_tier": "batch"}}), "batch"),
        (
            message(usage=None, usageMetadata={**GEMINI, "trafficType": "PROVISIONED_THROUGHPUT"}),
            "provisioned",
        ),
        (
            message(usage=None, usage_metadata={**GEMINI, "traffic_type": "TrafficType.ON_DEMAND_PRIORITY"}),
            "priority",
        ),
        (message(usage=None, usageMetadata={**GEMINI, "trafficType": "ON_DEMAND"}), None),
        (message(usage=None, usageMetadata={**GEMINI, "trafficType": ["ON_DEMAND_FLEX"]}), None),
        (message(usage={**ANTHROPIC, "service_tier": "standard"}), None),
        (message(service_tier=["flex"]), None),
        (message(content=[{"service_tier": "flex"}]), None),
    ],
)
def test_an_answer_gives_the_tier_that_decides_its_price(
    answer: dict[str, Any], expected: str | None, name: str
) -> None:
    """The answer states the tier that decides its price. A tier inside the answer's content is not used."""
    kind = {"mlflow.spanType": '"CHAT_MODEL"'} if name.startswith("mlflow") else LLM
    record = only(traces(span(1, {**kind, name: json.dumps(answer)})))
    assert expected == record.tags.get("service_tier")


def test_a_stated_tier_is_stronger_than_that_of_an_answer() -> None:
    attributes = {
        **LLM,
        "output.value": json.dumps(message(service_tier="flex")),
        "openai.response.service_tier": "batch",
    }
    assert "batch" == only(traces(span(1, attributes))).tags["service_tier"]


def test_an_answer_of_geminis_gives_id_and_thoughts() -> None:
    """Gemini's answer gives the id and the thinking tokens. Its names are read in both notations."""
    usage = {
        "promptTokenCount": 1120,
        "candidatesTokenCount": 53,
        "thoughtsTokenCount": 11,
        "totalTokenCount": 1184,
    }
    snake = {"prompt_token_count": 1120, "candidates_token_count": 53, "thoughts_token_count": 11}
    answers = [
        {"responseId": "Zk3PaKm2Hc2vnsEPvNqGsAQ", "modelVersion": "gemini-2.5-flash", "usageMetadata": usage},
        {
            "response_id": "Zk3PaKm2Hc2vnsEPvNqGsAQ",
            "model_version": "gemini-2.5-flash",
            "usage_metadata": snake,
        },
    ]
    for answer in answers:
        record = only(traces(span(1, {**LLM, "output.value": json.dumps(answer)})))
        assert record.request_id == "Zk3PaKm2Hc2vnsEPvNqGsAQ"
        assert record.input_tokens == 1120
        assert record.output_tokens == 64
        assert record.reasoning_tokens == 11


def test_a_stated_id_is_stronger_than_that_of_an_answer() -> None:
    """A stated id has priority over the id in an answer. The same holds for counts."""
    call = {
        **LLM,
        "llm.response.id": ANSWER_ID,
        "llm.token_count.prompt": 2000,
        "output.value": json.dumps(message()),
    }
    record = only(traces(span(1, call)))
    assert record.request_id == ANSWER_ID
    assert record.input_tokens == 2000


@pytest.mark.parametrize(
    "answer",
    [
        SECRET,
        {"id": f"{SECRET}-of-more-than-sixteen-letters"},
        {"id": "order_12345678901234567890", "usage": {"total": 3}},
        {"id": "order_12345678901234567890", "usage": OPENAI},
        {"id": f"{SECRET} with words, and of some length", "model": "m", "usage": OPENAI},
        message(id=[SECRET]),
        message(id="x" * 4000),
        generation(id=f"{SECRET}-of-more-than-sixteen-letters"),
        {
            "generations": [
                [{"message": {"kwargs": {"id": MESSAGE_ID}}}],
                [{"message": {"kwargs": {"id": MESSAGE_ID}}}],
            ]
        },
        {"generations": []},
        {"generations": [SECRET]},
        [SECRET],
        [{"role": "user", "id": MESSAGE_ID}],
        [{"role": "assistant", "id": MESSAGE_ID}, {"role": "assistant", "id": ANSWER_ID}],
    ],
)
def test_what_a_model_may_have_written_is_no_id(answer: Any) -> None:
    """
    Text that a model may have written is no id. An id needs a provider's form, or a model and usage next to it.
    """
    written = answer if isinstance(answer, str) else json.dumps(answer)
    record = only(traces(span(1, {**LLM, "output.value": written})))
    assert record.request_id is None
    assert SECRET not in repr(record)


def test_messages_give_the_one_id_of_an_answer() -> None:
    """
    If messages of the conventions contain one answer, it gives the id. They are a list, usually with one answer.
    """
    messages = [{"role": "assistant", "id": ANSWER_ID, "parts": [{"type": "text", "content": SECRET}]}]
    record = only(traces(span(1, {**CHAT, "gen_ai.output.messages": json.dumps(messages)})))
    assert record.request_id == ANSWER_ID
    assert record.input_tokens is None


@pytest.mark.parametrize("stated", [95, 80])
@pytest.mark.parametrize("apart", [{}, {"gen_ai.usage.experimental.reasoning_tokens": 15}])
@pytest.mark.parametrize("mark", [{}, {"openinference.span.kind": "LLM"}])
def test_of_two_sets_of_counts_that_of_the_total_counts(
    stated: int, apart: dict[str, int], mark: dict[str, str]
) -> None:
    """
    Of two sets of counts, the set that matches the total counts. Google's ADK over LiteLLM, under
    OpenInference, adds reasoning once too often.
    """
    call = {
        **mark, **apart,
        "gen_ai.operation.name": "generate_content", "gen_ai.request.model": "openai/o4-mini",
        "gen_ai.usage.input_tokens": 1200, "gen_ai.usage.output_tokens": stated,
        "llm.token_count.prompt": 1200, "llm.token_count.completion": 80, "llm.token_count.total": 1280,
    }  # fmt: skip
    record = only(traces(span(1, call), scope="gcp.vertex.agent"))
    assert record.input_tokens == 1200
    assert record.output_tokens == 80


def test_a_total_that_no_set_makes_up_decides_nothing() -> None:
    """
    If no set of counts matches the total, the first names count. The cache is never subtracted from an input
    that excludes it.
    """
    call = {
        **CHAT, "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 20, "gen_ai.usage.total_tokens": 140,
        "gen_ai.usage.cache_read_input_tokens": 1000, "llm.usage.prompt_tokens": 130,
    }  # fmt: skip
    assert 1120 == only(traces(span(1, call))).input_tokens
    assert 1120 == only(traces(span(1, call), scope="opentelemetry.instrumentation.bedrock")).input_tokens


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gemini-2.5-flash", (1120, 64, 11)),
        ("models/gemini-2.5-pro", (1120, 64, 11)),
        ("gpt-4o", (1131, 53, None)),
    ],
)
def test_geminis_thinking_tokens_may_be_only_in_the_total(
    model: str, expected: tuple[int | None, ...]
) -> None:
    """
    In OpenLLMetry, Gemini's thinking tokens may be only in the total. Then the part of the total above input
    and output is reasoning, and is billed as output. For other models it is input.
    """
    call = {
        "llm.request.type": "chat", "gen_ai.request.model": model, "gen_ai.usage.prompt_tokens": 1120,
        "gen_ai.usage.completion_tokens": 53, "llm.usage.total_tokens": 1184,
    }  # fmt: skip
    for reasoning in ({}, {"gen_ai.usage.reasoning_tokens": 0}):
        record = only(traces(span(1, {**call, **reasoning})))
        found = (record.input_tokens, record.output_tokens, record.reasoning_tokens or None)
        assert expected == found


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "m"}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ((107, 64, 1184), (1120, 64)),
        ((107, 64, 171), (107, 64)),
        ((107, 64, 100), (107, 64)),
        ((None, None, 1280), (1280, None)),
        ((0, 0, 1280), (1280, 0)),
        ((None, 64, 1184), (1120, 64)),
        ((1120, None, 1184), (1120, 64)),
        ((1120, None, 1120), (1120, None)),
        ((None, None, 0), (None, None)),
    ],
)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_only_a_total_states_is_counted(
    encoding: str, stated: tuple[int | None, ...], expected: tuple[int | None, ...]
) -> None:
    """The rest of a total is input, whose cached part is unknown. A lone total has no estimate."""
    names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.total_tokens")
    counts = {name: count for name, count in zip(names, stated, strict=True) if count is not None}
    record = only(traces(span(1, CHAT | counts)), encoding=encoding)
    assert expected == (record.input_tokens, record.output_tokens)
    assert record.cache_read_tokens is None


def test_a_lone_total_of_haystack_is_input_without_an_estimate() -> None:
    call = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-5", "llm.token_count.total": 1280}
    record = only(traces(span(1, call), scope="openinference.instrumentation.haystack"))
    assert (1280, None) == (record.input_tokens, record.output_tokens)
    assert PriceBook.load(Config().prices).estimate_record(record) is None


def test_the_amount_that_xai_charged_is_the_cost() -> None:
    """One dollar has 10,000,000,000 ticks. An impossible number is no cost, and the call still counts."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "x_ai", "gen_ai.request.model": "grok-4"}
    for ticks, cost in ((37_756_000, "0.0037756"), (0, "0"), (-1, None), ("x", None), (None, None)):
        usage = {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 41, "cost_in_usd_ticks": ticks}
        record = only(traces(span(1, call | {"llm.usage": json.dumps(usage)})))
        assert (32, 9, cost) == (record.input_tokens, record.output_tokens, record.cost)


def test_thoughts_that_are_stated_are_counted_once() -> None:
    """Stated reasoning tokens count once, whether or not the output includes them."""
    call = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "gemini-2.5-flash",
        "gen_ai.usage.input_tokens": 1120, "gen_ai.usage.total_tokens": 1184, "gen_ai.usage.reasoning_tokens": 11,
    }  # fmt: skip
    outputs = [
        only(traces(span(1, {**call, "gen_ai.usage.output_tokens": n}))).output_tokens for n in (53, 64)
    ]
    assert [64, 64] == outputs


def test_spans_of_many_kinds_keep_their_own_content_out() -> None:
    """Content of spans that are not calls is dropped as well, whatever kind of span it is."""
    chain = {"openinference.span.kind": "CHAIN", "output.value": json.dumps(message(note=SECRET))}
    assert [] == records(traces(span(1, chain)))
