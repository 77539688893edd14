"""Events, tags and counters that newer releases of known senders added."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.outcome import MERGED, NOT_AI, UNRECOGNISED_AI, ReadOptions
from spool.record import Inference, UsageMetric
from tests.gateway.normalise.otlp.items import log, point, read_logs, read_points

CLAUDE: dict[str, Any] = {
    "resource": {"service.name": "claude-code"},
    "scope": "com.anthropic.claude_code.events",
}
CODEX: dict[str, Any] = {"resource": {"service.name": "codex_cli_rs"}, "scope": "codex_otel"}


def only(attributes: dict[str, Any], **how: Any) -> Inference:
    (record,) = read_logs(log(attributes, **how)).records
    assert isinstance(record, Inference)
    return record


def test_a_refusal_has_the_id_of_its_request() -> None:
    """
    A refused request is billed, and its event has the id of the request. A refusal without an id belongs to
    no known call.
    """
    refusal = {
        "event.name": "api_refusal",
        "request_id": "req_011CAbCdEfGhIjKlMnOp",
        "model": "claude-sonnet-5",
    }
    request = {**refusal, "event.name": "api_request", "input_tokens": 5, "output_tokens": 1, "cost_usd": 0.1}
    outcome = read_logs(log(request, **CLAUDE), log(refusal, **CLAUDE))
    call, end = outcome.identities
    assert call.joins == end.also
    assert call.id in end.lookups
    record = only(refusal, **CLAUDE)
    assert record.status == "error"
    assert record.error_type == "refusal"
    assert record.input_tokens is None
    del refusal["request_id"]
    assert {NOT_AI: 1} == dict(read_logs(log(refusal, **CLAUDE)).ignored)


def test_skills_and_plugins_are_tags() -> None:
    """Skills and plugins become tags only if their names are stated."""
    named = {"agent.name": "Explore", "skill.name": "pdf", "plugin.name": "p", "mcp_server.name": "jira"}
    record = only({"event.name": "api_request", "input_tokens": 5, **named}, **CLAUDE)
    assert {"agent": "Explore", "skill": "pdf", "plugin": "p", "mcp_server": "jira"} == {
        name: value for name, value in record.tags.items() if name != "service"
    }


@pytest.mark.parametrize(("status", "calls"), [(429, 1), ("503", 1), (101, 0), (None, 0)])
def test_a_request_over_a_web_socket_that_failed_is_a_call(status: Any, calls: int) -> None:
    """
    A failed request over a web socket is a call. A successful request is not, because the event of its
    answer reports it.
    """
    said = {
        "event.name": "codex.websocket_request",
        "http.response.status_code": status,
        "model": "gpt-6-sol",
    }
    outcome = read_logs(log({name: value for name, value in said.items() if value is not None}, **CODEX))
    assert len(outcome.records) == calls
    assert outcome.ignored[NOT_AI] == 1 - calls


@pytest.mark.parametrize(
    ("event", "service", "said", "agent"),
    [
        ("gemini_cli.api_response", "gemini-cli", {"role": "main"}, None),
        ("gemini_cli.api_response", "gemini-cli", {"role": "codebase_investigator"}, "codebase_investigator"),
        ("qwen-code.api_response", "qwen-code", {"subagent_name": ""}, None),
        ("qwen-code.api_response", "qwen-code", {"subagent_name": "tester"}, "tester"),
    ],
)
def test_a_sub_agent_is_the_agent(event: str, service: str, said: dict[str, str], agent: str | None) -> None:
    """The name of a sub-agent becomes the agent of the call. The main agent has no name."""
    record = only(
        {"event.name": event, "model": "m", "input_token_count": 1, **said},
        resource={"service.name": service},
    )
    assert agent == record.tags.get("agent")


@pytest.mark.parametrize("counted", [False, True])
def test_coders_renamed_and_repeated_counters_count_once(counted: bool) -> None:
    """
    Coder's gateway writes each counter under a new and a former name, and counts parts of the prompt again.
    Only one of them is read. It repeats calls that other sources report, unless a setting says that it counts.
    """
    said = {"client": "claude", "initiator_id": "u-1", "model": "claude-sonnet-5", "provider": "anthropic"}
    points = [
        point(f"coder_{name}_tokens_total", 5, {**said, "type": type})
        for name in ("ai_gateway", "aibridged")
        for type in ("input", "cache_read_input", "prompt_cached")
    ]
    outcome = read_points(*points, options=ReadOptions(counted=frozenset(["coder"] if counted else [])))
    assert {MERGED: 4} == dict(outcome.ignored)
    found = [one for one in outcome.records if isinstance(one, UsageMetric)]
    assert [("coder", "input_uncached", "u-1", not counted), ("coder", "cache_read", "u-1", not counted)] == [
        (one.source, one.token_type, one.user, one.shadow) for one in found
    ]
    assert {"client": "claude"} == found[0].tags
    assert not outcome.unrecognised


def test_the_former_name_alone_is_read() -> None:
    """If only the former name exists, as in releases before 2.35, it is read."""
    outcome = read_points(point("coder_aibridged_tokens_total", 5, {"type": "output", "model": "m"}))
    assert 1 == len(outcome.records)


def test_what_qwen_code_sums_up_repeats_its_calls() -> None:
    """
    Sums that Qwen Code reports for a compression, an arena agent or a workflow repeat its calls, because
    every call has an event.
    """
    summed: dict[str, dict[str, Any]] = {
        "chat_compression": {"tokens_before": 9000, "compression_input_token_count": 9000},
        "arena_agent_completed": {
            "agent_model_id": "m",
            "total_tokens": 110,
            "input_tokens": 100,
            "output_tokens": 10,
        },
        "workflow_run": {"tokens_spent": 4000, "agents_completed": 3},
    }
    qwen = {"service.name": "qwen-code"}
    outcome = read_logs(
        *(log({"event.name": f"qwen-code.{name}", **said}, resource=qwen) for name, said in summed.items())
    )
    assert {NOT_AI: 3} == dict(outcome.ignored)
    outcome = read_points(
        point("qwen-code.arena.agent.tokens", 100, {"model_id": "m", "type": "input"}, resource=qwen)
    )
    assert {MERGED: 1} == dict(outcome.ignored)


def test_credits_that_gemini_cli_consumed_are_shown() -> None:
    """
    Credits that Gemini CLI consumed cost money, but no rule reads them, so they are shown as unrecognized.
    The remaining balance is not usage.
    """
    gemini = {"service.name": "gemini-cli"}
    said = {"model": "gemini-3.1-pro", "credits_remaining": 90}
    outcome = read_logs(
        log({"event.name": "gemini_cli.credits_used", "credits_consumed": 10, **said}, resource=gemini),
        log({"event.name": "gemini_cli.overage_menu_shown", "credit_balance": 90, **said}, resource=gemini),
    )
    assert {UNRECOGNISED_AI: 1, NOT_AI: 1} == dict(outcome.ignored)
    assert "credits_consumed" in outcome.unrecognised[0]
