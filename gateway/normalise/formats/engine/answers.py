"""The answer to a sender in its own product's way, or in Tollhouse's own where the format declares none."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType

import msgspec

from gateway.errors import Refusal
from gateway.normalise.formats.engine.declaration import Answering, FormatAnswer, json_answer
from gateway.normalise.formats.list import BY_NAME, FORMATS
from gateway.normalise.outcome import MALFORMED, Outcome, Reject
from gateway.normalise.payload import long_lists

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def answer_to(name: str, body: bytes, outcome: Outcome, *, now: float) -> Answering:
    """
    Answer a payload that was read and is on disk; `body` is as it arrived, inflated.

    A payload in which every item is malformed was not taken: it is refused with 400.
    """
    format = BY_NAME.get(name)  # None for OTLP
    if _is_all_malformed(outcome) and not (format and format.answers_each_item):
        first = outcome.rejects[0]
        message = f"every item is malformed; the first ({first.item}): {first.message}"
        return refusal_to(NO_HEADERS, body, Refusal(400, "bad_payload", message), now=now, format=name)
    own = format.answer(body, outcome, now) if format and format.answer else None
    if isinstance(own, Generator):
        own = yield from own
    return own or json_answer(
        200,
        {
            "format": name,
            "accepted": outcome.count + len(outcome.records) + len(outcome.points),
            "ignored": outcome.ignored.total(),
            "rejected": msgspec.Raw((yield from long_lists.encoded(map(_reject, outcome.rejects)))),
        },
    )


def refusal_to(
    headers: Mapping[str, str], body: bytes, refusal: Refusal, *, now: float, format: str | None = None
) -> FormatAnswer:
    """Answer a request that was refused as a whole. `format` is None before it is known."""
    for one in FORMATS:
        own = one.refuse(headers, body, refusal, now) if one.refuse and format in (None, one.name) else None
        if own is not None:
            return own
    return json_answer(refusal.status, {"error": {"type": refusal.type, "message": refusal.message}})


def _is_all_malformed(outcome: Outcome) -> bool:
    # A figure that no call can have was read, and Firehose and Kong would only send it again and again.
    are_malformed = all(reject.reason == MALFORMED for reject in outcome.rejects)
    return 0 < outcome.received + outcome.split == len(outcome.rejects) and are_malformed


def _reject(reject: Reject) -> dict[str, object]:
    return {"item": reject.item, "reason": reject.reason, "message": reject.message}
