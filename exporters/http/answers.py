"""
The meaning of an HTTP response for a delivery. Pure.

Errors contain the destination's message, but no secret that was sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from exporters.errors import DeliveryTooLarge, Misconfigured, Rejected, Retryable, SendError
from exporters.redaction import redact_secrets

_PROTOBUF = ("application/x-protobuf", "application/protobuf")
RECEIPT = "tollhouse-receipt"  # header of every Tollhouse that accepted telemetry
_REJECTED = re.compile(r"\brejected=(\d{1,9})(?:;|$)")


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    """
    A response: `headers` by lower-case name, and the beginning of the `body`.

    Use `without_secrets` before text is stored, shown or logged.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def without_secrets(self, text: str) -> str:
        return redact_secrets(text, self.secrets)


def delivery_error(answer: HttpAnswer, *, now: float, may_be_accepted: bool = False) -> SendError | None:
    """
    Return the error that a response means for a delivery, or None if the request was accepted.

    `may_be_accepted`: the request may have been accepted even after a 5xx other than 503.
    """
    status = answer.status
    if 200 <= status < 300:
        return None
    message = " ".join(filter(None, (str(status), server_message(answer))))
    if 300 <= status < 400:
        message = f"{message} (Tollhouse does not follow redirects, because the key would be sent along)"
    wait_s = retry_after_s(answer.headers.get("retry-after"), now=now)
    if wait_s is None and status == 403:
        wait_s = _rate_limit_wait_s(answer.headers, now=now)
    if status in (401, 403, 404, 405, 415, 501) or status < 400:
        misconfigured = Misconfigured(message, status=status, retry_after_s=wait_s)
        misconfigured.type = _error_type(answer)
        return misconfigured
    if status in (408, 429) or status >= 500:
        return Retryable(
            message,
            status=status,
            retry_after_s=wait_s,
            ambiguous=status in (502, 504) or (may_be_accepted and status >= 500 and status != 503),
        )
    return DeliveryTooLarge(message, status=status) if status == 413 else Rejected(message, status=status)


def _rate_limit_wait_s(headers: Mapping[str, str], *, now: float) -> float | None:
    if headers.get("x-ratelimit-remaining", "").strip() != "0":
        return None
    reset = headers.get("x-ratelimit-reset", "").strip()
    return max(0.0, float(reset) - now) if reset.isascii() and reset.isdigit() else 0.0


def rejected_count_in_receipt(answer: HttpAnswer) -> int:
    """Return how many records another Tollhouse's receipt states as rejected, 0 without a receipt."""
    match = _REJECTED.search(answer.headers.get(RECEIPT, ""))
    return int(match[1]) if match else 0


def check_not_web_page(answer: HttpAnswer) -> None:
    """
    Raise an error if the response is a web page, such as a sign-in page, because then nothing was stored.
    """
    if answer.media_type == "text/html" and answer.body.lstrip().startswith(b"<"):
        raise Misconfigured(
            f"{answer.status}, but the response is a web page: the address is wrong, or a proxy "
            "responds in its place",
            status=answer.status,
        )


def server_message(answer: HttpAnswer) -> str:
    return answer.without_secrets(_decode_message(answer))


def retry_after_s(value: str | None, *, now: float) -> float | None:
    """Return the seconds to wait that a Retry-After value states, as seconds or as a date."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:  # the date was sent as "-0000", which means UTC
        date = date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now)


def _decode_message(answer: HttpAnswer) -> str:
    if answer.media_type in _PROTOBUF:
        # only a protobuf response needs the library
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.trace.v1.trace_pb2 import Status

        # google.rpc.Status may not be installed; both have the message in field 2
        try:
            return str(Status.FromString(answer.body).message)
        except DecodeError:
            return ""
    text = answer.body.decode("utf-8", "replace")
    try:
        return _message_in_json(orjson.loads(answer.body)) or text
    except orjson.JSONDecodeError:
        return text


def _error_type(answer: HttpAnswer) -> str | None:
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return None
    error = document.get("error") if isinstance(document, dict) else None
    type = error.get("type") if isinstance(error, dict) else None
    return type if isinstance(type, str) else None


def _message_in_json(document: Any) -> str | None:
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    for message in (inner, document.get("message")):
        if isinstance(message, str) and message:
            return message
    return None
