"""Langfuse events for tests that build batches."""

from __future__ import annotations

import json
from typing import Any


def event(type: str, /, **body: Any) -> dict[str, Any]:
    return {"id": f"{type}:{body.get('id')}", "type": type, "timestamp": "2026-11-20T07:15:06Z", "body": body}


def create(own_id: str = "g-1", **more: Any) -> dict[str, Any]:
    """Create the event that the SDK sends when a call begins, without usage or end."""
    begun = {"traceId": "t-1", "startTime": "2026-11-20T07:15:06.148454Z", "model": "gpt-4o-mini"}
    return event("generation-create", id=own_id, **(begun | more))


def update(own_id: str = "g-1", **more: Any) -> dict[str, Any]:
    """Create the event that the SDK sends after the answer."""
    ended = {
        "endTime": "2026-11-20T07:15:07.352454Z",
        "usageDetails": {"input": 10, "output": 4},
        "output": "CANARY",
    }
    return event("generation-update", id=own_id, **(ended | more))


def trace(own_id: str = "t-1", **more: Any) -> dict[str, Any]:
    said = {"userId": "u-1", "sessionId": "s-1", "tags": ["env:prod"], "input": "CANARY"}
    return event("trace-create", id=own_id, **(said | more))


def batch(*events: Any) -> bytes:
    return json.dumps({"batch": events, "metadata": {"sdk_name": "python"}}).encode()
