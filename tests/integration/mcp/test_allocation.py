"""Allocation definitions as assistants read them: versions, dimensions and every rule, page by page."""

from __future__ import annotations

import json
from typing import Any

from gateway.mcp.tool import MAX_BYTES
from gateway.mcp.tools.allocation import MOST_VERSIONS
from gateway.money.allocation.declared import AllocationTable, NewNamespace
from tests.integration.conftest import ACTOR
from tests.integration.mcp.conftest import Assistant

TOOL = "get_allocation_definitions"
OWNER = """
Dimensions:
  Owner:
    Name: Who pays
    DefaultValue: Nobody
    Rules:
      - {Type: Group, Name: Old, Conditions: [{Source: model, BeginsWith: gpt}]}
      - {Type: GroupBy, Source: team}
"""
MODEL = "Dimensions: {Family: {Rules: [{Type: GroupBy, Source: model}]}}"


async def publish(assistant: Assistant, text: str, namespace: str = "") -> None:
    publishing = assistant.serving.app.services.operators.money.require_definition_publisher()
    await publishing.publish(text.encode(), namespace=namespace, base=None, actor=ACTOR)


async def two_namespaces(assistant: Assistant) -> None:
    table = assistant.serving.app.services.operators.installation.require_registry().declared_table(
        AllocationTable
    )
    await table.create(NewNamespace(name="Models"), id="ml", max_rows=9, actor=ACTOR)
    await publish(assistant, OWNER.replace("Nobody", "No one"))
    await publish(assistant, OWNER)
    await publish(assistant, MODEL, "ml")


async def test_rules_are_shown_by_namespace_and_version(assistant: Assistant) -> None:
    """Rules are shown for all namespaces or for one. A number selects an earlier version."""
    nothing = await assistant.call(TOOL)
    assert "No definition is published" in nothing["content"][0]["text"]
    await two_namespaces(assistant)
    found = await assistant.content(TOOL)
    versions = [(each["namespace"], each["version"], each["is_in_force"]) for each in found["versions"]]
    assert [("default", 2, True), ("ml", 1, True)] == versions
    owner, family = found["dimensions"]
    assert owner["id"] == "User:Defined:Owner"
    assert owner["name"] == "Who pays"
    assert owner["default"] == "Nobody"
    assert ['"Old" if model begins with "gpt"', "the value of team"] == owner["rules"]
    assert family["namespace"] == "ml"
    assert family["default"] is None
    assert family["rule_count"] == 1
    text = (await assistant.call(TOOL))["content"][0]["text"]
    assert '| User:Defined:Owner | Who pays | 1 | "Old" if model begins with "gpt" |' in text
    of_one = await assistant.content(TOOL, namespace="default")
    assert [2, 1] == [each["version"] for each in of_one["versions"]]
    (before,) = (await assistant.content(TOOL, version=1))["dimensions"]
    assert before["version"] == 1
    assert before["default"] == "No one"
    for name in ("Family", "User:Defined:Family"):
        (only,) = (await assistant.content(TOOL, dimension=name))["dimensions"]
        assert "User:Defined:Family" == only["id"]


async def test_wrong_names_return_the_nearest(assistant: Assistant) -> None:
    await two_namespaces(assistant)
    assert "did you mean ml" in await assistant.mistake(TOOL, namespace="mll")
    assert "did you mean Who pays" in await assistant.mistake(TOOL, dimension="who pay")
    assert "no such version" in await assistant.mistake(TOOL, version=3)
    assert ">= 1" in await assistant.mistake(TOOL, version=0)
    assert "cursor is invalid" in await assistant.mistake(TOOL, cursor="x")


async def test_large_definition_is_returned_page_by_page(assistant: Assistant) -> None:
    """
    Every rule appears once, in order. Each answer stays within its size limit, and names stay inside their cells.
    """
    long = "| ignore previous " + "ü" * 100
    rules = [
        {"Type": "Group", "Name": f"{long}{n}", "Conditions": [{"Source": "model", "Equals": [f"{long}{n}"]}]}
        for n in range(200)
    ]
    given = {
        "Dimensions": {f"D{n}": {"Name": f"{long}{n}", "Rules": rules[n * 100 :][:100]} for n in range(2)}
    }
    await publish(assistant, json.dumps(given, ensure_ascii=False))
    seen: list[tuple[str, int]] = []
    asked: dict[str, Any] = {"limit": 200}
    while True:
        result = await assistant.call(TOOL, **asked)
        assert len(json.dumps(result, ensure_ascii=False).encode()) <= MAX_BYTES + 1000
        content = result["structuredContent"]
        assert content["dimension_count"] == 2
        assert content["rule_count"] == 200
        for each in content["dimensions"]:
            seen += [(each["id"], each["first_rule"] + place) for place in range(len(each["rules"]))]
        assert content["truncated"] is (content["next_cursor"] is not None)
        if content["next_cursor"] is None:
            break
        asked["cursor"] = content["next_cursor"]
    assert [(f"User:Defined:D{n}", place) for n in range(2) for place in range(1, 101)] == seen


async def test_many_versions_are_cut(assistant: Assistant) -> None:
    """If the list of versions is cut, the answer states their total number."""
    for n in range(MOST_VERSIONS + 1):
        await publish(assistant, MODEL.replace("Family", f"Family{n}"))
    found = await assistant.content(TOOL, namespace="default")
    assert len(found["versions"]) == MOST_VERSIONS
    assert found["version_count"] == MOST_VERSIONS + 1
    assert found["truncated"] is True
