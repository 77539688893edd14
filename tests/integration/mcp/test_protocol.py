"""What the protocol's specification demands of a server, for both revisions, over HTTP."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gateway.mcp.protocol import LEGACY, MODERN
from tests.integration.mcp.conftest import CAPABILITIES, META, VERSION, Assistant

pytestmark = pytest.mark.asyncio

CAN: dict[str, Any] = {"tools": {}, "resources": {}}
HEADERS = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
TOOLS_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}


def code(body: bytes) -> int:
    error: int = json.loads(body)["error"]["code"]
    return error


async def test_discovery_says_what_the_server_can(assistant: Assistant) -> None:
    """server/discover is there, and its answer may be kept for a while."""
    answer = await assistant.ask("server/discover")
    result = json.loads(answer.body)["result"]
    assert answer.status == 200
    assert result["supportedVersions"] == [MODERN]
    assert result["capabilities"] == CAN
    assert "application/json" == answer.headers["Content-Type"].partition(";")[0]
    assert len(result["instructions"]) < 1024
    assert result["resultType"] == "complete"
    assert result["cacheScope"] == "private"
    assert result["ttlMs"] >= 0
    assert "tollhouse" == result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"]


async def test_the_answer_has_the_id_of_the_request(assistant: Assistant) -> None:
    """Text or an integer, as it came; errors too."""
    for id in ("discover-1", 0, -7, "é"):
        assert id == json.loads((await assistant.ask("tools/list", id=id)).body)["id"]
        assert id == json.loads((await assistant.ask("unheard/of", id=id)).body)["id"]


NO_REQUEST: list[tuple[bytes, int]] = [
    (b"{", -32700),
    (b"\xff", -32700),
    (json.dumps(TOOLS_LIST).encode()[:-2] + b',"deep":' + b"[" * 100_000, -32700),
    (b"[]", -32600),
    (json.dumps([TOOLS_LIST]).encode(), -32600),  # a batch
    (json.dumps({**TOOLS_LIST, "id": None}).encode(), -32600),
    (json.dumps({**TOOLS_LIST, "id": 10**40}).encode(), -32600),
    (json.dumps({**TOOLS_LIST, "id": 1.5}).encode(), -32600),
    (json.dumps({**TOOLS_LIST, "jsonrpc": "1.0"}).encode(), -32600),
    (json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode(), -32600),  # a response
    (json.dumps({**TOOLS_LIST, "params": []}).encode(), -32600),
]


async def test_what_is_no_single_request_is_refused(assistant: Assistant) -> None:
    """400 with an error of JSON-RPC, and nothing breaks."""
    for body, expected in NO_REQUEST:
        answer = await assistant.post(body, HEADERS)
        assert answer.status == 400, (body[:80], answer.body)
        assert code(answer.body) == expected, (body[:80], answer.body)


DISAGREEING: list[tuple[dict[str, str], dict[str, Any], int]] = [
    ({"Mcp-Method": "tools/list"}, META, -32020),
    ({**HEADERS, "MCP-Protocol-Version": LEGACY[0]}, META, -32020),
    ({"MCP-Protocol-Version": MODERN}, META, -32020),
    ({**HEADERS, "Mcp-Method": "tools/call"}, META, -32020),
    (HEADERS, {}, -32602),
    (HEADERS, {VERSION: MODERN}, -32602),
    (HEADERS, {**META, CAPABILITIES: 1}, -32602),
    ({**HEADERS, "MCP-Protocol-Version": "2099-01-01"}, {}, -32022),
    ({**HEADERS, "MCP-Protocol-Version": "2099-01-01"}, {**META, VERSION: "2099-01-01"}, -32022),
]


async def test_headers_and_body_of_a_modern_request_agree(assistant: Assistant) -> None:
    """400 with the code that the specification names for it."""
    for headers, meta, expected in DISAGREEING:
        answer = await assistant.post({**TOOLS_LIST, "params": {"_meta": meta}}, headers)
        assert answer.status == 400, (headers, meta, answer.body)
        assert code(answer.body) == expected, (headers, meta, answer.body)


async def test_an_unknown_revision_is_told_which_are_known(assistant: Assistant) -> None:
    """What was asked for, and what may be asked for."""
    answer = await assistant.post(TOOLS_LIST, {**HEADERS, "MCP-Protocol-Version": "1"})
    assert -32020 == code(answer.body)
    answer = await assistant.post({**TOOLS_LIST, "params": {}}, {"MCP-Protocol-Version": "1"})
    assert {"supported": [MODERN, *LEGACY], "requested": "1"} == json.loads(answer.body)["error"]["data"]


async def test_the_name_of_a_tool_stands_in_a_header(assistant: Assistant) -> None:
    """Plain or in Base64; another name is refused."""
    params = {"name": "get_org_context", "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call"}
    encoded = f"=?base64?{base64.b64encode(b'get_org_context').decode()}?="
    for name, status in (("get_org_context", 200), (encoded, 200), ("other", 400), ("=?base64?!?=", 400)):
        answer = await assistant.post(body, {**headers, "Mcp-Name": name})
        assert status == answer.status, (name, answer.body)
    assert -32020 == code((await assistant.post(body, headers)).body)


async def test_an_unknown_method_is_not_found(assistant: Assistant) -> None:
    """404 for modern clients, with an error that tells it from a missing address; 200 for legacy ones."""
    for method in ("unheard/of", "initialize", "ping", "logging/setLevel", "subscriptions/listen"):
        answer = await assistant.ask(method)
        assert answer.status == 404
        assert code(answer.body) == -32601
    assert -32601 == (await assistant.ask_legacy("server/discover"))["error"]["code"]


async def test_a_notification_gets_no_answer(assistant: Assistant) -> None:
    """202 without a body, whatever it says."""
    for method in ("notifications/initialized", "notifications/cancelled", "unheard/of"):
        answer = await assistant.post({"jsonrpc": "2.0", "method": method})
        assert answer.status == 202
        assert answer.body == b""


async def test_nothing_but_post_is_taken(assistant: Assistant) -> None:
    """405: there is no stream to open and no session to end."""
    for method in ("GET", "DELETE", "PUT"):
        answer = await assistant.serving.send("/mcp", b"", None, method=method, key=assistant.key)
        assert answer.status == 405
        assert answer.headers["Allow"] == "POST"


async def test_nothing_is_remembered_between_requests(assistant: Assistant) -> None:
    """No session is made, and ids of sessions and events are ignored."""
    answer = await assistant.post(TOOLS_LIST, {**HEADERS, "Mcp-Session-Id": "s", "Last-Event-ID": "9"})
    assert answer.status == 200
    assert "Mcp-Session-Id" not in answer.headers


async def test_tools_are_listed_in_one_order(assistant: Assistant) -> None:
    """Every time the same, on one page: a cursor is not one of ours."""
    first, second = [json.loads((await assistant.ask("tools/list")).body)["result"] for _ in range(2)]
    assert first == second
    assert "nextCursor" not in first
    assert all(tool["annotations"]["readOnlyHint"] for tool in first["tools"])
    assert -32602 == code((await assistant.ask("tools/list", {"cursor": ""})).body)


async def test_an_unknown_tool_is_an_error_of_the_protocol(assistant: Assistant) -> None:
    """But wrong arguments are an answer, which a model reads and mends."""
    assert -32602 == code((await assistant.ask("tools/call", {"name": "drop_everything"})).body)
    assert -32602 == (await assistant.ask_legacy("tools/call", {"arguments": {}}))["error"]["code"]
    assert "unknown field" in await assistant.mistake("get_cost_data", nonsense=1)


async def test_legacy_clients_begin_with_initialize(assistant: Assistant) -> None:
    """They get their revision, or the newest legacy one, and no session."""
    for asked, got in ((each, each) for each in LEGACY):
        result = (await assistant.ask_legacy("initialize", {"protocolVersion": asked, "capabilities": {}}))[
            "result"
        ]
        assert result["protocolVersion"] == got
        assert result["capabilities"] == CAN
        assert {"name", "title", "version"} == set(result["serverInfo"])
    answer = await assistant.ask_legacy("initialize", {"protocolVersion": "1999-01-01"})
    assert LEGACY[0] == answer["result"]["protocolVersion"]
    assert -32602 == (await assistant.ask_legacy("initialize", {}))["error"]["code"]


async def test_legacy_requests_have_no_modern_fields(assistant: Assistant) -> None:
    """Without the header they count as the oldest revision; results are as they were then."""
    for version in ("", *LEGACY):
        assert {} == (await assistant.ask_legacy("ping", version=version))["result"]
        listed = (await assistant.ask_legacy("tools/list", version=version))["result"]
        assert {"tools"} == set(listed)
        called = await assistant.ask_legacy("tools/call", {"name": "get_org_context"}, version)
        assert {"content", "structuredContent", "isError"} == set(called["result"])
