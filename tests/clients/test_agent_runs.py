"""
The units of work that real assistants state: the session, the run of an agent and the run that started it, and the
units in OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.clients.assistants import ASSISTANTS, Place, opencode
from tests.clients.conftest import Stand
from tests.clients.journal import assert_same, of_record, without_names
from tests.clients.test_assistants import OF_OPENCODE, claude_code_cost, told

pytestmark = pytest.mark.clients

# OTEL_RESOURCE_ATTRIBUTES, and the tags that calls have from it.
STATED = (
    "vcs.repository.url.full=https://github.com/acme/shop.git,vcs.ref.head.name=fix-totals,"
    f"vcs.ref.head.revision={'9fceb02d' * 5},vcs.change.id=42,ticket=SHOP-7"
)
ARRIVES = {
    "repository": "acme/shop",
    "branch": "fix-totals",
    "commit": "9fceb02d" * 5,
    "pull_request": "acme/shop#42",
    "ticket": "SHOP-7",
}
PROGRAMS = ("claude_code", "codex", "gemini_cli", "qwen_code", "copilot_cli", "opencode")
WITHOUT_RESOURCE_ATTRIBUTES = ("qwen_code",)
# The tool with which an assistant starts an agent, and whether its main agent has a run.
TOOLS = {
    "claude_code": ("Agent", False),
    "claude_code_traced": ("Agent", False),
    "copilot_cli": ("task", True),
}
# An agent calls the model twice: it starts another agent, and then it answers. The innermost agent only answers.
CALLS = [2, 2, 1]


@pytest.fixture
def delegating(stand: Stand) -> Iterator[Stand]:
    yield stand
    stand.provider.starts_agents = ""


@pytest.mark.parametrize("assistant", TOOLS)
def test_each_call_has_the_run_of_its_agent(delegating: Stand, tmp_path: Path, assistant: str) -> None:
    """A run starts a run that starts a run. Each call is counted once, in the run that made it."""
    stand, repository = delegating, tmp_path / "shop"
    stand.provider.starts_agents, has_main_run = TOOLS[assistant]
    make_repository(repository)
    place = Place(home=tmp_path, provider=stand.provider.url, tollhouse=stand.url, key=stand.key)
    started = ASSISTANTS[assistant](place)
    stand.program(started.command, repository, {**started.environment, "HOME": str(tmp_path)})
    calls, records = stand.calls(), stand.records()
    expected = told(assistant, "prompt", calls)
    assert_same(expected, without_names(records))
    assert CALLS == calls_by_level(records, has_main_run=has_main_run)
    assert len({record["session"] for record in records}) == 1
    spent = sum(map(claude_code_cost, calls), Decimal(0)) if assistant.startswith("claude_code") else None
    stand.keep(f"{assistant}_agents", "delegation", expected, tmp_path, cost=spent)


@pytest.mark.parametrize("assistant", PROGRAMS)
def test_units_of_the_environment_arrive(stand: Stand, tmp_path: Path, assistant: str) -> None:
    """Programs without git attributes of their own pass OTEL_RESOURCE_ATTRIBUTES on, except those listed here."""
    repository = tmp_path / "shop"
    make_repository(repository)
    place = Place(home=tmp_path, provider=stand.provider.url, tollhouse=stand.url, key=stand.key)
    started = {**ASSISTANTS, "opencode": opencode}[assistant](place)
    environment = {**started.environment, "HOME": str(tmp_path), "OTEL_RESOURCE_ATTRIBUTES": STATED}
    stand.program(started.command, repository, environment)
    calls, records = told(assistant, "prompt", stand.calls()), stand.records()
    if assistant == "opencode":  # it ends without a final export
        reported = Counter(map(of_record, without_names(records)))
        calls = [one for call in calls if reported[one := replace(call, **OF_OPENCODE)] > 0]
    assert_same(calls, without_names(records))
    assert len({record["session"] for record in records} - {None}) == 1
    expected = {} if assistant in WITHOUT_RESOURCE_ATTRIBUTES else ARRIVES
    for record in records:
        assert expected == {name: record["tags"].get(name) for name in expected}
    spent = (
        sum(map(claude_code_cost, stand.calls()), Decimal(0)) if assistant.startswith("claude_code") else None
    )
    stand.keep(assistant, "units", calls, tmp_path, cost=spent)


def make_repository(directory: Path) -> None:
    directory.mkdir()
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for command in (
        ("init", "--quiet", "--initial-branch", "toll-fix"),
        ("remote", "add", "origin", "https://github.com/acme/shop.git"),
        (*author, "commit", "--quiet", "--allow-empty", "--message", "first"),
    ):
        subprocess.run(["git", *command], cwd=directory, check=True)


def calls_by_level(records: Sequence[Mapping[str, Any]], *, has_main_run: bool) -> list[int]:
    """Return the number of calls of each run, from the outermost run on. Calls of a main agent may have no run."""
    parents = {record.get("run"): record.get("parent_run") for record in records}
    assert len(parents) == len({(record.get("run"), record.get("parent_run")) for record in records})

    def level(run: str | None) -> int:
        return 0 if run is None or (has_main_run and parents[run] is None) else 1 + level(parents[run])

    calls = Counter(level(record.get("run")) for record in records)
    return [calls[number] for number in sorted(calls)]
