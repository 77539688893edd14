"""OTLP that came as a file or under another format's name: which signal it is, and several requests as one."""

from __future__ import annotations

from typing import Final

from gateway.errors import BadPayload
from gateway.normalise.formats import payload
from gateway.normalise.formats.recognise import recognise

SIGNALS: Final = ("otlp/traces", "otlp/metrics", "otlp/logs")
_RESOURCES: Final = {
    "otlp/traces": ("resourceSpans", "resource_spans"),
    "otlp/metrics": ("resourceMetrics", "resource_metrics"),
    "otlp/logs": ("resourceLogs", "resource_logs"),
}
_NEAR: Final = 4096  # an OTLP request has no other member that its name could stand behind


def shown(body: bytes) -> str | None:
    """The signal of a JSON body, whatever it was called."""
    start = payload.unmarked(body).lstrip()
    if start[:1] not in (b"{", b"[") or b"resource" not in start[:_NEAR]:
        return None
    found = recognise(body)
    return found if found in SIGNALS else None


def is_json(body: bytes) -> bool:
    """Whether a body is JSON; protobuf may begin with what JSON takes for a blank line and a brace."""
    text = payload.unmarked(body)
    if text.lstrip()[:1] not in (b"{", b"["):
        return False
    return text[:1] != b"\n" or recognise(body) in SIGNALS


def joined(named: str, body: bytes) -> bytes:
    """
    The requests of a JSON body as one: collectors write one a line, people put them into arrays.

    BadPayload when one of them is of another signal; what is no JSON at all is left for the decoder to refuse.
    """
    text = payload.unmarked(body)
    try:
        requests = list(payload.items(text))
    except BadPayload:
        return text
    if len(requests) == 1 and text.lstrip()[:1] == b"{":
        return text
    resources: list[payload.Raw] = []
    for index, request in enumerate(requests):
        members = payload.peek(request)
        raw = next((members[name] for name in _RESOURCES[named] if name in members), None)
        if raw is None and (members or bytes(request) != b"{}"):
            raise BadPayload(f"request {index} is not of the signal {named}: send each signal by itself")
        resources += payload.array(raw) if raw is not None else ()
    return b'{"%s":[%s]}' % (_RESOURCES[named][0].encode(), b",".join(map(bytes, resources)))
