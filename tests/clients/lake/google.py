"""
Google's object store, by fake-gcs-server as a process on loopback behind a shim.

The store library puts an object at the XML address with a condition. The server supports conditions only at
its JSON address, so the shim translates these requests and forwards all others.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

from aiohttp import ClientSession, web

from tests.free_ports import free_port
from tests.waiting import LIMIT_S, wait_until

BUCKET = "acme"
_CONDITION = "x-goog-if-generation-match"
_KEPT = ("Content-Length", "ETag", "Last-Modified", "Content-Type", "Content-Range", "x-goog-generation")


class Shim:
    """A request translator. `passed` counts conditional puts."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.passed = 0

    async def answer(self, request: web.Request) -> web.Response:
        async with ClientSession(auto_decompress=False) as client:
            if request.method == "PUT":
                return await self._put(client, request)
            headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
            url = f"{self._address}{request.rel_url}"
            async with client.request(request.method, url, headers=headers) as answer:
                body = await answer.read()
                kept = {name: answer.headers[name] for name in _KEPT if name in answer.headers}
        return web.Response(status=answer.status, body=body, headers=kept)

    async def _put(self, client: ClientSession, request: web.Request) -> web.Response:
        _, bucket, name = request.path.split("/", 2)
        parameters = {"uploadType": "media", "name": name}
        if _CONDITION in request.headers:
            self.passed += 1
            parameters["ifGenerationMatch"] = request.headers[_CONDITION]
        url = f"{self._address}/upload/storage/v1/b/{bucket}/o"
        async with client.post(url, params=parameters, data=await request.read()) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status, body=await answer.read())
            made = await answer.json()
        headers = {"ETag": made["etag"], "x-goog-generation": str(made["generation"])}
        return web.Response(headers=headers)


@contextmanager
def google(program: Path, directory: Path) -> Iterator[tuple[str, Shim]]:
    """Yield the address of a store with one empty bucket, and the shim in front of it."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    words = ("-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), *words, "-external-url", address, "-public-host", f"127.0.0.1:{port}"],
            stdout=log,
            stderr=log,
        )
    try:
        _make_bucket(address)
        with _before(Shim(address)) as (way, shim):
            yield way, shim
    finally:
        process.kill()
        process.wait()


@contextmanager
def _before(shim: Shim) -> Iterator[tuple[str, Shim]]:
    """Run the shim on its own thread; yield its address."""
    begun = Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]]()

    async def serve() -> None:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", shim.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ended = asyncio.Event()
        begun.put((asyncio.get_running_loop(), ended, runner.addresses[0][1]))
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    loop, ended, port = begun.get(timeout=LIMIT_S)
    try:
        yield f"http://127.0.0.1:{port}", shim
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(timeout=LIMIT_S)


def _make_bucket(address: str) -> None:
    body = f'{{"name": "{BUCKET}"}}'.encode()

    def is_made() -> bool:
        request = urllib.request.Request(f"{address}/storage/v1/b?project=test", data=body, method="POST")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=10):
                return True
        except urllib.error.HTTPError:
            raise
        except (urllib.error.URLError, ConnectionError):
            return False

    wait_until(is_made, "the server makes its bucket")
