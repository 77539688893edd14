"""Assistants over HTTP: one message a request, with a key."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from gateway.http import answers
from gateway.http.requests import KeyRequest, Result
from gateway.mcp.protocol import answer
from gateway.mcp.tool import Asking
from spool.registry.roles import EVERYTHING


async def ask_mcp(request: KeyRequest[bytes]) -> Result:
    """Answer one message; a notification gets 202 without a body."""
    operators = request.services.operators
    asking = Asking(
        services=operators,
        actor=request.actor,
        rights=EVERYTHING,
        principal=f"key {request.bearer.name}",
        count=partial(operators.assistants.tool_calls.count, request.bearer.name),
        charge=partial(operators.assistants.tool_calls.charge, request.bearer.name),
        told=request.receivers.metrics.tool_called,
    )
    reply = await answer(request.take_body(), asking, request.http.headers)
    return (
        web.Response(status=reply.status)
        if reply.body is None
        else answers.respond(reply.body, status=reply.status)
    )
