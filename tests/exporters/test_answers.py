"""The meaning of each HTTP status, and the part of an error message that is stored."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from exporters.errors import DeliveryTooLarge, Misconfigured, Rejected, Retryable
from exporters.http.answers import HttpAnswer, delivery_error, retry_after_s, server_message
from exporters.otlp.telemetry import rejected_count_and_message
from exporters.redaction import LONGEST_WORDS

NOW = 1_790_000_000.0  # Mon, 21 Sep 2026 14:13:20 GMT
JSON = {"content-type": "application/json; charset=utf-8"}
PROTOBUF = {"content-type": "application/x-protobuf"}
RECEIPT = {"tollhouse-receipt": "id=a; records=0; ignored=0; rejected=7; durability=fsync"}


@pytest.mark.parametrize(
    ("meaning", "statuses"),
    [
        (type(None), [200, 201, 202, 204]),
        (Retryable, [408, 429, 500, 502, 503, 504, 507, 599]),
        (DeliveryTooLarge, [413]),
        (Rejected, [400, 402, 406, 409, 410, 411, 414, 422, 431, 451]),
        (Misconfigured, [300, 301, 302, 303, 304, 307, 308, 401, 403, 404, 405, 415, 501]),
    ],
)
def test_every_status_says_whose_move_is_next(meaning: type[object], statuses: list[int]) -> None:
    """
    A status of 2xx settles a delivery. Each other status means a later retry, bad records, or a wrong
    key or address.
    """
    assert dict.fromkeys(statuses, meaning) == {
        status: type(delivery_error(HttpAnswer(status=status), now=NOW)) for status in statuses
    }


def test_only_a_gateway_error_is_ambiguous() -> None:
    """
    With 502 and 504 it is unknown whether the service received the request. All other answers are certain.
    """
    kept = {}
    for status in (408, 429, 500, 502, 503, 504):
        error = delivery_error(HttpAnswer(status=status), now=NOW)
        assert isinstance(error, Retryable)
        kept[status] = error.ambiguous
    assert {408: False, 429: False, 500: False, 502: True, 503: False, 504: True} == kept


@pytest.mark.parametrize(
    ("status", "headers", "wait_s"),
    [
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 90)}, 90.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) - 90)}, 0.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, 0.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1", "retry-after": "7"}, 7.0),
        (403, {"x-ratelimit-remaining": "41", "x-ratelimit-reset": str(int(NOW) + 90)}, None),
        (401, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 90)}, None),
    ],
)
def test_a_limit_that_is_used_up_says_until_when(
    status: int, headers: dict[str, str], wait_s: float | None
) -> None:
    """GitHub reports an exhausted limit with 403 and the time when it ends, so the route waits until then."""
    error = delivery_error(HttpAnswer(status=status, headers=headers), now=NOW)
    assert isinstance(error, Misconfigured)
    assert wait_s == error.retry_after_s


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Mon, 21 Sep 2026 14:14:20 GMT", 60.0),
        ("Mon, 21 Sep 2026 14:14:20 -0000", 60.0),
        ("Mon, 21 Sep 2026 14:00:00 GMT", 0.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    """A Retry-After value in neither form is ignored."""
    assert seconds == retry_after_s(value, now=NOW)


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        (JSON, b'{"error": {"message": "bad stream", "type": "x"}}', "bad stream"),
        (JSON, b'{"message": "not authorized"}', "not authorized"),
        (JSON, b'{"error": "plain"}', "plain"),
        (JSON, b'["odd"]', '["odd"]'),
        ({"content-type": "text/html"}, b"<h1>Bad\n\tGateway</h1>\x00", "<h1>Bad Gateway</h1>"),
        (PROTOBUF, Status(message="invalid span").SerializeToString(), "invalid span"),
        (PROTOBUF, b"\xff\xff", ""),
        ({}, b"\xff\xfe", "\ufffd\ufffd"),
        ({}, b"", ""),
    ],
)
def test_the_words_are_the_destination_s_own(headers: dict[str, str], body: bytes, said: str) -> None:
    """Of an error response, the exporter stores one printable line."""
    assert said == server_message(HttpAnswer(status=400, headers=headers, body=body))


@pytest.mark.proves("A secret appears in a log, an answer or an upstream's error")
def test_secrets_are_struck_out_and_words_are_bounded() -> None:
    """Stored messages contain no echoed key and no whole HTML page."""
    body = b"key th_secret is disabled. " + b"x" * 10_000
    said = server_message(HttpAnswer(status=403, body=body, secrets=("th_secret",)))
    assert said.startswith("key [key] is disabled. xxx")
    assert LONGEST_WORDS + 3 == len(said)


@pytest.mark.parametrize(
    ("stream", "headers", "body", "expected"),
    [
        ("traces", JSON, b'{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "old"}}', (3, "old")),
        ("metrics", JSON, b'{"partialSuccess": {"rejectedDataPoints": 2}}', (2, None)),
        ("traces", JSON, b'{"partialSuccess": {"errorMessage": "a warning"}}', (0, None)),
        ("traces", JSON, b'{"partialSuccess": {}}', (0, None)),
        ("traces", JSON, b"{}", (0, None)),
        ("traces", JSON, b"<", (0, None)),
        ("traces", JSON, b'{"partialSuccess": {"rejectedSpans": "many"}}', (0, None)),
        ("traces", PROTOBUF, b"\x0a\x00", (0, None)),
        ("traces", PROTOBUF, b"", (0, None)),
        ("traces", {}, b"OK", (0, None)),
        (
            "metrics",
            PROTOBUF,
            ExportMetricsServiceResponse(
                partial_success=ExportMetricsPartialSuccess(rejected_data_points=4, error_message="no")
            ).SerializeToString(),
            (4, "no"),
        ),
        ("traces", RECEIPT, b"", (7, None)),
        ("traces", {"tollhouse-receipt": "id=a; rejected=many"}, b"", (0, None)),
        (
            "traces",
            JSON,
            b'{"partialSuccess": {"rejectedSpans": 1, "errorMessage": "for s3cret"}}',
            (1, "for [key]"),
        ),
    ],
)
def test_a_partial_success_is_read_in_both_encodings(
    stream: str, headers: dict[str, str], body: bytes, expected: tuple[int, str | None]
) -> None:
    """
    The number and the message of rejected items are read from each form of response. A warning or an
    unreadable body rejects nothing.
    """
    answer = HttpAnswer(status=200, headers=headers, body=body, secrets=("s3cret",))
    assert expected == rejected_count_and_message(answer, stream)
