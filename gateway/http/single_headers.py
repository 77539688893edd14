"""Headers that a request states once: of two values one would count, and another program may read the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gateway.service.errors import Refusal

# Every header that is read here, but for those that are lists by their definition, such as X-Forwarded-For.
SINGLE = frozenset(
    {
        "authorization", "x-api-key", "x-amz-firehose-access-key", "x-amz-firehose-request-id", "helicone-signature",
        "x-csrf-token", "x-tollhouse-as", "x-device-id", "idempotency-key", "host", "origin", "sec-fetch-site",
        "content-length", "content-type", "content-encoding", "transfer-encoding", "mcp-protocol-version",
        "mcp-method", "mcp-name", "mcp-session-id",
    }
)  # fmt: skip


def check_single(headers: Iterable[tuple[str, object]]) -> None:
    """Refusal 400 if a request states one of these headers twice, in whatever case, even with equal values."""
    lower = [name.lower() for name, _ in headers]
    if len(set(lower)) == len(lower):
        return
    repeated = [name for name, count in Counter(lower).items() if count > 1 and name in SINGLE]
    if repeated:
        raise Refusal(400, "repeated_header", f"Send the header {repeated[0]} once.")
