"""Metadata that clients read before a person signs in: the provider and the scopes (RFC 9728)."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from gateway.configuration.assistants import FOR_ALL, FOR_PEOPLE
from gateway.configuration.sections import McpOAuthSettings
from gateway.core.errors import not_found_refusal
from gateway.core.schemas import TEXT, array_schema, closed_object_schema, schema_with_description
from gateway.http import answers
from gateway.http.address import ApiAddress
from gateway.http.answers import JSON
from gateway.http.requests import Result
from gateway.operations.installation.nearest_address import advice_for_path
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.services import OperatorServices
from gateway.people.authentication.assistant_people import WELL_KNOWN

MAX_AGE_S = 300
_READABLE = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "*",
    "Cache-Control": f"public, max-age={MAX_AGE_S}",
}


_METADATA = closed_object_schema(
    {
        "resource": schema_with_description(TEXT, "The address of the MCP endpoint."),
        "authorization_servers": schema_with_description(
            array_schema(TEXT), "The address of the OpenID provider."
        ),
        "scopes_supported": schema_with_description(array_schema(TEXT), "The scopes that a token may have."),
        "bearer_methods_supported": schema_with_description(array_schema(TEXT), "How to send the token."),
        "resource_name": schema_with_description(TEXT, "The name of the server."),
    }
)


def _metadata_address(path: str, *, name: str = "") -> ApiAddress:
    return ApiAddress(
        methods=("GET", "HEAD", "OPTIONS"),
        path=path,
        name=name,
        summary="Show the provider and the scopes with which a person signs an assistant in (RFC 9728)",
        endpoint="mcp/metadata",
        gives={200: {JSON: _METADATA}},
        refusals=(404,),
        checks_query=False,
    )


@_metadata_address(WELL_KNOWN)
@_metadata_address(WELL_KNOWN + "/{path:.+}", name="show_protected_resource_of_path")
async def show_protected_resource(request: KeyRequest[OperatorServices, None]) -> Result:
    """
    Return the OAuth metadata at each path that clients may derive from the resource's address. Pages of every
    origin may read it. Refuses with 404 if mcp.oauth is not configured.
    """
    operators = request.services
    oauth = operators.assistants.mcp().oauth
    provider = operators.people.oidc
    if provider is None or not _is_metadata_path(oauth, request.http.path.removeprefix(WELL_KNOWN)):
        raise not_found_refusal(advice_for_path(request.http.path))
    if request.http.method == "OPTIONS":
        return web.Response(status=204, headers=_READABLE)
    shown = {
        "resource": oauth.resource,
        "authorization_servers": [provider.settings.issuer],
        "scopes_supported": [oauth.read_scope],
        "bearer_methods_supported": ["header"],
        "resource_name": "Tollhouse",
    }
    response = answers.json_response(shown)
    response.headers.update(_READABLE)
    return response


def _is_metadata_path(oauth: McpOAuthSettings, path: str) -> bool:
    """
    Return whether the document is served at this path, which is the part after the well-known address.

    The path must be that of the resource, with or without the prefix that a proxy removes. If the resource is
    the MCP address that also accepts keys, the path may also be empty.
    """
    if not oauth.resource:
        return False
    whole = urlsplit(oauth.resource).path
    is_for_people = oauth.resource.endswith(FOR_PEOPLE)
    own_path = FOR_PEOPLE if is_for_people else FOR_ALL
    return path in (whole, own_path) or (not path and not is_for_people)
