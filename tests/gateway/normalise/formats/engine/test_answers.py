"""
Responses that each sender expects (of Tollhouse itself, Langfuse, Firehose and OpenMeter),
and Helicone's signature.
"""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.core.errors import Refusal
from gateway.normalise.formats.engine import driver
from gateway.normalise.formats.helicone import is_signed_by_helicone
from gateway.operations.receivers.ai_telemetry import langfuse_error_response
from tests.gateway.normalise.formats.langfuse.events import batch, create, trace, update
from tests.gateway.normalise.formats.payloads import cases, read

NOW = 1_763_632_810.5


def said(format: str, body: bytes) -> tuple[int, Any]:
    answering = driver.answer_to_payload(format, body, read(format, body), now=NOW)
    while True:
        try:
            next(answering)
        except StopIteration as done:
            answer = done.value
            break
    return answer.status, json.loads(answer.body) if answer.body else None


def body_of(format: str, name: str) -> bytes:
    return next(one.body for one in cases(format) if one.name == name)


def test_the_server_says_what_it_took_and_what_not() -> None:
    """The response lists each rejected item with its position, a reason and a field."""
    event = json.loads(body_of("litellm", "slp-batch-array"))[0]
    body = json.dumps([event, None, event | {"prompt_tokens": -1}]).encode()
    assert (200, {
        "format": "litellm", "accepted": 1, "ignored": 1,
        "rejected": [{"item": 2, "reason": "implausible", "message": "prompt_tokens is negative"}],
    }) == said("litellm", body)  # fmt: skip


def test_a_payload_of_bad_items_only_is_400() -> None:
    """If all items are rejected, the response is 400, and its message explains the first rejected item."""
    status, words = said("kong", b"[3, 4]")
    assert status == 400
    assert words["error"]["type"] == "bad_payload"
    assert "(0)" in words["error"]["message"]


def test_line_with_one_valid_call_is_accepted() -> None:
    """
    A line with one valid call gets 2xx, because Kong would repeat a refused line, together with the valid call.
    """
    line = json.loads(body_of("kong", "http-log-bedrock-unpriced"))
    good = line["ai"]["proxy"]
    line["ai"] = {
        "proxy": good,
        "ai-llm-as-judge": good | {"usage": good["usage"] | {"prompt_tokens": "many"}},
    }
    status, words = said("kong", json.dumps(line).encode())
    assert status == 200
    assert words["accepted"] == 1
    assert [one["reason"] for one in words["rejected"]] == ["malformed"]


def test_a_payload_of_impossible_figures_only_was_read() -> None:
    """
    If all items of a payload have impossible figures, the response lists them as rejected, and the sender
    need not repeat them. OTLP senders get the same.
    """
    event = json.loads(body_of("litellm", "slp-batch-array"))[0]
    status, words = said("litellm", json.dumps(event | {"prompt_tokens": -1}).encode())
    assert status == 200
    assert words["accepted"] == 0
    assert [reject["reason"] for reject in words["rejected"]] == ["implausible"]


def test_langfuse_hears_of_every_event() -> None:
    """
    The response is 207 and lists each event by the sender's id: 201 means accepted or ignored, 400 means rejected.
    """
    body = batch(trace(), create(), update(usageDetails={"input": -1}), "text")
    status, words = said("langfuse", body)
    assert 207 == status
    assert [("trace-create:t-1", 201), ("generation-create:g-1", 201)] == [
        tuple(one.values()) for one in words["successes"]
    ]
    assert [("generation-update:g-1", 400, "implausible"), ("", 400, "malformed")] == [
        (one["id"], one["status"], one["error"]) for one in words["errors"]
    ]


def test_langfuse_gets_every_event_id_of_a_body_with_nan() -> None:
    """Python senders write NaN. The event ids are read with the same tolerant parser as the events."""
    body = batch(create(temperature=float("nan")), update(usageDetails={"input": -1}))
    words = said("langfuse", body)[1]
    assert [["generation-create:g-1"], ["generation-update:g-1"]] == [
        [one["id"] for one in words[part]] for part in ("successes", "errors")
    ]


def test_firehose_reads_its_own_request_id() -> None:
    """Without its request id, Firehose would repeat the whole request. A refusal states the reason."""
    body = body_of("bedrock", "cloudwatch-subscription-via-firehose")
    request_id = json.loads(body)["requestId"]
    assert (200, {"requestId": request_id, "timestamp": 1763632810500}) == said("bedrock", body)
    refused = driver.answer_to_refused_payload(
        {}, body, Refusal(401, "no_key", "send a key"), now=NOW, format="bedrock"
    )
    assert refused.status == 401
    assert json.loads(refused.body) == {
        "requestId": request_id,
        "timestamp": 1763632810500,
        "errorMessage": "send a key",
    }


def test_a_bare_bedrock_record_is_answered_by_the_server() -> None:
    """
    A single Bedrock record gets Tollhouse's own response, because only Firehose sends a request id to repeat.
    """
    assert 200 == said("bedrock", body_of("bedrock", "converse-stream"))[0]
    assert 1 == said("bedrock", body_of("bedrock", "converse-stream"))[1]["accepted"]


def test_openmeter_hears_nothing() -> None:
    assert (204, None) == said("openmeter", body_of("openmeter", "cloudevent-single"))


LATER = Refusal(429, "too_many", "later")


@pytest.mark.parametrize("format", ["kong", None])
def test_a_refusal_is_in_the_form_that_its_sender_reads(format: str | None) -> None:
    answer = driver.answer_to_refused_payload({}, b"{}", LATER, now=NOW, format=format)
    assert answer.status == 429
    assert "error" in json.loads(answer.body)


def test_langfuses_clients_are_refused_in_their_form() -> None:
    response = langfuse_error_response(make_mocked_request("POST", "/"), LATER, NOW)
    assert isinstance(response.body, bytes)
    assert response.status == 429
    assert json.loads(response.body) == {"error": "too_many", "message": "later"}


def test_helicones_signature_is_of_the_raw_body() -> None:
    """
    Helicone's signature covers the raw body. Its hex digits may be in either case. Another body, another
    secret, or no signature is refused.
    """
    body = b'{"request_id": "r"}'
    signature = hmac.new(b"secret", body, sha256).hexdigest()
    assert is_signed_by_helicone("secret", body, signature)
    assert is_signed_by_helicone("secret", body, f" {signature.upper()} ")
    assert not is_signed_by_helicone("secret", body + b" ", signature)
    assert not is_signed_by_helicone("other", body, signature)
    assert not is_signed_by_helicone("secret", body, "")
    assert not is_signed_by_helicone("secret", body, "\u00e9")
