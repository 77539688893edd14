"""What of [mcp] cannot run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from exporters.problems import one_of
from gateway.service.configuration.sections import McpOAuthSettings, McpSettings, OidcSettings
from gateway.service.configuration.values import is_safe_address
from spool.registry.operators import MAX_TOKEN_LIFE_S

# Those of gateway.mcp.tools.list, in its order: a name that is none of them would switch nothing, in silence.
TOOL_NAMES = (
    "get_org_context",
    "get_available_dimensions",
    "get_dimension_values",
    "get_cost_data",
    "compare_costs",
    "get_budgets",
    "get_insights",
    "get_optimize_recs",
    "get_realized_savings",
    "get_allocation_definitions",
    "get_reconciliation",
    "get_plan_costs",
    "get_telemetry_streams",
    "get_telemetry_data",
    "get_resource_metadata",
    "get_reference_info",
    "log_insight",
    "set_org_context",
)
FOR_ALL, FOR_PEOPLE = "/mcp", "/mcp/people"
_SCOPE = re.compile(r"[!#-\[\]-~]{1,100}")


def problems(mcp: McpSettings, oidc: OidcSettings) -> Iterator[str]:
    """In the user's own key names."""
    for name in mcp.tools:
        yield from one_of("mcp.tools", name, TOOL_NAMES)
    if mcp.oauth.resource:
        yield from _oauth_problems(mcp.oauth, oidc)
    elif mcp.oauth != McpOAuthSettings():
        yield "mcp.oauth.resource is required when other settings of [mcp.oauth] are given"


def _oauth_problems(oauth: McpOAuthSettings, oidc: OidcSettings) -> Iterator[str]:
    address = oauth.resource
    if not oidc.issuer:
        yield "mcp.oauth.resource needs [oidc]: its provider signs people in"
    if not is_safe_address(address):
        yield "mcp.oauth.resource must be an address with https, or with http on this machine alone"
    elif urlsplit(address).query or "#" in address or not address.endswith((FOR_ALL, FOR_PEOPLE)):
        yield f'mcp.oauth.resource ends with "{FOR_ALL}" or "{FOR_PEOPLE}", without a slash behind it'
    if not all(oauth.audiences) or not all(oauth.clients):
        yield "mcp.oauth.audiences and mcp.oauth.clients hold no empty text"
    if oidc.client_id in (*oauth.audiences, oauth.resource):
        yield "mcp.oauth.audiences must not have oidc.client_id: an ID token of the console would open the tools"
    for name, scope in (("read_scope", oauth.read_scope), ("write_scope", oauth.write_scope)):
        if not _SCOPE.fullmatch(scope):
            yield f"mcp.oauth.{name} is 1 to 100 characters without blanks and quotes"
    if oauth.read_scope == oauth.write_scope:
        yield "mcp.oauth.read_scope and mcp.oauth.write_scope must differ"
    if oauth.max_life > MAX_TOKEN_LIFE_S:
        yield "mcp.oauth.max_life must be at most 7d"
