"""Raw HTTP over sockets, for requests that client libraries refuse to send."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tests.waiting import limited


class RawAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def talk(port: int, data: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes and return everything received until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        if half_close:
            writer.write_eof()
        async with limited():
            return await reader.read()
    finally:
        writer.close()


def parsed(data: bytes) -> RawAnswer:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return RawAnswer(int(first.split()[1]), headers, body)


def post(path: str, body: bytes, *headers: str, close: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: tollhouse", f"Content-Length: {len(body)}", *headers]
    if close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(path: str, chunks: list[bytes], *headers: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: tollhouse",
        "Transfer-Encoding: chunked",
        "Connection: close",
        *headers,
    ]
    data = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data + b"0\r\n\r\n"
