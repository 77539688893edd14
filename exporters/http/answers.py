"""
What an answer means for the delivery: pure, from status, headers and the beginning of the body.

The destination's own message is kept, without any secret that was sent.
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
from exporters.redaction import redact

_PROTOBUF = ("application/x-protobuf", "application/protobuf")
RECEIPT = "tollhouse-receipt"  # a header that every Tollhouse adds to what it accepted
_REJECTED = re.compile(r"\brejected=(\d{1,9})(?:;|$)")


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    """
    `headers` by lower-case name; `body` is cut at what the client reads. `secrets` were sent: no text of the answer
    is stored, shown or logged but by `without_secrets`.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def without_secrets(self, text: str) -> str:
        return redact(text, self.secrets)


def problem(answer: HttpAnswer, *, now: float, may_be_taken: bool = False) -> SendError | None:
    """
    Why a delivery did not arrive; None when it did.

    `may_be_taken`: also what is answered with a 5xx. A 503 says that it was not even tried.
    """
    status = answer.status
    if 200 <= status < 300:
        return None
    message = " ".join(filter(None, (str(status), words(answer))))
    if 300 <= status < 400:
        message = f"{message} (a redirect; it is not followed, because the key would go along)"
    wait_s = retry_after_s(answer.headers.get("retry-after"), now=now)
    if wait_s is None and status == 403:
        wait_s = _used_up_s(answer.headers, now=now)
    if status in (401, 403, 404, 405, 415, 501) or status < 400:
        misconfigured = Misconfigured(message, status=status, retry_after_s=wait_s)
        misconfigured.type = _type_in(answer)
        return misconfigured
    if status in (408, 429) or status >= 500:
        return Retryable(
            message,
            status=status,
            retry_after_s=wait_s,
            ambiguous=status in (502, 504) or (may_be_taken and status >= 500 and status != 503),
        )
    return DeliveryTooLarge(message, status=status) if status == 413 else Rejected(message, status=status)


def _used_up_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds until there may be requests again, where a limit is used up, as GitHub says it; None where none is."""
    if headers.get("x-ratelimit-remaining", "").strip() != "0":
        return None
    reset = headers.get("x-ratelimit-reset", "").strip()
    return max(0.0, float(reset) - now) if reset.isascii() and reset.isdigit() else 0.0


def rejected_by_receipt(answer: HttpAnswer) -> int:
    """Return how many items another Tollhouse rejected; 0 for an answer without its receipt."""
    found = _REJECTED.search(answer.headers.get(RECEIPT, ""))
    return int(found[1]) if found else 0


def refuse_page(answer: HttpAnswer) -> None:
    """Raise Misconfigured if a web page answers in place of an API, such as a sign-in page: it accepts nothing."""
    if answer.media_type == "text/html" and answer.body.lstrip().startswith(b"<"):
        raise Misconfigured(
            f"{answer.status}, but a web page answers: the address is wrong, or a proxy answers in its place",
            status=answer.status,
        )


def words(answer: HttpAnswer) -> str:
    """The destination's own message, in one line."""
    return answer.without_secrets(_message(answer))


def retry_after_s(value: str | None, *, now: float) -> float | None:
    """Seconds, or a date as seconds from now; None when it is neither."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:  # "-0000": the time is UTC all the same
        date = date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now)


def _message(answer: HttpAnswer) -> str:
    if answer.media_type in _PROTOBUF:
        # Imported here: commands import this module, and only an answer in protobuf needs the library.
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.trace.v1.trace_pb2 import Status

        # google.rpc.Status and a span's status both have the message as field 2; only the latter is
        # installed.
        try:
            return str(Status.FromString(answer.body).message)
        except DecodeError:
            return ""
    text = answer.body.decode("utf-8", "replace")
    try:
        return _message_in(orjson.loads(answer.body)) or text
    except orjson.JSONDecodeError:
        return text


def _type_in(answer: HttpAnswer) -> str | None:
    """Read the type in `{"error": {"type"}}`."""
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return None
    error = document.get("error") if isinstance(document, dict) else None
    type = error.get("type") if isinstance(error, dict) else None
    return type if isinstance(type, str) else None


def _message_in(document: Any) -> str | None:
    """`{"error": {"message"}}`, `{"error": "..."}` or `{"message"}`."""
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    for message in (inner, document.get("message")):
        if isinstance(message, str) and message:
            return message
    return None
