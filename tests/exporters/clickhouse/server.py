"""An HTTP server that responds like ClickHouse, stores rows and tokens, and fails when a test says so."""

from __future__ import annotations

import re
import socket
import socketserver
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from select import select
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporters.clickhouse.table import COLUMN_TYPES

REFUSED: Final = {"answer": None, "password": (403, 516), "column": (500, 16), "busy": (500, 202)}
ENGINE: Final = "ReplacingMergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"


class Table:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.inserts: list[tuple[str, bytes]] = []  # the deduplication token and the body of each insert
        self.asked: list[dict[str, str]] = []
        self.users: set[str | None] = set()
        # the password and the certificate header of each request that arrived
        self.signed: set[tuple[str | None, str | None]] = set()
        self.columns = dict(COLUMN_TYPES)
        self.engine = ENGINE
        self.forgets = False  # whether the server has forgotten the deduplication tokens of earlier inserts
        self.fails = ""  # how the next insert fails, as one of REFUSED; "" for success

    async def answer(self, request: web.Request) -> web.Response:
        query = request.query["query"]
        self.asked.append(dict(request.query))
        self.users.add(request.headers.get("X-ClickHouse-User"))
        headers = ("X-ClickHouse-Key", "X-ClickHouse-SSL-Certificate-Auth")
        self.signed.add((request.headers.get(headers[0]), request.headers.get(headers[1])))
        if query.startswith("INSERT"):
            return self._insert(request, request.query["insert_deduplication_token"], await request.read())
        if "system.columns" in query:
            return web.Response(text="".join(f"{name}\t{type}\n" for name, type in self.columns.items()))
        if "system.tables" in query:
            return web.Response(text=self.engine + "\n")
        if "min(number)" in query:
            return web.Response(
                text="".join(f"{orjson.dumps(sums).decode()}\n" for sums in self._sums(query))
            )
        first, last = map(int, re.findall(r"BETWEEN (\d+) AND (\d+)", query)[0])
        found = {(row["number"], row["id"]) for row in self.rows if first <= row["number"] <= last}
        return web.Response(text="".join(f"{number}\t{id}\n" for number, id in found))

    def _sums(self, query: str) -> list[list[object]]:
        """Sum rows as ClickHouse does: all rows, or the rows of a range, each distinct row once."""
        bounds = re.search(
            r"number BETWEEN (\d+) AND (\d+).*BETWEEN '(.*)' AND '(.*)'.*intDiv\(number, (\d+)\)", query
        )
        if bounds is None:
            numbers = [row["number"] for row in self.rows] or [0]
            return [[min(numbers), max(numbers), len(self.rows)]]
        first, last, since, until, step = bounds.groups()
        groups: dict[tuple[str, int], dict[tuple[int, str], dict[str, Any]]] = {}
        for row in self.rows:
            number, edition = row["number"], row["edition"]
            if int(first) <= number <= int(last) and since <= row["at"][:10] <= until:
                groups.setdefault((edition, number // int(step)), {})[number, row["id"]] = row
        return [_sum(edition, list(rows.values())) for (edition, _), rows in sorted(groups.items())]

    def _insert(self, request: web.Request, token: str, body: bytes) -> web.Response:
        fails, self.fails = self.fails, ""
        refusal = REFUSED.get(fails)
        if refusal is not None:
            status, code = refusal
            return web.Response(status=status, text=f"Code: {code}. DB::Exception: no")
        if self.forgets or token not in [known for known, _ in self.inserts]:
            self.rows += [orjson.loads(line) for line in body.splitlines()]
        self.inserts.append((token, body))
        if fails:  # the server stores the rows, but the client gets no answer
            assert request.transport is not None
            request.transport.abort()
        return web.Response()


def _sum(edition: str, rows: list[dict[str, Any]]) -> list[object]:
    numbers = {row["number"] for row in rows}
    counted = [row for row in rows if row["counted"]]
    spend = sum((Decimal(str(row.get("spend") or 0)) for row in counted), Decimal())
    tokens = [sum(row.get(name) or 0 for row in counted) for name in ("input_tokens", "output_tokens")]
    calls = sum(row["calls"] for row in counted)
    return [edition, min(numbers), max(numbers), len(rows), len(numbers), calls, str(spend), *tokens]


@asynccontextmanager
async def served(table: Table, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Yield the address of a database. With `tls`, a proxy ends TLS and sends alerts as OpenSSL does."""
    app = web.Application()
    app.router.add_post("/", table.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        if tls is None:
            yield f"http://127.0.0.1:{server.port}/costs"
            return
        with TlsFront(server.port, tls) as front:
            yield f"https://127.0.0.1:{front.server_address[1]}/costs"


class TlsFront(socketserver.ThreadingTCPServer):
    """A TLS proxy. asyncio's own server drops a connection without an alert if it rejects the certificate."""

    daemon_threads = True

    def __init__(self, port: int | None, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self._port = port
        self._tls = tls

    def __enter__(self) -> TlsFront:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Copy bytes in both directions until either side ends."""
        try:
            with (
                self._tls.wrap_socket(request, server_side=True) as client,
                socket.create_connection(("127.0.0.1", self._port or 0)) as server,
            ):
                while _passed(client, server):
                    pass
        except OSError:  # an ssl.SSLError is an OSError as well; the client has then received an alert
            request.close()


def _passed(client: ssl.SSLSocket, server: socket.socket) -> bool:
    """Copy one piece of data. Return False at the end of the stream."""
    ready = [client] if client.pending() else select([client, server], [], [])[0]
    for one in ready:
        piece = one.recv(65536)
        (server if one is client else client).sendall(piece)
        if not piece:
            return False
    return True
