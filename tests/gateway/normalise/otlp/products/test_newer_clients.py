"""
Payloads of newer real clients: answers inside lists, usage of several providers, and failures with a good status.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from spool.record import Inference
from tests.gateway.normalise.otlp.payloads import ENCODINGS, only, records, span, traces

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o"}
LLM = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4o"}
FAILED = {"status": {"code": 2}}


def sums(record: Inference) -> tuple[int | None, ...]:
    return (
        record.input_tokens, record.output_tokens, record.cache_read_tokens, record.cache_write_tokens,
        record.reasoning_tokens,
    )  # fmt: skip


ANSWER = {
    "id": "chatcmpl-aa11bb22cc33dd44ee55",
    "model": "gpt-4o-mini",
    "usage": {"prompt_tokens": 410, "completion_tokens": 22, "prompt_tokens_details": {"cached_tokens": 128}},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_list_of_one_whole_answer_is_that_answer(encoding: str) -> None:
    """
    A list with one whole answer is read as that answer. OpenAI's JavaScript agents write it without a role.
    The SDK's span in another trace has the same id.
    """
    counted = {**LLM, "llm.token_count.prompt": 410, "llm.token_count.completion": 22}
    agents = only(traces(span(1, {**counted, "output.value": json.dumps([ANSWER])})), encoding=encoding)
    sdk = only(traces(span(2, {**counted, "output.value": json.dumps(ANSWER)})), encoding=encoding)
    assert agents.id == sdk.id
    assert agents.request_id == "chatcmpl-aa11bb22cc33dd44ee55"
    assert agents.cache_read_tokens == 128


@pytest.mark.parametrize(
    "several",
    [
        [ANSWER, ANSWER | {"id": "chatcmpl-bb11bb22cc33dd44ee55"}],
        [{"id": ANSWER["id"], "model": "gpt-4o-mini"}],
        [{}],
    ],
)
def test_other_lists_name_no_answer(several: list[Any]) -> None:
    """
    Other lists give no answer, because two answers are ambiguous, and an element without usage may be a message.
    """
    record = only(
        traces(span(1, {**LLM, "llm.token_count.prompt": 410, "output.value": json.dumps(several)}))
    )
    assert record.request_id is None
    assert record.cache_read_tokens is None


@pytest.mark.parametrize(
    ("total", "expected"),
    [(540, (500, 40, None, None, 12)), (552, (500, 52, None, None, 12)), (None, (500, 52, None, None, 12))],
)
def test_thoughts_are_inside_the_candidates_where_the_total_says_so(total: int | None, expected: Any) -> None:
    """
    If the total shows it, thinking tokens are inside the candidates, because Google's ADK writes other
    providers' usage in Gemini's form. For Gemini itself, thinking tokens are separate.
    """
    usage = {"prompt_token_count": 500, "candidates_token_count": 40, "thoughts_token_count": 12}
    call = {
        **LLM,
        "llm.token_count.prompt": 500,
        "llm.token_count.completion": 40,
        "gen_ai.usage.output_tokens": 52,
    }
    if total is not None:
        usage["total_token_count"] = total
        call["llm.token_count.total"] = total
    written = json.dumps({"usage_metadata": usage})
    assert expected == sums(only(traces(span(1, {**call, "output.value": written}))))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"gen_ai.usage.thinking_tokens": 9}, (700, 30, None, None, 9)),
        ({"gen_ai.usage.thoughts_tokens": 9}, (700, 30, None, None, 9)),
        ({"gen_ai.usage.output_tokens_details.thinking_tokens": 9}, (700, 30, None, None, 9)),
        ({"gen_ai.usage.cached_prompt_tokens": 512}, (700, 30, 512, None, None)),
        (
            {"gen_ai.usage.cached_prompt_tokens": 0, "gen_ai.usage.cache_read_input_tokens": 512},
            (700, 30, 512, None, None),
        ),
    ],
)
def test_parts_of_the_conventions_under_further_names(names: dict[str, int], expected: Any) -> None:
    """Token parts are read under further names. The name of the conventions takes precedence."""
    usage = {"gen_ai.usage.input_tokens": 700, "gen_ai.usage.output_tokens": 30}
    assert expected == sums(only(traces(span(1, {**CHAT, **usage, **names}))))


def test_beeai_states_cached_tokens_in_its_metadata() -> None:
    """
    BeeAI states cached tokens in its metadata. They are part of the prompt: of 850 input tokens, 600 were
    read from the cache.
    """
    counts = {"llm.token_count.prompt": 850, "llm.token_count.completion": 20}
    cache = {"metadata.usage.cached_prompt_tokens": 600, "metadata.usage.cached_creation_tokens": 100}
    assert (850, 20, 600, 100, None) == sums(only(traces(span(1, {**LLM, **counts, **cache}))))


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"gen_ai.response.id": "resp_5a5a5a5a5a5a5a5a5a5a", "gen_ai.usage.output_tokens": 40}, "ok"),
        ({"gen_ai.usage.output_tokens": 40}, "ok"),
        ({"gen_ai.response.id": "resp_5a5a5a5a5a5a5a5a5a5a"}, "ok"),
        ({}, "error"),
        ({"gen_ai.usage.output_tokens": 0}, "error"),
        ({"gen_ai.usage.output_tokens": 40, "error.type": "timeout"}, "error"),
    ],
)
def test_finish_reason_error_with_an_answer_is_no_failure(said: dict[str, Any], status: str) -> None:
    """
    The finish reason "error" next to an answer is no failure. LangChain writes it if the Responses API
    states no reason.
    """
    call = {**CHAT, "gen_ai.response.finish_reasons": ["error"], "gen_ai.usage.input_tokens": 300, **said}
    assert status == only(traces(span(1, call))).status


@pytest.mark.parametrize("name", ["model", "llm.model", "ai.model", "model_name", "model_id"])
@pytest.mark.parametrize("value", ["gpt-4.1-nano", '"gpt-4.1-nano"'])
def test_a_call_that_names_no_model_may_name_it_plainly(name: str, value: str) -> None:
    """
    If a call names no model in the usual attributes, a plain name is used. For example, MLflow's failed calls
    contain only the arguments of the call.
    """
    call = {"gen_ai.operation.name": "chat", name: value}
    record = only(traces(span(1, call, **FAILED)))
    assert record.request_model == "gpt-4.1-nano"
    assert record.provider == "openai"
    assert record.status == "error"
    assert "gpt-4o" == only(traces(span(1, {**CHAT, name: value}))).request_model


@pytest.mark.parametrize("value", ["the best model of all", '{"model": "gpt-4o"}', "x" * 129])
def test_a_plain_name_of_a_model_is_one_word(value: str) -> None:
    """A sentence or an object is not a model name."""
    assert (
        None
        is only(traces(span(1, {"gen_ai.operation.name": "chat", "model": value}, **FAILED))).request_model
    )


EVENT = {"openinference.span.kind": "LLM", "metadata.path": "backend.openai.chat.error"}
CALL = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4.1-nano"}
USAGE = {"llm.token_count.prompt": 800, "llm.token_count.completion": 50}


@pytest.mark.parametrize("inner", [EVENT, {**EVENT, "llm.model_name": "gpt-4.1-nano"}])
def test_an_event_below_a_failed_call_is_no_answer(inner: dict[str, Any]) -> None:
    """An event span below a failed call is no answer. BeeAI's event spans have a good status and no usage."""
    record = only(traces(span(1, CALL, **FAILED), span(2, inner, parent=1)))
    assert record.status == "error"
    assert record.request_model == "gpt-4.1-nano"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_spans_without_counts_are_no_calls(encoding: str) -> None:
    """
    Spans without counts, such as the tokens of a stream, are no calls, whether they arrive in a separate
    request or below their call.
    """
    tokens = [span(number, EVENT, parent=1) for number in (2, 3, 4)]
    assert [] == records(traces(*tokens), encoding=encoding)
    assert 800 == only(traces(span(1, {**CALL, **USAGE}), *tokens), encoding=encoding).input_tokens


def test_a_failed_attempt_below_a_good_call_stays() -> None:
    """
    A failed attempt below a successful call stays a record, because the outer call has only the usage of
    the second attempt.
    """
    found = records(traces(span(1, {**CALL, **USAGE}), span(2, CALL, parent=1, **FAILED)))
    assert ["error", "ok"] == sorted(record.status for record in found)
