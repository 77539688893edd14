"""
Requests that no client would send, to every address, made from the OpenAPI document and the cases, then mutated.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway.normalise.formats.list import FORMAT_NAMES

CASES = Path(__file__).parents[2] / "cases"
TIMEOUT_S = 30.0  # limit for a response on a busy machine
SOON_S = 0.2
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")

_WORDS = [
    "",
    "x",
    "traces",
    "litellm",
    "allocation",
    "external",
    "sum",
    "0",
    "-1",
    "%00",
    "..",
    "é",
    "a" * 3000,
    "💥",
    "null",
]
_VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**25, -(2**63), 2**63, float("nan"), float("inf"), "", "x", "9" * 400, "\ud800",
    "\x00", "2026-11-20T10:00:00Z", [], {}, [[]], [None], {"": ""}, {"a": {"b": [1]}}, "{}", "[]", "x" * 70_000,
]  # fmt: skip
_HEADERS = [
    "X-Device-Id",
    "Idempotency-Key",
    "ce-specversion",
    "ce-id",
    "Origin",
    "Cookie",
    "X-Amz-Firehose-Access-Key",
]
_CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
_TYPES = [
    "application/json", "application/x-protobuf", "text/plain", "application/cloudevents+json",
    "application/cloudevents-batch+json", "application/x-ndjson", "multipart/form-data; boundary=x", "", "é/\x7f",
]  # fmt: skip


class Fuzzer:
    """Requests of one seed, which decides every random choice."""

    def __init__(self, rng: random.Random, key: str, document: dict[str, Any]) -> None:
        self._rng = rng
        self._key = key
        self._operations = [
            (method.upper(), path)
            for path, methods in sorted(document["paths"].items())
            for method in sorted(methods)
        ]
        self._for_keys = [
            (method, path) for method, path in self._operations if not path.startswith("/console")
        ]
        payloads = [
            path for path in sorted(CASES.rglob("*.*json")) if not path.name.endswith(".expected.json")
        ]
        self.bodies = [path.read_bytes() for path in payloads]

    def connection(self) -> tuple[bytes, bool]:
        """
        Return the bytes of one connection, and whether they are complete. Complete requests must be answered.
        """
        rng = self._rng
        sent = b"".join(self.request() for _ in range(rng.choice([0, 0, 0, 1, 3]))) + self.request(
            "Connection: close"
        )
        if rng.random() < 0.1:
            return sent[: rng.randrange(len(sent))], False
        if rng.random() < 0.05:
            return self.mutated(sent), False
        return sent, True

    def request(self, *more: str) -> bytes:
        operations = self._for_keys if self._rng.random() < 0.85 else self._operations
        method, path = self._rng.choice(operations)
        if self._rng.random() < 0.05:
            method = self._rng.choice(["PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "FUZZ"])
        words = re.sub(r"\{[^}]*\}", lambda _: quote(self._word(), safe="%"), path)
        if self._rng.random() < 0.2:
            words += f"?{quote(self._rng.choice(_WORDS))}={quote(self._rng.choice(_WORDS))}&limit=-1"
        body, coding = self._coded(self.body())
        lines = [f"{method} {words} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {self._type()}"]
        if coding:
            lines.append(f"Content-Encoding: {coding}")
        if self._rng.random() < 0.9:
            lines.append(f"Authorization: {self._key}")
        if self._rng.random() < 0.1:
            lines.append(f"{self._rng.choice(_HEADERS)}: {self._rng.choice(['1.0', 'x', 'a' * 5000])}")
        if self._rng.random() < 0.05:
            lines.append("Expect: 100-continue")
        if self._rng.random() < 0.1:
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        else:
            lines.append(f"Content-Length: {len(body)}")
        lines += more
        return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body

    def _type(self) -> str:
        return _TYPES[0] if self._rng.random() < 0.6 else self._rng.choice(_TYPES)

    def _word(self) -> str:
        return self._rng.choice(FORMAT_NAMES if self._rng.random() < 0.6 else _WORDS)

    def body(self) -> bytes:
        """Return a mutated case or mutated JSON."""
        chosen = self._rng.choice(
            [*self._rng.sample(self.bodies, 8), b"{}", b"[]", b"", b'{"records": [{}]}']
        )
        drawn = self._rng.random()
        if drawn < 0.25:
            return chosen
        return self._mutated_json(chosen) if drawn < 0.75 else self.mutated(chosen)

    def _mutated_json(self, body: bytes) -> bytes:
        """Change types and sizes of values; remove, double or rename members."""
        try:
            tree = json.loads(body)
        except ValueError:
            return self.mutated(body)
        for _ in range(self._rng.randint(1, 6)):
            tree = self._changed(tree)
        return json.dumps(tree).encode()

    def _changed(self, tree: Any) -> Any:
        rng = self._rng
        if rng.random() < 0.15 or not isinstance(tree, list | dict) or not tree:
            return rng.choice(_VALUES)
        if isinstance(tree, list):
            place = rng.randrange(len(tree))
            return [*tree[:place], self._changed(tree[place]), *tree[place + (rng.random() < 0.9) :]]
        name = rng.choice(sorted(tree))
        changed = {**tree, name: self._changed(tree[name])}
        if rng.random() < 0.1:
            changed[rng.choice(_WORDS)] = changed.pop(name)
        return changed

    def mutated(self, body: bytes) -> bytes:
        """Change, remove, insert or double bytes."""
        rng, text = self._rng, bytearray(body)
        for _ in range(rng.randint(1, 8)):
            place = rng.randrange(len(text) + 1)
            match rng.randrange(5):
                case 0:
                    text[place:place] = rng.randbytes(rng.randint(1, 9))
                case 1:
                    del text[place : place + rng.randint(1, 40)]
                case 2:
                    text[place : place + 1] = bytes([rng.randrange(256)])
                case 3:
                    text[place:place] = text[: rng.randint(1, 400)]
                case _:
                    text[place:place] = rng.choice(
                        [b"{", b"]", b'"', b"\\", b"NaN", b"\xff", b"\x00", b"\n", b"[" * 300]
                    )
        return bytes(text)

    def _coded(self, body: bytes) -> tuple[bytes, str]:
        """Compress the body, or only claim to."""
        rng = self._rng
        if rng.random() < 0.7:
            return body, ""
        coding = rng.choice(["gzip", "gzip", "deflate", "zstd", "br"])
        if coding in _CODINGS and rng.random() < 0.8:
            body = _CODINGS[coding](body)
        return (self.mutated(body) if rng.random() < 0.3 else body), coding

    def frames(self) -> bytes:
        """
        Return HTTP/2 frames of any type, length and content after a valid preface, which no gRPC client sends.
        """
        rng = self._rng
        sent = (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")
            if rng.random() < 0.9
            else rng.randbytes(30)
        )
        for _ in range(rng.randint(1, 12)):
            payload = rng.randbytes(rng.choice([0, 1, 4, 8, 9, 200]))
            sent += _frame(
                rng.randrange(12), rng.randrange(256), rng.choice([0, 1, 2, 3, 2**31 - 1]), payload
            )
        return sent


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def statuses(address: tuple[str, int], sent: bytes, *, is_whole: bool) -> Sequence[int]:
    """
    Return the response statuses until the server closes. Of an incomplete request, return those that arrive soon.

    Raises TimeoutError if a complete request is not answered.
    """
    answer = b""
    with socket.create_connection(address, timeout=TIMEOUT_S if is_whole else SOON_S) as connection:
        try:
            connection.sendall(sent)
            while piece := connection.recv(65536):
                answer += piece
        # a server may refuse a request without reading the rest of it, and then close the connection
        except ConnectionError:
            pass
        except TimeoutError:
            if is_whole:
                raise
    return [int(status) for status in STATUS.findall(answer)]
