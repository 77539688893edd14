"""
Coding assistants at work: a prompt, the tool that the model calls, its answer; or a provider that fails.

Each reports its calls as log records or spans, and most report the same tokens again as counters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.clients.assistants import ASSISTANTS, Place, opencode
from tests.clients.conftest import Stand
from tests.clients.journal import Call, assert_same, of_record, without, without_names

pytestmark = pytest.mark.clients

# For each run, the path before the provider's version. With these paths, the provider succeeds, always fails,
# or fails every other time.
RUNS = {"prompt": "", "failure": "/fail-500", "retry": "/flaky-500"}


OF_OPENCODE: dict[str, Any] = {
    "provider": "fake.chat",
    "request_id": None,
    "response_model": None,
    "cache_write_tokens": None,
}


def told(assistant: str, run: str, calls: list[Call]) -> list[Call]:
    kept = [replace(call, request_id=None, response_model=None) for call in calls]
    if (
        assistant == "claude_code"
    ):  # Claude Code's log records have the model that answered, and its spans have the requested one
        answered = [call.response_model or call.request_model for call in calls]
        kept = [replace(call, request_model=model) for call, model in zip(kept, answered, strict=True)]
    if assistant.startswith("claude_code") and run != "prompt":
        kept = _with_one_failure(kept, run)
    if assistant == "codex" and run == "failure":
        return []  # a failed run of Codex ends without a report
    if assistant == "qwen_code":
        # Qwen Code reports tokens by Gemini's names, which have no cache writes
        kept = [without("cache_write_tokens")(call) for call in kept]
    if assistant == "copilot_cli":
        # Copilot CLI reports this provider, whatever provider is configured.
        kept = [replace(call, provider="github") for call in kept]
    return kept


def _with_one_failure(calls: list[Call], run: str) -> list[Call]:
    """
    Return the calls with one failure instead of several. Failed attempts that no success follows are reported once.
    """
    return calls[-1:] if run == "failure" else [call for call in calls if call.status == "ok"]


def claude_code_cost(call: Call) -> Decimal:
    """Compute the cost at Claude Code's prices for Sonnet, in dollars per million tokens."""
    read, written = call.cache_read_tokens or 0, call.cache_write_tokens or 0
    fresh = (call.input_tokens or 0) - read - written
    millionths = (
        fresh * 3 + read * Decimal("0.3") + written * Decimal("3.75") + (call.output_tokens or 0) * 15
    )
    return millionths / 1_000_000


@pytest.mark.parametrize("assistant", ASSISTANTS)
@pytest.mark.parametrize("run", RUNS)
def test_the_records_are_the_journal(stand: Stand, tmp_path: Path, assistant: str, run: str) -> None:
    """Each call of a coding assistant has one record with its tokens by kind."""
    place = Place(home=tmp_path, provider=stand.provider.url + RUNS[run], tollhouse=stand.url, key=stand.key)
    started = ASSISTANTS[assistant](place)
    stand.program(started.command, tmp_path, started.environment, fails=run == "failure")
    calls = stand.calls()
    assert calls
    expected = told(assistant, run, calls)
    assert_same(expected, without_names(stand.records()))
    spent = sum(map(claude_code_cost, calls), Decimal(0)) if assistant.startswith("claude_code") else None
    stand.keep(assistant, run, expected, tmp_path, cost=spent)


def test_opencode_records_are_a_subset_of_its_calls(stand: Stand, tmp_path: Path) -> None:
    """
    OpenCode ends without a final export, so the records are a subset of the calls. They have all tokens
    except cache writes.
    """
    started = opencode(Place(home=tmp_path, provider=stand.provider.url, tollhouse=stand.url, key=stand.key))
    stand.program(started.command, tmp_path, started.environment)
    calls = Counter(replace(call, **OF_OPENCODE) for call in stand.calls())
    records = stand.records()
    found = Counter(of_record(record) for record in without_names(records))
    assert found and found <= calls
    assert {"vercel_ai"} == {record["source"] for record in records}
