"""MCP resources that clients attach without a tool: the context, and the costs of saved views."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gateway.configuration.sections import Config, McpSettings
from gateway.mcp.protocol import LEGACY
from gateway.mcp.resources import CONTEXT_URI, PAGE, VIEW_URI
from spool.registry.views import NewView
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR
from tests.integration.mcp.conftest import Assistant, OpenAssistant


async def make_views(assistant: Assistant, names: Sequence[str], **fields: Any) -> list[str]:
    table = assistant.serving.app.services.operators.installation.require_registry().views
    drafts = [
        NewView(**{"name": name, "filter": {}, "principal_dimension": "model", **fields}) for name in names
    ]
    return [
        (await table.create(each, known_dimensions=("model", "tag:x"), max_rows=1000, actor=ACTOR)).id
        for each in drafts
    ]


async def result(assistant: Assistant, method: str, **params: Any) -> Any:
    answer = await assistant.ask(method, params)
    assert 200 == answer.status, answer.body
    return json.loads(answer.body)["result"]


async def error(assistant: Assistant, method: str, **params: Any) -> Any:
    return json.loads((await assistant.ask(method, params)).body)["error"]


async def test_every_resource_that_is_listed_is_read(assistant: Assistant) -> None:
    """Each listed MCP resource reads as the text of a tool, and may be cached as long as a list."""
    (view,) = await make_views(assistant, ["Only o3"], filter={"model": ("o3",)}, range="last_30d")
    await assistant.calls("o3", "o3", "gpt-4o")
    listed = await result(assistant, "resources/list")
    assert listed["cacheScope"] == "private"
    assert listed["ttlMs"] >= 0
    assert [CONTEXT_URI, f"{VIEW_URI}{view}"] == [each["uri"] for each in listed["resources"]]
    assert ["context", "Only o3"] == [each["name"] for each in listed["resources"]]
    texts = {}
    for each in listed["resources"]:
        read = await result(assistant, "resources/read", uri=each["uri"])
        assert read["cacheScope"] == "private"
        assert read["ttlMs"] >= 0
        (content,) = read["contents"]
        assert each["uri"] == content["uri"]
        assert each["mimeType"] == content["mimeType"]
        texts[each["uri"]] = content["text"]
    assert "3 calls" in texts[CONTEXT_URI]
    assert "in 2 calls" in texts[f"{VIEW_URI}{view}"]
    (template,) = (await result(assistant, "resources/templates/list"))["resourceTemplates"]
    assert template["uriTemplate"].startswith(VIEW_URI)


async def test_many_views_are_listed_page_by_page(assistant: Assistant) -> None:
    """Each view is listed once. A cursor of another key or an invalid cursor is refused."""
    ids = await make_views(assistant, [f"view {n:03}" for n in range(PAGE + 1)])
    first = await result(assistant, "resources/list")
    second = await result(assistant, "resources/list", cursor=first["nextCursor"])
    assert PAGE == len(first["resources"]) and "nextCursor" not in second
    found = [each["uri"] for each in (*first["resources"], *second["resources"])]
    assert [CONTEXT_URI, *(f"{VIEW_URI}{id}" for id in ids)] == found
    for cursor in ("", "1", "1.00", first["nextCursor"] + "0"):
        assert -32602 == (await error(assistant, "resources/list", cursor=cursor))["code"]


async def test_missing_resource_error_follows_the_protocol_revision(assistant: Assistant) -> None:
    """
    If a resource does not exist, the error has the code of the protocol revision and names the requested address.
    """
    for uri in ("tollhouse://nothing", f"{VIEW_URI}none", "file:///etc/passwd", VIEW_URI):
        told = await error(assistant, "resources/read", uri=uri)
        assert told["code"] == -32602
        assert told["data"]["uri"] == uri
        legacy = (await assistant.ask_legacy("resources/read", {"uri": uri}, LEGACY[0]))["error"]
        assert legacy["code"] == -32002
        assert legacy["data"]["uri"] == uri
    assert -32602 == (await assistant.ask_legacy("resources/read", {}))["error"]["code"]
    assert {"contents"} == set((await assistant.ask_legacy("resources/read", {"uri": CONTEXT_URI}))["result"])


async def test_view_with_a_removed_tag_states_the_reason(assistant: Assistant) -> None:
    """If the tag of a view was removed from the configuration, reading the view says so."""
    (view,) = await make_views(assistant, ["Broken"], principal_dimension="tag:x")
    told = await error(assistant, "resources/read", uri=f"{VIEW_URI}{view}")
    assert told["code"] == -32602
    assert "tag:x" in told["message"]


async def test_reading_counts_as_a_call(open_assistant: OpenAssistant) -> None:
    """Reading a resource counts towards the limit of calls, so the answer is 429. Listing does not count."""
    assistant = await open_assistant(Config(mcp=McpSettings(daily_calls=1), spool=SpoolSettings(hold=0)))
    assert 200 == (await assistant.ask("resources/read", {"uri": CONTEXT_URI})).status
    assert 429 == (await assistant.ask("resources/read", {"uri": CONTEXT_URI})).status
    assert 200 == (await assistant.ask("resources/list")).status
