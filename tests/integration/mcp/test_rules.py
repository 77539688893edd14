"""
The rules of the MCP specification for servers: one exchange for each rule and revision.

Rules with more than one exchange are in test_access.py, test_tools.py and test_stdio.py.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from jsonschema import Draft202012Validator as Validator

from gateway.configuration.sections import Config, McpSettings
from gateway.configuration.server import ServerSettings
from gateway.mcp.protocol import LEGACY, MODERN
from gateway.mcp.resources import CONTEXT_URI
from gateway.service.app import TollhouseApp
from spool.registry.scopes import AI_HUB
from tests.integration.conftest import Answer, Serving
from tests.integration.mcp.conftest import CAPABILITIES, META, VERSION, Assistant
from tests.rounds import as_proof

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODERN_ONLY, ALL_LEGACY = (MODERN,), ("", *LEGACY)  # an empty string means that the header is missing
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
NAMED = {"tools/call": "get_org_context", "resources/read": CONTEXT_URI}

CAN: dict[str, Any] = {"tools": {}, "resources": {}}

Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Must:
    """
    One rule. `method` and `params` make a valid request of the revision. `headers` and `body` change it, and
    None removes a header.

    `code` is the expected error code. If it is None, `holds` must be true of the result.
    """

    revisions: tuple[str, ...]
    rule: str
    method: str = "tools/list"
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: Callable[[Body], Any] = lambda body: body
    verb: str = "POST"
    status: int = 200
    code: int | None = None
    data: Mapping[str, Any] | None = None
    holds: Callable[[Any], bool] = lambda result: True
    empty: bool = False


def without(*names: str) -> Callable[[Body], Body]:
    return lambda body: {name: value for name, value in body.items() if name not in names}


def with_meta(meta: Any) -> Callable[[Body], Body]:
    return lambda body: {**body, "params": {**body["params"], "_meta": meta}}


def changed(**fields: Any) -> Callable[[Body], Body]:
    return lambda body: {**body, **fields}


def modern(rule: str, **given: Any) -> Must:
    return Must(revisions=MODERN_ONLY, rule=rule, **given)


def legacy(rule: str, **given: Any) -> Must:
    return Must(revisions=ALL_LEGACY, rule=rule, **given)


def both(rule: str, **given: Any) -> Must:
    return Must(revisions=(*MODERN_ONLY, *ALL_LEGACY), rule=rule, **given)


def kept(result: Any) -> bool:
    return bool(result["ttlMs"] >= 0 and result["cacheScope"] in ("public", "private"))


def complete(result: Any) -> bool:
    return bool(
        result["resultType"] == "complete" and result["_meta"][SERVER_INFO].keys() >= {"name", "version"}
    )


def bare(result: Any) -> bool:
    return not {"resultType", "ttlMs", "cacheScope", "_meta"} & result.keys()


def opened_with(revision: str) -> Callable[[Any], bool]:
    def holds(found: Any) -> bool:
        who = {"name", "title", "version"} == found["serverInfo"].keys() and found["capabilities"] == CAN
        return bool(found["protocolVersion"] == revision and bare(found) and who and found["instructions"])

    return holds


def tools_are_well_formed(result: Any) -> bool:
    for tool in result["tools"]:
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", tool["name"]), tool["name"]
        assert tool["title"] and tool["description"]
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            Validator.check_schema(schema)
            assert "object" == schema["type"]
        assert tool["inputSchema"]["additionalProperties"] is False
    return len({tool["name"] for tool in result["tools"]}) == len(result["tools"])


def text_repeats_the_answer(result: Any) -> bool:
    (block,) = result["content"]
    return block["type"] == "text" and bool(block["text"]) and isinstance(result["structuredContent"], dict)


def is_mistake(result: Any) -> bool:
    return result["isError"] is True and "nonsense" in result["content"][0]["text"]


WRONG_CALL = {"name": "get_cost_data", "arguments": {"nonsense": 1}}
UNKNOWN = "2099-01-01"
UNSUPPORTED = {"supported": [MODERN, *LEGACY], "requested": UNKNOWN}

MUSTS: list[Must] = [
    # Rules for the endpoint and its messages.
    *(both(f"{verb} is 405", verb=verb, status=405, code=0) for verb in ("GET", "DELETE", "PUT")),
    both("a batch is refused", body=lambda body: [body], status=400, code=-32600),
    both("a response is refused", body=lambda _: {"jsonrpc": "2.0", "id": 1, "result": {}}, status=400, code=-32600),
    both("an empty batch is refused", body=lambda _: [], status=400, code=-32600),
    *(both(f"an id of {id} is refused", body=changed(id=id), status=400, code=-32600)
      for id in (None, [1], 1.5, 10**40)),
    both("jsonrpc is 2.0", body=changed(jsonrpc="1.0"), status=400, code=-32600),
    both("parameters are an object", body=changed(params=[]), status=400, code=-32600),
    *(both(f"what is not JSON is a parse error: {text[:9]!r}", body=lambda _, text=text: text, status=400, code=-32700)
      for text in (b"{", b"\xff", b'{"deep":' + b"[" * 100_000)),
    both("other media types are refused", headers={"Content-Type": "text/plain"}, status=415, code=0),
    *(both(f"{method} without an id gets 202 and no body", method=method, body=without("id"), status=202, empty=True)
      for method in ("notifications/cancelled", "unheard/of")),
    both("ids of sessions and events are ignored", headers={"Mcp-Session-Id": "s", "Last-Event-ID": "9"}),
    both("an answer in JSON may be all that is accepted", headers={"Accept": "application/json"}),
    both("more of a message than is known is ignored", body=changed(unheard=1)),
    # Rules for headers, which repeat values of the body.
    modern("a missing version header is refused", headers={"MCP-Protocol-Version": None}, status=400, code=-32020),
    modern("another version header is refused", headers={"MCP-Protocol-Version": LEGACY[0]}, status=400, code=-32020),
    modern("a missing method header is refused", headers={"Mcp-Method": None}, status=400, code=-32020),
    modern("another method header is refused", headers={"Mcp-Method": "ping"}, status=400, code=-32020),
    *(modern(f"the name of {method} stands in a header: {what}", method=method, params=_params,
             headers={"Mcp-Name": value}, status=400, code=-32020)
      for method, name in NAMED.items()
      for _params in ({"uri" if method == "resources/read" else "name": name},)
      for what, value in (("missing", None), ("another", "other"), ("malformed", "=?base64?!?="))),
    *(modern(f"the name of {method} may be in Base64", method=method, params=_params,
             headers={"Mcp-Name": f"=?base64?{b64encode(name.encode()).decode()}?="})
      for method, name in NAMED.items()
      for _params in ({"uri" if method == "resources/read" else "name": name},)),
    # Rules for requests, which name their client.
    modern("a client is required", body=with_meta({}), status=400, code=-32602),
    modern("capabilities are required", body=with_meta({VERSION: MODERN}), status=400, code=-32602),
    modern("capabilities are an object", body=with_meta({**META, CAPABILITIES: []}), status=400, code=-32602),
    modern("a version is required", body=with_meta({CAPABILITIES: {}}), status=400, code=-32602),
    modern("a version is text", body=with_meta({**META, VERSION: 7}), headers={"MCP-Protocol-Version": "7"},
           status=400, code=-32020),
    modern("an unknown version is told those that are known", body=with_meta({**META, VERSION: UNKNOWN}),
           headers={"MCP-Protocol-Version": UNKNOWN}, status=400, code=-32022, data=UNSUPPORTED),
    modern("who asks, what to log and a trace may be told",
           body=with_meta({**META, "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1"},
                           "io.modelcontextprotocol/logLevel": "debug", "traceparent": "00-0-0-00"})),
    legacy("an unknown version is 400", headers={"MCP-Protocol-Version": UNKNOWN}, status=400, code=-32022,
           data=UNSUPPORTED),
    # Rules for methods.
    *(modern(f"{method} is not a method", method=method, status=404, code=-32601)
      for method in ("unheard/of", "initialize", "ping", "logging/setLevel", "subscriptions/listen",
                     "resources/subscribe", "completion/complete", "tasks/list", "prompts/list")),
    *(legacy(f"{method} is not a method", method=method, code=-32601)
      for method in ("unheard/of", "server/discover", "logging/setLevel", "resources/subscribe")),
    modern("server/discover is there", method="server/discover",
           holds=lambda found: found["supportedVersions"] == [MODERN] and kept(found) and complete(found)
           and 0 < len(found["instructions"]) < 1024),
    modern("no change is promised to be told", method="server/discover",
           holds=lambda found: found["capabilities"] == CAN),
    legacy("ping is answered", method="ping", holds=lambda found: found == {}),
    *(Must(revisions=("",), rule=f"initialize with {asked} gives {given}", method="initialize",
           params={"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
           holds=opened_with(given))
      for asked, given in (*zip(LEGACY, LEGACY, strict=True), (UNKNOWN, LEGACY[0]), (MODERN, LEGACY[0]))),
    legacy("initialize needs a version", method="initialize", params={"capabilities": {}}, code=-32602),
    legacy("notifications/initialized gets 202", method="notifications/initialized", body=without("id"), status=202,
           empty=True),
    # Rules for lists.
    *(modern(f"{method} may be kept", method=method, holds=lambda found: kept(found) and complete(found))
      for method in ("tools/list", "resources/list", "resources/templates/list")),
    *(legacy(f"{method} has no modern fields", method=method, holds=bare)
      for method in ("tools/list", "resources/list", "resources/templates/list")),
    *(both(f"{method} refuses a cursor that it never gave", method=method, params={"cursor": cursor}, code=-32602)
      for method in ("tools/list", "resources/list", "resources/templates/list")
      for cursor in ("", "x", 7)),
    *(both(f"the last page of {method} has no cursor", method=method, holds=lambda found: "nextCursor" not in found)
      for method in ("tools/list", "resources/list", "resources/templates/list")),
    both("tools have names, schemas and words", holds=tools_are_well_formed),
    # Rules for tools and resources.
    both("an unknown tool is an error of the protocol", method="tools/call", params={"name": "none"}, code=-32602),
    modern("an unknown resource is an error of the protocol", method="resources/read",
           params={"uri": "tollhouse://none"}, code=-32602),
    legacy("an unknown resource has a code of its own", method="resources/read", params={"uri": "tollhouse://none"},
           code=-32002),
    both("parameters that are none are refused", method="tools/call", params={"name": "get_org_context",
         "arguments": []}, code=-32602),
    both("wrong arguments are an answer that says so", method="tools/call", params=WRONG_CALL, holds=is_mistake),
    both("structured content is repeated as text", method="tools/call", params={"name": "get_org_context"},
         holds=text_repeats_the_answer),
    modern("a tool's answer is complete", method="tools/call", params={"name": "get_org_context"}, holds=complete),
    modern("a resource may be kept", method="resources/read", params={"uri": CONTEXT_URI},
           holds=lambda found: kept(found) and complete(found)),
    *(legacy(f"{method} has no modern fields", method=method, holds=bare,
             params={"uri" if method == "resources/read" else "name": name}) for method, name in NAMED.items()),
]  # fmt: skip
CASES = [
    (must, revision) if number < 2 else as_proof((must, revision))
    for must in MUSTS
    for number, revision in enumerate(must.revisions)
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_assistant(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Assistant]:
    """Start one server for all rules."""
    directory: Path = tmp_path_factory.mktemp("rules")
    app = TollhouseApp(
        Config(data_dir=directory, server=ServerSettings(listen="127.0.0.1:0", grpc_listen="")), version="0"
    )
    await app.start()
    serving = Serving(app=app, key="", client=ClientSession())
    app.services.operators.assistants.mcp = lambda: McpSettings(calls_per_minute=0, daily_calls=0)
    yield Assistant(serving, await serving.make_key("assistant", scopes=[AI_HUB]))
    await serving.client.close()
    await app.stop()


async def exchanged(assistant: Assistant, must: Must, revision: str) -> Answer:
    body: Body = {"jsonrpc": "2.0", "id": 1, "method": must.method, "params": dict(must.params)}
    headers: dict[str, str | None] = {"Content-Type": "application/json"}
    if revision:
        headers["MCP-Protocol-Version"] = revision
    if revision == MODERN:
        body["params"]["_meta"] = META
        headers["Mcp-Method"] = must.method
        if must.method in NAMED:
            headers["Mcp-Name"] = must.params.get("name") or must.params.get("uri")
    headers |= must.headers
    sent = must.body(body)
    data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    told = {name: value for name, value in headers.items() if value is not None}
    media = told.pop("Content-Type")
    return await assistant.serving.send(
        "/mcp", b"" if must.verb != "POST" else data, media, method=must.verb, key=assistant.key, headers=told
    )


@pytest.mark.parametrize(
    ("must", "revision"), CASES, ids=lambda one: one.rule if isinstance(one, Must) else one or "-"
)
async def test_the_rule(one_assistant: Assistant, must: Must, revision: str) -> None:
    """The answer is one JSON object without a session, and satisfies the rule."""
    answer = await exchanged(one_assistant, must, revision)
    assert must.status == answer.status, answer.body
    assert "Mcp-Session-Id" not in answer.headers
    assert must.status != 405 or answer.headers["Allow"] == "POST"
    if must.empty:
        assert b"" == answer.body
        return
    assert answer.headers["Content-Type"].startswith("application/json")
    found = json.loads(answer.body)
    if must.code == 0:  # errors outside the MCP protocol have the same form as on all other addresses
        assert "error" in found and "jsonrpc" not in found
        return
    assert "2.0" == found["jsonrpc"]
    assert ("result" in found) == (must.code is None), found
    if must.code is None:
        assert 1 == found["id"]
        assert must.holds(found["result"]), found["result"]
    else:
        assert must.code == found["error"]["code"] and found["error"]["message"]
        assert must.data is None or must.data == found["error"]["data"]


async def test_the_answer_has_the_id_of_the_request(one_assistant: Assistant) -> None:
    """
    An id may be text or an integer and comes back unchanged, also in errors. Tools are always listed in
    the same order.
    """
    listed = []
    for id in ("discover-1", 0, -7, "é"):
        answer = json.loads((await one_assistant.ask("tools/list", id=id)).body)
        assert id == answer["id"]
        assert id == json.loads((await one_assistant.ask("unheard/of", id=id)).body)["id"]
        listed.append(answer["result"]["tools"])
    assert listed == [listed[0]] * 4
    assert all(tool["annotations"]["readOnlyHint"] for tool in listed[0])


@pytest.mark.parametrize(
    "path", ["oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server"]
)
async def test_no_sign_in_is_offered(one_assistant: Assistant, path: str) -> None:
    """
    Without a provider, the addresses where clients look for a sign-in answer 404, and a 401 is JSON
    without a challenge.
    """
    answer = await one_assistant.serving.send(f"/.well-known/{path}", b"", None, method="GET", key=None)
    assert 404 == answer.status
    refused = await one_assistant.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, key=None)
    assert refused.status == 401
    assert "key" in json.loads(refused.body)["error"]["message"].lower()


async def test_a_key_in_the_address_is_no_key(one_assistant: Assistant) -> None:
    """A key in the address is ignored, because addresses appear in logs."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    for name in ("key", "api_key", "access_token"):
        answer = await one_assistant.serving.send(f"/mcp?{name}={one_assistant.key}", body, key=None)
        assert 401 == answer.status
