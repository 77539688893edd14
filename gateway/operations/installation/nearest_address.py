"""The address that a sender probably meant, as advice in the answer to a wrong path."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from urllib.parse import unquote

# words of a path -> the address that senders of such paths mean
_SIGNAL_ADDRESSES = {
    **dict.fromkeys(("traces", "trace", "spans", "span"), ("Spans", "traces")),
    **dict.fromkeys(("metrics", "metric"), ("Metrics", "metrics")),
    **dict.fromkeys(("logs", "log"), ("Log records", "logs")),
}
_OTHER_ADDRESSES = {
    "ai-telemetry": "/v1/ai-telemetry",
    "telemetry": "/v1/ai-telemetry",
    "events": "/v1/events",
    "heartbeat": "/v1/ai-control-plane/heartbeat",
    "enroll": "/v1/ai-control-plane/enroll",
    "container-metrics": "/v1/container-metrics",
}
# words in the paths of AI providers
_CALLS = frozenset(
    {
        "completions",
        "messages",
        "responses",
        "embeddings",
        "generatecontent",
        "streamgeneratecontent",
        "models",
    }
)
_BASE = (
    "set OTEL_EXPORTER_OTLP_ENDPOINT to the address of this server without a path, or "
    "OTEL_EXPORTER_OTLP_{variable}_ENDPOINT to the whole address with /v1/{signal}"
)
_EVERY_SIGNAL = (
    "OpenTelemetry's spans go to /v1/traces, metrics to /v1/metrics and log records to /v1/logs: set "
    "OTEL_EXPORTER_OTLP_ENDPOINT to the address of this server without a path. Logs of AI gateways go to "
    "/v1/ai-telemetry."
)
_SIMILARITY = 0.75
_MAX_WORDS = 8  # words at the end of a path that are compared
_MAX_WORD = 32  # characters; no longer word is compared


@lru_cache(maxsize=256)  # a sender repeats its mistake
def advice_for_path(path: str, formats: tuple[str, ...] = ()) -> str:
    """
    Return the address and the setting that a sender with this path needs. `formats` are the names of gateway
    formats.
    """
    plain = unquote(path).lower()
    if "opentelemetry.proto.collector" in plain:
        return (
            "This is a method of gRPC, which has its own port (server.grpc_listen). On this port, set the "
            "protocol to http/protobuf and send spans to /v1/traces."
        )
    words = [word for word in re.split(r"[^a-z0-9_-]+", plain) if word and len(word) <= _MAX_WORD][
        -_MAX_WORDS:
    ]
    if not words:
        return _EVERY_SIGNAL
    if _CALLS.intersection(words):
        return (
            "Tollhouse receives reports of calls and forwards no calls: keep the base URL of the provider or gateway, "
            "and send telemetry here. " + _EVERY_SIGNAL
        )
    for word in reversed(words):
        if found := _nearest(word, (*_SIGNAL_ADDRESSES, *_OTHER_ADDRESSES, *formats)):
            return _advice_for_name(found)
    return _EVERY_SIGNAL


def _nearest(word: str, names: tuple[str, ...]) -> str:
    """Return the name that is most like a word, or "". A name that only differs in its signs is the nearest."""
    plain = word.replace("_", "-")
    for name in names:
        if plain.replace("-", "") == name.replace("_", "").replace("-", ""):
            return name
    return next(iter(get_close_matches(plain, names, n=1, cutoff=_SIMILARITY)), "")


def _advice_for_name(name: str) -> str:
    if name in _SIGNAL_ADDRESSES:
        items, signal = _SIGNAL_ADDRESSES[name]
        return f"{items} go to /v1/{signal}: {_BASE.format(variable=signal.upper(), signal=signal)}."
    if name in _OTHER_ADDRESSES:
        return f"Send to {_OTHER_ADDRESSES[name]}."
    return f"Logs in this format go to /v1/ai-telemetry/{name}."
