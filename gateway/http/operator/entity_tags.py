"""
Answers that a browser keeps and asks about again: an ETag made of what is answered and of who asks, and 304 while
both are the same.

An ETag of the content cannot be older than the content, whatever changed it: a correction, a bill, a price, a role.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b

from aiohttp import web

from gateway.http.answers import JSON, Pieces
from gateway.http.encoding import json_pieces

# A browser may keep the answer, for this person alone, and asks before each use: who signed out gets 401.
_KEPT = {"Cache-Control": "private, no-cache", "Vary": "Cookie", "X-Content-Type-Options": "nosniff"}


async def tagged(
    request: web.Request, answer: Mapping[str, object], *, asker: str, secret: bytes
) -> web.Response | Pieces:
    """The answer with its ETag; 304 if the request names it. The same answer has another ETag for another `asker`."""
    pieces = await asyncio.to_thread(lambda: list(json_pieces(answer)))
    digest = blake2b(asker.encode(), key=secret[: blake2b.MAX_KEY_SIZE], digest_size=16)
    digest.update(b"\0")
    for piece in pieces:
        digest.update(piece)
    tag = f'"{digest.hexdigest()}"'
    headers = {**_KEPT, "ETag": tag}
    if tag in _named(request):
        return web.Response(status=304, headers=headers)
    return Pieces(pieces=pieces, content_type=JSON, headers=headers)


def _named(request: web.Request) -> list[str]:
    """The ETags that the request says it has."""
    fields = ",".join(request.headers.getall("If-None-Match", ()))
    return [each.strip().removeprefix("W/") for each in fields.split(",")]
