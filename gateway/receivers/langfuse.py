"""What Langfuse's clients ask for beside the address that takes their batches, and how they are refused."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.holders.receivers import ReceiverServices
from gateway.http.requests import KeyRequest, Result

# Clients look for it to check a key. It is the same for everybody: a write-only key learns nothing.
_PROJECT = {
    "id": "tollhouse",
    "name": "Tollhouse",
    "organization": {"id": "tollhouse", "name": "Tollhouse"},
    "metadata": {},
}


async def langfuse_health(request: KeyRequest[ReceiverServices, None]) -> Result:
    return {"status": "OK", "version": request.shared.version}


async def langfuse_projects(_: KeyRequest[ReceiverServices, None]) -> Result:
    return {"data": [_PROJECT]}


def langfuse_error(_: web.Request, error: Refusal, __: float) -> web.Response:
    response = answers.json_response({"error": error.type, "message": error.message}, status=error.status)
    return answers.with_retry_after(response, error)
