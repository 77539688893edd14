"""Event streams as a signed-in browser reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from gateway.core.paths import OPERATOR_API
from tests.integration.operations.server import OperatorServer
from tests.waiting import limited


class Stream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def line(self) -> bytes:
        """Return the next line, or b"" at the end."""
        async with limited():
            return await self.response.content.readline()

    async def event(self) -> tuple[str, Any]:
        name = ""
        while line := await self.line():
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                return name, orjson.loads(value)
        raise EOFError

    async def ends(self) -> bool:
        async for _ in self.lines():
            pass
        return True

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield each line to the end, without its line break."""
        while line := await self.line():
            yield line.rstrip(b"\n")


@asynccontextmanager
async def listening(url: str, cookie: str, path: str = "/changes") -> AsyncIterator[Stream]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(f"{url}{OPERATOR_API}{path}", headers={"Cookie": cookie}) as response,
    ):
        stream = Stream(response)
        if response.status == 200:
            assert b"retry: 5000\n" == await stream.line()
        yield stream


async def signed_in(server: OperatorServer) -> str:
    """Sign in a viewer by link; return the cookie."""
    link = (await server.ask("POST", "/console-links", {"role": "viewer"})).payload["link"]
    answer = await server.over_http("POST", "/sessions", {"link": link.partition("#link=")[2]})
    return f"tollhouse={answer.cookies['tollhouse'].value}"
