"""
The way of a request to its handler, without the search of aiohttp's router where there is nothing to search for.

A path without parameters that takes every method is found by its text, with the match that the router made when
it was asked first: 4 % of the loop's time where requests are small.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from aiohttp import web
from aiohttp.web_urldispatcher import PlainResource

# of a web.Request; aiohttp says BaseRequest
Handle: TypeAlias = "Callable[[Any], Awaitable[web.StreamResponse]]"

# Read by the router as it is written, and by nobody in two ways: nothing is escaped, and no part may be left
# out.
_PLAIN = re.compile(r"(/\w[\w.-]*)+", re.ASCII)


def by_exact_path(application: web.Application, otherwise: Handle) -> Handle:
    """
    Make a handler that finds exact paths of a frozen application in a dict; `otherwise`, the application's
    own handler, takes all others.

    `otherwise` takes requests with `Expect`, too, and every request of an application with middlewares.
    """
    matches: dict[str, web.UrlMappingMatchInfo] = {}  # at most as many as there are such paths
    if application.middlewares:
        return otherwise

    def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
        match = matches.get(request.raw_path)
        if match is None or "Expect" in request.headers:
            return search(request)
        request._match_info = match
        return match.handler(request)

    async def search(request: web.Request) -> web.StreamResponse:
        try:
            return await otherwise(request)
        finally:
            match = request._match_info
            if match is not None and _is_exact(request.raw_path, match, application):
                matches[request.raw_path] = match

    return handle


def _is_exact(path: str, match: web.UrlMappingMatchInfo, application: web.Application) -> bool:
    """True if any request for this path has this match; False in a mounted application."""
    route = match.route
    return (
        route.method == "*"
        and isinstance(route.resource, PlainResource)
        and route.resource.canonical == path
        and match.apps == (application,)
        and _PLAIN.fullmatch(path) is not None
    )
