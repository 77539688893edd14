"""
Serves the console: one page and its files, to anybody who reaches the operator's side; the data needs a sign-in.
"""

from __future__ import annotations

from aiohttp import web

from gateway.console.assets import console
from gateway.mounts import CONSOLE

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


async def index(_: web.Request) -> web.Response:
    """The page. Never kept, so a new release is seen at once."""
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=console().index, content_type="text/html", charset="utf-8", headers=headers)


async def demo_index(_: web.Request) -> web.Response:
    """The page of a demo month: the same files, one folder below."""
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    body = console().index.replace(b'"files/', b'"../files/')
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


async def without_slash(_: web.Request) -> web.Response:
    """Its files have relative addresses, which need the slash. Relative itself, for a proxy's path before it."""
    location = CONSOLE.rpartition("/")[2] + "/"
    return web.Response(status=308, headers={"Location": location})


async def file(request: web.Request) -> web.Response:
    """A file of the page; kept for ever, as its path changes with its content. 404 for one of another release."""
    found = console().assets.get(request.match_info["path"])
    if found is None or request.match_info["version"] != console().version:
        return web.Response(status=404, text="no such file", headers=_HEADERS)
    headers = {**_HEADERS, "Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    body = found.body
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"], body = "gzip", found.packed
    return web.Response(body=body, content_type=found.media, charset="utf-8", headers=headers)
