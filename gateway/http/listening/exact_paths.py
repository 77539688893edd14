"""
The way of a request to its handler, without the search of aiohttp's router where there is nothing to search
for.

A path without parameters that takes every method is found by its text. What is behind it is the same match
that the router makes, except that it is made once and not for each request: 4 % of the loop's time where
requests are small.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
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
    What handles the requests of a frozen application as `otherwise`, its own way, does; that has all other
    paths.

    So do requests with `Expect`, and an application with middlewares of its own.
    """
    matches = {} if application.middlewares else _matches(application)

    def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
        match = matches.get(request.raw_path)
        if match is None or "Expect" in request.headers:
            return otherwise(request)
        request._match_info = match
        return match.handler(request)

    return handle


def _matches(application: web.Application) -> Mapping[str, web.UrlMappingMatchInfo]:
    """What the router finds for each path that is one text and takes every method."""
    found: dict[str, web.UrlMappingMatchInfo] = {}
    # not its routes: those of mounted applications are among them
    for resource in application.router.resources():
        if not isinstance(resource, PlainResource) or not _PLAIN.fullmatch(resource.canonical):
            continue
        for route in resource:
            if route.method == "*":
                match = web.UrlMappingMatchInfo({}, route)
                match.add_app(application)
                match.freeze()
                found.setdefault(resource.canonical, match)
    return found
