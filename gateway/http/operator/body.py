"""What comes in and goes out of the operator API as JSON, its errors included."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.http.answers import uncached_json
from gateway.http.error_table import operator_refusal_of
from gateway.money.allocation.faults import InvalidDefinition
from gateway.service.errors import Refusal
from spool.errors import SpoolError

_log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_BODY_BYTES = 256 * 1024


class RequestBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body: a JSON object whose unknown fields are errors."""


async def read_body(request: web.Request, kind: type[T]) -> T:
    """The request's JSON as its type. Refusal 400 names the field that is wrong."""
    if request.content_type != "application/json":
        raise Refusal(415, "unsupported_media_type", "send the body as application/json")
    try:
        return msgspec.json.decode(await read_bounded(request), type=kind)
    except UnicodeDecodeError:
        raise Refusal(
            400, "bad_payload", "the body is not what this address takes: it is not UTF-8"
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal(400, "bad_payload", f"the body is not what this address takes: {error}") from None


async def read_bounded(request: web.Request) -> bytes:
    """The body, at most MAX_BODY_BYTES: the limit of the application around this one is for other bodies."""
    found = bytearray()
    async for piece in request.content.iter_any():
        found += piece
        if len(found) > MAX_BODY_BYTES:
            raise Refusal(413, "too_large", f"a body has at most {MAX_BODY_BYTES // 1024} KiB here")
    return bytes(found)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every failure as {"error": {"type", "message"}}; an unexpected one is logged and answered 500."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return _refused(refusal)
    except InvalidDefinition as error:
        faults = [fault._asdict() for fault in error.faults]
        told = {"type": "invalid_definition", "message": f"the definition is not valid: {error}"}
        return uncached_json({"error": told, "errors": faults}, 422)
    except SpoolError as error:
        return _refused(operator_refusal_of(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        type, message = _HTTP.get(error.status, ("refused", error.reason))
        return _error(error.status, type, message, None, {"Allow": error.headers.get("Allow", "")})
    except Exception:  # noqa: BLE001 - the request boundary: one request fails, the process goes on
        _log.exception("an operator request failed", extra={"action": "operator_request_failed"})
        return _error(500, "internal", "this request failed inside Tollhouse; its log says why")


_HTTP = {
    404: ("not_found", "there is nothing at this path"),
    405: ("method_not_allowed", "this path does not take this method"),
}


def _refused(refusal: Refusal) -> web.Response:
    return _error(refusal.status, refusal.type, refusal.message, refusal.retry_after_s)


def _error(
    status: int,
    type: str,
    message: str,
    retry_after_s: int | None = None,
    headers: dict[str, Any] | None = None,
) -> web.Response:
    extra = {name: text for name, text in (headers or {}).items() if text}
    if retry_after_s is not None:
        extra["Retry-After"] = str(retry_after_s)
    return uncached_json({"error": {"type": type, "message": message}}, status, extra)
