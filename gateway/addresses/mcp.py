"""The address of assistants."""

from __future__ import annotations

from gateway.authentication.assistant_people import WELL_KNOWN
from gateway.configuration.assistants import FOR_ALL, FOR_PEOPLE
from gateway.http.address import ERROR, Address
from gateway.http.answers import JSON
from gateway.http.key_carriage import AS_API_KEY
from gateway.http.requests import check_json
from gateway.mcp.credentials import admit_person
from gateway.mcp.endpoint import ask_mcp
from gateway.mcp.hosts import check_host
from gateway.mcp.messages import asks_tool
from gateway.mcp.metadata import show_protected_resource
from gateway.schemas import OBJECT, TEXT, array, closed
from spool.registry.scopes import AI_HUB

MAX_BYTES = 256 * 1024  # of a message: questions are small

_MESSAGE = closed({"jsonrpc": {"const": "2.0"}, "id": {"type": ["string", "integer"]}, "result": OBJECT})
_FAILURE = closed(
    {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer", "null"]},
        "error": closed({"code": {"type": "integer"}, "message": TEXT}, {"data": OBJECT}),
    }
)

_METADATA = closed(
    {
        "resource": TEXT,
        "authorization_servers": array(TEXT),
        "scopes_supported": array(TEXT),
        "bearer_methods_supported": array(TEXT),
        "resource_name": TEXT,
    }
)


def _tools(path: str, name: str, summary: str) -> Address:
    return Address(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        handler=ask_mcp,
        endpoint="mcp",
        scope=AI_HUB,
        key=AS_API_KEY,
        guard=check_host,
        people=admit_person,
        check=check_json,
        body=bytes,
        takes={JSON: OBJECT},
        max_bytes=MAX_BYTES,
        in_turn=True,
        asks_much=asks_tool,
        gives={200: {JSON: {"anyOf": [_MESSAGE, _FAILURE]}}, 202: {}},
        errors={JSON: {"anyOf": [ERROR, _FAILURE]}},
        refusals=(400, 401, 403, 404, 413, 415, 429, 500, 503),
    )


def _metadata(path: str, name: str) -> Address:
    return Address(
        methods=("GET", "HEAD", "OPTIONS"),
        path=path,
        name=name,
        summary="How a person signs an assistant in: the provider and the scopes (RFC 9728)",
        handler=show_protected_resource,
        endpoint="mcp/metadata",
        gives={200: {JSON: _METADATA}},
        refusals=(404,),
        checks_query=False,
    )


ROWS = (
    _tools(FOR_ALL, ask_mcp.__name__, "Ask as an assistant: one message of the Model Context Protocol"),
    _tools(
        FOR_PEOPLE, "ask_mcp_as_person", "The same at an address of its own for people (mcp.oauth.resource)"
    ),
    _metadata(WELL_KNOWN, show_protected_resource.__name__),
    _metadata(WELL_KNOWN + "/{path:.+}", "show_protected_resource_of_path"),
)
