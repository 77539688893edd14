"""Who may call the tools, from which origin, and how often."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.configuration.sections import Config, McpOAuthSettings, McpSettings
from gateway.mcp.tool import McpTool
from spool.registry.scopes import AI_HUB
from spool.settings import SpoolSettings
from tests.integration.mcp.conftest import Assistant, OpenAssistant

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_available_dimensions"}}


async def test_key_may_be_in_header_x_api_key(assistant: Assistant) -> None:
    """An assistant's key may be in the header X-Api-Key, which takes precedence over Authorization."""
    for headers in (
        {"X-Api-Key": assistant.key},
        {"X-Api-Key": assistant.key, "Authorization": "Bearer other"},
    ):
        assert 200 == (await assistant.post(CALL, headers, key=None)).status
    wrong = {"X-Api-Key": "th_wrong", "Authorization": assistant.key}
    assert 401 == (await assistant.post(CALL, wrong, key=None)).status


async def test_foreign_pages_and_foreign_names_are_refused(assistant: Assistant) -> None:
    """
    A foreign origin or host gets 403 before the key is checked, with every method. The server's own
    pages are allowed.
    """
    own = assistant.serving.url
    other_port = f"http://127.0.0.1:{int(own.rpartition(':')[2]) - 1}"
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"},
                    {"Host": "evil.example", "Origin": "http://evil.example"}, {"Origin": other_port},
                    {"Origin": own.replace("http:", "https:")}):  # fmt: skip
        for method in ("POST", "GET", "OPTIONS"):
            answer = await assistant.serving.send("/mcp", b"{}", method=method, key=None, headers=headers)
            assert 403 == answer.status, (headers, method)
    assert 200 == (await assistant.post(CALL, {"Origin": own})).status


async def test_a_name_of_the_configuration_is_known(open_assistant: OpenAssistant) -> None:
    """A local proxy forwards the public host name, which the configuration allows."""
    config = Config(mcp=McpSettings(hosts=("Tollhouse.example.com",)), spool=SpoolSettings(hold=0))
    assistant = await open_assistant(config)
    named = {"Host": "tollhouse.example.com"}
    assert 200 == (await assistant.post(CALL, named)).status
    assert 200 == (await assistant.post(CALL, {**named, "Origin": "https://tollhouse.example.com"})).status
    for origin in ("https://evil.example", "https://tollhouse.example.com:8443", "http://["):
        assert 403 == (await assistant.post(CALL, {**named, "Origin": origin})).status


async def test_behind_a_proxy_with_tls_a_page_without_tls_is_another_origin(
    open_assistant: OpenAssistant,
) -> None:
    """The address of the MCP endpoint, or the setting for the console, says that a proxy receives HTTPS."""
    host = "tollhouse.example.com"
    by_address = McpSettings(hosts=(host,), oauth=McpOAuthSettings(resource=f"https://{host}/mcp/people"))
    for settings, behind_tls in ((by_address, False), (McpSettings(hosts=(host,)), True)):
        config = Config(mcp=settings, spool=SpoolSettings(hold=0))
        assistant = await open_assistant(config, operator_plaintext=behind_tls)
        for scheme, status in (("https", 200), ("http", 403)):
            headers = {"Host": host, "Origin": f"{scheme}://{host}"}
            assert status == (await assistant.post(CALL, headers)).status, (settings, scheme)


LIMITS = {
    "calls_per_minute": McpSettings(calls_per_minute=1, daily_calls=0),
    "daily_calls": McpSettings(calls_per_minute=0, daily_calls=1),
}


@pytest.mark.parametrize("setting", LIMITS)
async def test_calls_of_tools_are_limited_by_key(open_assistant: OpenAssistant, setting: str) -> None:
    """
    At the limit the answer is 429 with the setting and the time to retry. Lists and other keys are not
    limited by it.
    """
    assistant = await open_assistant(Config(mcp=LIMITS[setting], spool=SpoolSettings(hold=0)))
    first, *_, last = [await assistant.post(CALL) for _ in range(5)]
    assert first.status == 200
    assert last.status == 429
    assert f"mcp.{setting}" in last.body.decode()
    assert int(last.headers["Retry-After"]) > 0
    assert 200 == (await assistant.ask("tools/list")).status
    other = await assistant.serving.make_key("second", scopes=[AI_HUB])
    assert 200 == (await assistant.post(CALL, key=other)).status


@pytest.mark.proves("messages of assistants")
async def test_every_message_is_limited_by_key(open_assistant: OpenAssistant) -> None:
    """Lists and pings cost a tenth of a call. Beyond the limit only this key gets 429."""
    assistant = await open_assistant(Config(mcp=McpSettings(calls_per_minute=1), spool=SpoolSettings(hold=0)))
    methods = ["tools/list", "resources/list", "resources/templates/list", "ping", "no/such/method"]
    statuses = [
        (await assistant.post({"jsonrpc": "2.0", "id": 1, "method": method})).status for method in 2 * methods
    ]
    refused = await assistant.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert statuses == [200] * 10
    assert refused.status == 429
    assert int(refused.headers["Retry-After"]) > 0
    other = await assistant.serving.make_key("second", scopes=[AI_HUB])
    assert 200 == (await assistant.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, key=other)).status


async def test_a_list_of_tools_is_made_once(assistant: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of MCP tools is built once, and is the same for everybody until a dimension is added."""
    first = (await assistant.ask("tools/list")).body
    monkeypatch.setattr(McpTool, "tools_list_entry", None)
    assert first == (await assistant.ask("tools/list")).body


async def test_calls_of_tools_are_counted(assistant: Assistant) -> None:
    """Calls are counted by tool and outcome. A tool that does not exist creates no metric series."""
    await assistant.content("get_org_context")
    await assistant.mistake("get_cost_data", nonsense=1)
    await assistant.ask("tools/call", {"name": "no_such_tool"})
    shown = (await assistant.serving.send("/metrics", b"", None, method="GET")).body.decode()
    assert 'tollhouse_mcp_calls_total{outcome="answered",tool="get_org_context"} 1.0' in shown
    assert 'tollhouse_mcp_calls_total{outcome="mistaken",tool="get_cost_data"} 1.0' in shown
    assert "no_such_tool" not in shown


async def test_a_large_message_is_refused(assistant: Assistant) -> None:
    """A message that is too large gets a 413 before it is decoded."""
    body = json.dumps({**CALL, "params": {"name": "x" * 300_000}}).encode()
    assert 413 == (await assistant.post(body)).status


async def test_messages_without_tool_calls_wait_for_no_tool(assistant: Assistant) -> None:
    """
    While a tool of a key runs, its other messages are answered at once. Only tool calls wait for their turn.
    """
    questions, name = assistant.serving.app.services.operators.installation.questions, "key assistant"
    begun, end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await end.wait()

    async def sent(answer: None) -> None:
        return answer

    held = asyncio.create_task(questions.answer_in_turn(name, work, sent))
    await begun.wait()
    waiting = [
        asyncio.create_task(assistant.ask("tools/call", {"name": "get_org_context", "arguments": {}})),
        asyncio.create_task(assistant.ask("resources/read", {"uri": "tollhouse://context"})),
    ]
    for method in ("tools/list", "resources/list", "server/discover"):
        assert 200 == (await assistant.ask(method)).status
    assert {} == (await assistant.ask_legacy("ping"))["result"]
    assert 400 == (await assistant.post(b"no message")).status
    assert not any(task.done() for task in waiting)
    end.set()
    await held
    assert [200, 200] == [answer.status for answer in await asyncio.gather(*waiting)]
