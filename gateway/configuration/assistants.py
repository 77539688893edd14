"""Problems in the settings of [mcp]."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from exporters.problems import problems_of_choice
from gateway.configuration.sections import McpOAuthSettings, McpSettings, OidcSettings
from gateway.configuration.values import is_safe_address
from spool.registry.operators import MAX_TOKEN_LIFE_S

# The tools of gateway.mcp.tools.list, in its order. With these names, a wrong tool name in the settings is
# reported and not ignored.
TOOL_NAMES = (
    "get_org_context",
    "get_available_dimensions",
    "get_dimension_values",
    "get_cost_data",
    "compare_costs",
    "get_group_costs",
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


def assistant_problems(mcp: McpSettings, oidc: OidcSettings) -> Iterator[str]:
    for name in mcp.tools:
        yield from problems_of_choice("mcp.tools", name, TOOL_NAMES)
    if mcp.oauth.resource:
        yield from _oauth_problems(mcp.oauth, oidc)
    elif mcp.oauth != McpOAuthSettings():
        yield "mcp.oauth.resource is required, because other settings of [mcp.oauth] are set"


def _oauth_problems(oauth: McpOAuthSettings, oidc: OidcSettings) -> Iterator[str]:
    address = oauth.resource
    if not oidc.issuer:
        yield "mcp.oauth.resource needs [oidc], because its provider signs people in"
    if not is_safe_address(address):
        yield "mcp.oauth.resource must be an https address; http is allowed only on this machine"
    elif urlsplit(address).query or "#" in address or not address.endswith((FOR_ALL, FOR_PEOPLE)):
        yield f'mcp.oauth.resource must end with "{FOR_ALL}" or "{FOR_PEOPLE}", without a trailing slash'
    if not all(oauth.audiences) or not all(oauth.clients):
        yield "mcp.oauth.audiences and mcp.oauth.clients must not contain empty texts"
    if oidc.client_id in (*oauth.audiences, oauth.resource):
        yield (
            "mcp.oauth.audiences must not contain oidc.client_id, because ID tokens of the console would "
            "then give access to the tools"
        )
    for name, scope in (("read_scope", oauth.read_scope), ("write_scope", oauth.write_scope)):
        if not _SCOPE.fullmatch(scope):
            yield f"mcp.oauth.{name} must have 1 to 100 characters, without spaces and quotes"
    if oauth.read_scope == oauth.write_scope:
        yield "mcp.oauth.read_scope and mcp.oauth.write_scope must differ"
    if oauth.max_life > MAX_TOKEN_LIFE_S:
        yield "mcp.oauth.max_life must be at most 7d"
