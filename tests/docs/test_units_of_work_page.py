"""The tables of docs/units-of-work.md say what recorded telemetry of the programs states, and what formats read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.clients import capture
from tests.clients.test_agent_runs import ARRIVES
from tests.documents import ROOT
from tests.gateway.normalise.formats.test_units_of_work import PLACES
from tests.integration.order.running import Request, told_in_memory

PAGE = (ROOT / "docs/units-of-work.md").read_text()
# For each program: its recorded calls, and those with OTEL_RESOURCE_ATTRIBUTES. The former were made in a git
# repository if agents start agents.
PROGRAMS = {
    "Claude Code": ("claude_code_agents/delegation", "claude_code/units"),
    "Claude Code behind LiteLLM": ("claude_code_litellm/delegation", ""),
    "Codex": ("codex/prompt", "codex/units"),
    "Copilot CLI": ("copilot_cli_agents/delegation", "copilot_cli/units"),
    "Gemini CLI": ("gemini_cli/prompt", "gemini_cli/units"),
    "opencode": ("opencode_agents/delegation", "opencode/units"),
    "OpenAI Agents SDK with OpenInference": ("openai_agents/delegation", ""),
    "OpenAI Agents SDK with OpenTelemetry": ("genai_openai_agents/delegation", ""),
    "Qwen Code": ("qwen_code_agents/delegation", "qwen_code/units"),
}


def table(heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, without links."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|") for line in section.splitlines() if line.startswith("|")][2:]
    return [
        [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell).strip() for cell in line.split("|")] for line in lines
    ]


def calls_of(name: str) -> list[dict[str, Any]]:
    sent = capture.read(capture.PLACE / f"{name}.jsonl.gz").requests
    formats = [each.path.rpartition("/")[2] for each in sent]
    requests = [
        Request(format if format == "litellm" else f"otlp/{format}", each.body)
        for format, each in zip(formats, sent, strict=True)
    ]
    rows, _ = told_in_memory(requests)
    calls = [row for row in rows if row["kind"] == "inference" and not row["shadow"]]
    assert calls
    return calls


def in_words(found: Sequence[object], words: tuple[str, str, str]) -> str:
    """Return the word for none, some or all."""
    return words[2 if all(found) else 1 if any(found) else 0]


@pytest.mark.parametrize(("program", "session", "run", "repository", "of_environment"), table("Programs"))
def test_a_program_states_what_the_page_says(
    program: str, session: str, run: str, repository: str, of_environment: str
) -> None:
    plain, with_variable = PROGRAMS[program]
    calls = calls_of(plain)
    assert session == in_words([call["session"] for call in calls], ("no", "some", "yes"))
    assert run == in_words([call.get("run") for call in calls], ("no", "sub-agents", "all agents"))
    if plain != with_variable:
        assert repository == in_words(
            [call["tags"].get("repository") for call in calls], ("no", "some", "yes")
        )
    arrived = (
        [ARRIVES.items() <= call["tags"].items() for call in calls_of(with_variable)] if with_variable else []
    )
    assert of_environment == (in_words(arrived, ("no", "some", "yes")) if arrived else "-")


def test_the_tables_are_complete() -> None:
    """Each program and each place of a gateway format has a row."""
    assert PROGRAMS.keys() == {row[0] for row in table("Programs")}
    places = sorted(place for _, place in table("Gateways"))
    named = [place for format_places in PLACES.values() for place in format_places]
    assert sorted(named) == sorted(
        re.sub(" such as `[^`]*`", "", part) for each in places for part in each.split(", or ")
    )
    assert len(table("Gateways")) == len(PLACES)
