"""
LiteLLM drops a batch after any answer other than 2xx and never repeats it. So a bad event must not
affect the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spool.record import Inference
from tests.integration.conftest import Serving
from tests.rounds import part

CASES = Path(__file__).parents[2] / "cases" / "gateway"
EVENT: dict[str, Any] = json.loads((CASES / "litellm/slp-batch-array.json").read_bytes())[0]
ENDPOINTS = ("/v1/ai-telemetry/litellm", "/v1/ai-telemetry")
BROKEN = 300


def batch() -> list[dict[str, Any]]:
    """Return a batch of LiteLLM's usual size, with one token count that is not a number."""
    events = [EVENT | {"id": f"chatcmpl-{number:024d}"} for number in range(512)]
    events[BROKEN] = events[BROKEN] | {"prompt_tokens": "many"}
    return events


@pytest.mark.parametrize(
    ("form", "endpoint"),
    part([(form, endpoint) for form in ("array", "lines") for endpoint in ENDPOINTS], every=3),
)
async def test_one_broken_event_of_512(serving: Serving, endpoint: str, form: str) -> None:
    """
    A batch of 512 events with one broken event gets a 2xx with 511 records and one rejected item with its
    position and reason. A repeat of the batch adds nothing.
    """
    events = batch()
    body = json.dumps(events) if form == "array" else "\n".join(json.dumps(event) for event in events)
    for _ in range(2):
        answer = await serving.send(endpoint, body.encode())
        said = json.loads(answer.body)
        assert answer.status == 200
        assert said["format"] == "litellm"
        assert said["accepted"] == 511
        assert said["ignored"] == 0
        assert [{"item": BROKEN, "reason": "malformed", "message": "prompt_tokens is not a number"}] == said[
            "rejected"
        ]
        assert "records=511; ignored=0; rejected=1" in answer.headers["Tollhouse-Receipt"]
    kept = [record.request_id for record in await serving.records() if isinstance(record, Inference)]
    assert sorted(event["id"] for number, event in enumerate(events) if number != BROKEN) == sorted(
        map(str, kept)
    )
