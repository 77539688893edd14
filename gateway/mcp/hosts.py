"""
Who may ask over HTTP beside having a key: programs, and pages of this server itself.

A page in somebody's browser can be made to speak to a server on loopback under a foreign name (DNS
rebinding). So a loopback listener answers only under names that are known to be its own, and no listener
answers pages of other origins.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from gateway.authentication.hosts import authority, host_name, is_own_name
from gateway.configuration.addresses import is_loopback
from gateway.errors import Refusal
from gateway.http.services import Services


def check_host(request: web.Request, services: Services) -> None:
    """Refusal 403 for a foreign Host on loopback, and for a foreign Origin everywhere."""
    host = request.headers.get("Host", "")
    operators = services.operators
    mcp = operators.assistants.mcp()
    named = {*mcp.hosts, host_name(urlsplit(mcp.oauth.resource).netloc)}
    is_own = is_own_name(host_name(host), operators.people.hosts | {name.lower() for name in named if name})
    if not is_own and _is_local(request):
        raise Refusal(
            403, "foreign_host", "this host name is not known here; an operator may add it to mcp.hosts"
        )
    origin = request.headers.get("Origin")
    if origin is not None and not (is_own and authority(origin) == host.lower()):
        message = "pages of this origin may not ask; an operator may add the name of this server to mcp.hosts"
        raise Refusal(403, "foreign_origin", message)


def _is_local(request: web.Request) -> bool:
    """True if the listener is on loopback."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return isinstance(name, tuple) and is_loopback(str(name[0]))
