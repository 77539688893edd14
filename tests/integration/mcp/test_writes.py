"""
Writing by assistants: nothing by default, and two kinds of writes if enabled, each audited under the key's name.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.configuration.sections import Config, McpSettings
from gateway.mcp.tools.list import TOOLS
from spool.registry.insights import IGNORED, MAX_TITLE
from spool.registry.org_context import MAX_TEXT
from spool.registry.registry import Registry
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR
from tests.integration.mcp.conftest import Assistant, OpenAssistant
from tests.spool.kept import audit_rows

WRITING = Config(mcp=McpSettings(writes=True), spool=SpoolSettings(hold=0))
WRITES = {name for name, tool in TOOLS.items() if tool.writes}


async def tools(assistant: Assistant) -> dict[str, Any]:
    return {
        each["name"]: each for each in json.loads((await assistant.ask("tools/list")).body)["result"]["tools"]
    }


def registry_of(assistant: Assistant) -> Registry:
    return assistant.serving.app.services.operators.installation.require_registry()


async def actions(assistant: Assistant) -> list[tuple[str, str]]:
    """Return the audited actions of the key, oldest first."""
    rows = [row for row in await audit_rows(registry_of(assistant)) if row.actor == "assistant"]
    return [(row.action, row.target) for row in rows]


async def test_nothing_is_written_by_default(assistant: Assistant) -> None:
    """
    By default, tools that write are neither listed nor accepted, and the error names the setting that enables them.
    """
    assert WRITES and WRITES.isdisjoint(await tools(assistant))
    for name in WRITES:
        answer = await assistant.ask("tools/call", {"name": name, "arguments": {"title": "x", "text": "x"}})
        error = json.loads(answer.body)["error"]
        assert error["code"] == -32602
        assert "mcp.writes" in error["message"]
    assert [] == await actions(assistant)


async def test_hints_distinguish_reads_from_writes(open_assistant: OpenAssistant) -> None:
    """A tool that replaces something is marked as destructive, and both writing tools as repeatable."""
    listed = await tools(await open_assistant(WRITING))
    assert set(TOOLS) == set(listed)
    assert WRITES == {name for name, each in listed.items() if not each["annotations"]["readOnlyHint"]}
    hints = {name: listed[name]["annotations"] for name in WRITES}
    assert {"log_insight": False, "set_org_context": True} == {
        name: each["destructiveHint"] for name, each in hints.items()
    }
    assert all(each["idempotentHint"] for each in hints.values())


async def test_notes_are_given_back_with_the_context(open_assistant: OpenAssistant) -> None:
    """
    Notes that an assistant stores are returned with the context under the key's name, always on one line. Empty
    notes are deleted.
    """
    assistant = await open_assistant(WRITING)
    assert (await assistant.content("get_org_context"))["org_context"] is None
    text = 'Search owns the index.\n\nTop model: free\u202e "quoted"'
    for _ in range(2):
        await assistant.content("set_org_context", text=text)
    result = await assistant.call("get_org_context")
    noted = result["structuredContent"]["org_context"]
    assert noted["text"] == 'Search owns the index.\n\nTop model: free "quoted"'
    assert noted["set_by"] == "assistant"
    (line,) = [each for each in result["content"][0]["text"].splitlines() if "Search owns" in each]
    assert "Top model: free" in line and line.startswith("Notes on the organization (data")
    assert [("org_context.set", "org_context")] == await actions(assistant)
    await assistant.content("set_org_context", text="")
    assert (await assistant.content("get_org_context"))["org_context"] is None


async def test_an_insight_is_logged_once(open_assistant: OpenAssistant) -> None:
    """
    An insight that an assistant logs appears among those that people see. The same text again returns the state of
    the existing insight.
    """
    assistant = await open_assistant(WRITING)
    asked = {"title": "Spike\u202e of team search", "text": "o3 doubled\nsince Monday", "category": "spike"}
    first = await assistant.content("log_insight", **asked)
    assert first["title"] == "Spike of team search"
    assert first["status"] == "new"
    (found,) = (await assistant.content("get_insights", category="spike"))["insights"]
    assert first["id"] == found["id"]
    table = registry_of(assistant).insights
    assert "o3 doubled\nsince Monday" == (await table.get(first["id"])).description
    await table.change(first["id"], status=IGNORED, actor=ACTOR)
    assert IGNORED == (await assistant.content("log_insight", **asked))["status"]
    assert [("insight.create", first["id"])] == await actions(assistant)
    other = await assistant.content("log_insight", **{**asked, "text": "o3 tripled"})
    assert first["id"] != other["id"]


async def test_what_is_written_is_bounded(open_assistant: OpenAssistant) -> None:
    """
    Notes and insights of assistants have a maximum length. Longer text is refused, and the error names the limit. A
    title without visible characters is refused.
    """
    assistant = await open_assistant(WRITING)
    await assistant.content("set_org_context", text="ü" * MAX_TEXT)
    assert str(MAX_TEXT) in await assistant.mistake("set_org_context", text="x" * (MAX_TEXT + 1))
    await assistant.content("log_insight", title="t" * MAX_TITLE)
    assert str(MAX_TITLE) in await assistant.mistake("log_insight", title="t" * (MAX_TITLE + 1))
    assert "title" in await assistant.mistake("log_insight", title=" \u202e ")
    assert "ü" * MAX_TEXT == (await assistant.content("get_org_context"))["org_context"]["text"]


async def test_the_organization_says_which_tools_there_are(open_assistant: OpenAssistant) -> None:
    """A disabled tool is unavailable to everybody. Decisions by people override the file."""
    settings = McpSettings(tools={"get_cost_data": False, "log_insight": True, "get_budgets": False})
    assistant = await open_assistant(Config(mcp=settings, spool=SpoolSettings(hold=0)))
    table = registry_of(assistant).assistant_tools
    assert {"get_cost_data", "get_budgets", "set_org_context"} == set(TOOLS) - set(await tools(assistant))
    asked = await assistant.ask("tools/call", {"name": "get_cost_data", "arguments": {}})
    error = json.loads(asked.body)["error"]
    assert error["code"] == -32602
    assert "not enabled in this organization" in error["message"]
    await table.set_enabled("get_org_context", enabled=False, actor=ACTOR)
    await table.set_enabled("set_org_context", enabled=True, actor=ACTOR)
    legacy = (await assistant.ask_legacy("tools/list"))["result"]["tools"]
    names = [each["name"] for each in legacy]
    assert [
        name for name in TOOLS if name not in ("get_cost_data", "get_budgets", "get_org_context")
    ] == names
    assert [] == json.loads((await assistant.ask("resources/list")).body)["result"]["resources"]
    read = await assistant.ask("resources/read", {"uri": "tollhouse://context"})
    assert "error" in json.loads(read.body)
    for name in ("get_cost_data", "get_budgets", "get_org_context"):
        await table.set_enabled(name, enabled=True, actor=ACTOR)
    assert set(TOOLS) == set(await tools(assistant))
    rows = [row for row in await audit_rows(registry_of(assistant)) if row.action == "assistant_tool.change"]
    assert rows[-1].target == "get_org_context"
    assert rows[-1].before == {"enabled": False}
    assert rows[-1].after == {"enabled": True}
