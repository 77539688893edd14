"""The console's page and its files, for browsers: they are no part of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from gateway.console import pages
from gateway.mounts import CONSOLE

CONSOLE_PAGES: Mapping[str, Callable[[web.Request], Awaitable[web.Response]]] = {
    CONSOLE: pages.without_slash,
    CONSOLE + "/": pages.index,
    CONSOLE + "/demo/": pages.demo_index,
    CONSOLE + "/files/{version}/{path:.*}": pages.file,
}
