"""
A test call of zero tokens that shows whether a destination accepts AI telemetry.

It is sent like the records of a route. Another Tollhouse recognizes it by its id, applies the rules for forwarded
records, and then ignores it, so the call appears in no total. Any other receiver counts one call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from exporters.errors import Rejected, SendError
from exporters.http.answers import RECEIPT, HttpAnswer, check_not_web_page
from exporters.http.client import PROTOBUF, HttpClient
from exporters.otlp.spans import SpanEncoder
from exporters.otlp.telemetry import rejected_count_and_message
from exporters.probe import OK, REFUSED, Probe, error_probe, response_probe, send_empty_export
from spool.clock import Clock
from spool.identity import CHECK_ID
from spool.record import NS, Inference

_NAME: Final = "tollhouse-check"  # name that receivers show as provider, model and source
_RECEIPT_ID: Final = re.compile(r"\bid=([\w.~+/=-]{1,128});")


def encode_test_call(now: float) -> bytes:
    at = int(now * NS)
    call = Inference(
        id=CHECK_ID,
        source=_NAME,
        operation="chat",
        provider=_NAME,
        request_model=_NAME,
        start_time=at,
        end_time=at,
        input_tokens=0,
        output_tokens=0,
        tags={},
    )
    return SpanEncoder().encode_request([(call, now)])


async def probe_with_test_call(
    client: HttpClient,
    url: str,
    *,
    clock: Clock,
    authorization: str | None,
    headers: Mapping[str, str] | None = None,
    send_call: bool = False,
) -> Probe:
    """
    Send an empty export of spans, then the test call.

    A Tollhouse always receives the test call, because it does not count it. Any other receiver gets the call
    only with `send_call`.
    """
    try:
        empty = await send_empty_export(client, url, authorization=authorization, headers=headers)
    except SendError as error:
        # with `send_call`, continue after a rejected empty export, because the receiver may reject only empty exports
        if not (send_call and isinstance(error, Rejected)):
            return error_probe(error)
    else:
        if not (send_call or RECEIPT in empty.headers):
            return response_probe(empty)
    try:
        answer = await client.send(
            url,
            encode_test_call(clock.now()),
            content_type=PROTOBUF,
            authorization=authorization,
            headers=headers,
        )
        check_not_web_page(answer)
    except Rejected as error:
        return Probe(status=REFUSED, words=f"the service rejects the test call: {error}")
    except SendError as error:
        return error_probe(error)
    return _response_probe(answer)


def _response_probe(answer: HttpAnswer) -> Probe:
    count, message = rejected_count_and_message(answer, "traces")
    if count:
        reason = f": {message}" if message else ""
        return Probe(
            status=REFUSED,
            words=f"the service responds with {answer.status}, but rejects the test call{reason}",
        )
    receipt = answer.headers.get(RECEIPT)
    if receipt is None:
        empty = response_probe(answer)
        message = (
            empty.words or "the service accepted the test call and may count it as one call of zero tokens"
        )
        return Probe(status=empty.status, words=message)
    id = _RECEIPT_ID.search(receipt)
    shown = f" (receipt {id[1]} there)" if id else ""
    return Probe(status=OK, words=f"a Tollhouse that accepted the test call and does not count it{shown}")
