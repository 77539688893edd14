"""
One call of zero tokens that proves the way of AI telemetry to a far side.

It leaves as a route's records do. A Tollhouse knows it by its id: it accepts or rejects the call by the rules of any
other forwarded record, then counts it as ignored, so it is in no sum. Any other receiver counts one call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from exporters.errors import Rejected, SendError
from exporters.http.answers import RECEIPT, HttpAnswer, refuse_page
from exporters.http.client import PROTOBUF, Client
from exporters.otlp.spans import SpanEncoder
from exporters.otlp.telemetry import rejected
from exporters.probe import OK, REFUSED, Probe, answered, failed, send_nothing
from spool.clock import Clock
from spool.identity import CHECK_ID
from spool.record import NS, Inference

_NAME: Final = "tollhouse-check"  # as provider, model and source: what other receivers show
_RECEIPT_ID: Final = re.compile(r"\bid=([\w.~+/=-]{1,128});")


def body(now: float) -> bytes:
    """Encode the call as an export of one span."""
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
    return SpanEncoder().request([(call, now)])


async def try_call(
    client: Client,
    url: str,
    *,
    clock: Clock,
    authorization: str | None,
    headers: Mapping[str, str] | None = None,
    send: bool = False,
) -> Probe:
    """
    Send an empty export of spans, then the marked call: to a Tollhouse always, because it counts the call nowhere, and
    to any other receiver only if `send`.
    """
    try:
        empty = await send_nothing(client, url, authorization=authorization, headers=headers)
    except SendError as error:
        if not (send and isinstance(error, Rejected)):  # it may reject an empty export alone
            return failed(error)
    else:
        if not (send or RECEIPT in empty.headers):
            return answered(empty)
    try:
        answer = await client.send(
            url, body(clock.now()), content_type=PROTOBUF, authorization=authorization, headers=headers
        )
        refuse_page(answer)
    except Rejected as error:
        return Probe(status=REFUSED, words=f"it rejects the marked call: {error}")
    except SendError as error:
        return failed(error)
    return _judge(answer)


def _judge(answer: HttpAnswer) -> Probe:
    count, words = rejected(answer, "traces")
    if count:
        reason = f": {words}" if words else ""
        return Probe(status=REFUSED, words=f"it answers {answer.status}, but rejects the marked call{reason}")
    receipt = answer.headers.get(RECEIPT)
    if receipt is None:
        found = answered(answer)
        words = found.words or "it accepted the marked call and may count one call of zero tokens"
        return Probe(status=found.status, words=words)
    id = _RECEIPT_ID.search(receipt)
    shown = f" (receipt {id[1]} there)" if id else ""
    return Probe(status=OK, words=f"a Tollhouse, which accepted the marked call and counts it nowhere{shown}")
