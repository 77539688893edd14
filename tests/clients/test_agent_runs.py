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
from typing import Any, NamedTuple

import pytest

from tests.clients.assistants import ASSISTANTS, Place, opencode
from tests.clients.conftest import Stand
from tests.clients.journal import Call, assert_same, of_record, without_names
from tests.clients.test_assistants import OF_OPENCODE, claude_code_cost, told

pytestmark = pytest.mark.clients

# A value of OTEL_RESOURCE_ATTRIBUTES, and the tags that calls get from it.
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
STARTS = {**ASSISTANTS, "opencode": opencode}
PROGRAMS = ("claude_code", "codex", "gemini_cli", "qwen_code", "copilot_cli", "opencode")
WITHOUT_RESOURCE_ATTRIBUTES = ("qwen_code",)
# An agent calls the model twice: it starts another agent, and then it answers. The innermost agent only answers.
CALLS = [2, 2, 1]


class Delegating(NamedTuple):
    """
    How an assistant starts agents: its tool for this, whether its main agent has a run, and the number of calls at
    each level.
    """

    tool: str
    has_main_run: bool = False
    calls: Sequence[int] = CALLS


# A sub-agent of opencode and of Qwen Code starts no other one. One more call of opencode names the session.
DELEGATING = {
    "claude_code": Delegating("Agent"),
    "claude_code_traced": Delegating("Agent"),
    "copilot_cli": Delegating("task", has_main_run=True),
    "opencode": Delegating("task", has_main_run=True, calls=[3, 1]),
    "qwen_code": Delegating("agent", calls=[2, 1]),
}


@pytest.fixture
def delegating(stand: Stand) -> Iterator[Stand]:
    yield stand
    stand.provider.starts_agents = ""


@pytest.mark.parametrize("assistant", DELEGATING)
def test_each_call_has_the_run_of_its_agent(delegating: Stand, tmp_path: Path, assistant: str) -> None:
    """
    If an agent starts an agent that starts a third one, each call is counted once, in the run of the agent that
    made it.
    """
    stand, repository, how = delegating, tmp_path / "shop", DELEGATING[assistant]
    stand.provider.starts_agents = how.tool
    make_repository(repository)
    place = Place(home=tmp_path, provider=stand.provider.url, tollhouse=stand.url, key=stand.key)
    started = STARTS[assistant](place)
    stand.program(started.command, repository, {**started.environment, "HOME": str(tmp_path)})
    calls, records = stand.calls(), stand.records()
    expected = reported(assistant, calls, records)
    assert_same(expected, without_names(records))
    assert how.calls == calls_by_level(records, has_main_run=how.has_main_run)
    sessions = {record["session"] for record in records}
    # opencode states a session for each of its agents
    assert len(sessions) == (2 if assistant == "opencode" else 1)
    spent = sum(map(claude_code_cost, calls), Decimal(0)) if assistant.startswith("claude_code") else None
    stand.keep(f"{assistant}_agents", "delegation", expected, tmp_path, cost=spent)


def reported(assistant: str, calls: list[Call], records: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Return the calls as the assistant reports them. opencode ends without a final export."""
    if assistant != "opencode":
        return told(assistant, "prompt", calls)
    found = Counter(map(of_record, without_names(records)))
    return [one for call in calls if found[one := replace(call, **OF_OPENCODE)] > 0]


@pytest.mark.parametrize("assistant", PROGRAMS)
def test_units_of_the_environment_arrive(stand: Stand, tmp_path: Path, assistant: str) -> None:
    """Programs without git attributes of their own pass OTEL_RESOURCE_ATTRIBUTES on, except those listed here."""
    repository = tmp_path / "shop"
    make_repository(repository)
    place = Place(home=tmp_path, provider=stand.provider.url, tollhouse=stand.url, key=stand.key)
    started = STARTS[assistant](place)
    environment = {**started.environment, "HOME": str(tmp_path), "OTEL_RESOURCE_ATTRIBUTES": STATED}
    stand.program(started.command, repository, environment)
    records = stand.records()
    calls = reported(assistant, stand.calls(), records)
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
