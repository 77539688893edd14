"""The console's page and its files, for browsers: they are no part of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from gateway.first_use import imported
from gateway.mounts import CONSOLE

Page = Callable[[web.Request], Awaitable[web.Response]]


def _page(name: str) -> Page:
    """Return a handler of `gateway.console.pages`, which is imported when a browser asks for it."""

    async def handle(request: web.Request) -> web.Response:
        pages = await imported("gateway.console.pages")
        found: web.Response = await getattr(pages, name)(request)
        return found

    return handle


CONSOLE_PAGES: Mapping[str, Page] = {
    CONSOLE: _page("without_slash"),
    CONSOLE + "/": _page("index"),
    CONSOLE + "/demo/": _page("demo_index"),
    CONSOLE + "/files/{version}/{path:.*}": _page("file"),
}
