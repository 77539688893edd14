"""Conversion of a body in any format (OTLP or a gateway's) to records, for receivers and files."""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain, islice
from typing import Final, Literal, NamedTuple, cast

from gateway.core.errors import BadPayload
from gateway.normalise.formats.engine import driver
from gateway.normalise.formats.engine.declaration import OTLP_SIGNALS, BatchFormat, NormalisedBody
from gateway.normalise.formats.list import BY_NAME, recognise_format, recognise_item_format
from gateway.normalise.outcome import MALFORMED, ReadOptions, ReadOutcome
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import BodyReadLimits, Hold, reserve_nothing

_NEAR: Final = 4096  # an OTLP request in JSON has the name of its first member within this number of bytes


def recognise_otlp_signal(body: bytes) -> str | None:
    """
    Return the OTLP signal of a JSON body by its members, or None. The format that the sender states does not
    matter.
    """
    if b"resource" not in body[:_NEAR]:
        return None
    format_name = recognise_format(body)
    return format_name if format_name in OTLP_SIGNALS else None


def is_json_body(body: bytes) -> bool:
    """
    Return whether a body is JSON. The first bytes do not decide, because a protobuf body may also start with
    a line feed and a brace.
    """
    text = payload.remove_byte_order_mark(body)
    if text[:1] != b"\n" and text.lstrip()[:1] in (b"{", b"["):
        return True
    return recognise_format(body) in OTLP_SIGNALS


class JoinedRequest(NamedTuple):
    """
    One OTLP request that was joined from all requests of a body. `other_places` are the positions of the
    body's items that are not requests.
    """

    request: bytes
    other_places: list[int]


def join_otlp_requests(
    signal: str, body: bytes, read_limits: BodyReadLimits
) -> Generator[None, None, JoinedRequest]:
    """
    Join the OTLP/JSON requests of a body (an array or lines) into one. Yields so that
    the event loop can run. Raises BadPayload if a request has another signal. A body that is not JSON is
    returned unchanged, so that the decoder refuses it.
    """
    text = payload.remove_byte_order_mark(body)
    try:
        requests = payload.items_of_body(text)
        start = list(islice(requests, 2))
    except BadPayload:
        return JoinedRequest(text, [])
    if len(start) == 1 and text.lstrip()[:1] == b"{":
        return JoinedRequest(text, [])
    resources: list[payload.Raw] = []
    other_places: list[int] = []
    for index, request in enumerate(chain(start, requests)):
        if not len(request):
            yield
            continue
        read_limits.count_items(1, len(request))
        if read_limits.count_work_and_check_turn(len(request)):
            yield
        members = payload.undecoded_members(request)
        arrays = [members[name] for name in OTLP_SIGNALS[signal] if name in members]
        if arrays:
            for resource in payload.array_elements(arrays[0]):
                if not len(resource):
                    yield
                    continue
                read_limits.count_items(1, len(resource))
                if read_limits.count_work_and_check_turn(len(resource)):
                    yield
                resources.append(resource)
        elif recognise_item_format(members) in OTLP_SIGNALS:
            raise BadPayload(
                f"export {index} in the body does not contain {signal}; send each signal in a body of its own"
            )
        elif bytes(request) not in (b"{}", b"null"):
            other_places.append(index)
    name, elements = OTLP_SIGNALS[signal][0].encode(), b",".join(map(bytes, resources))
    return JoinedRequest(b'{"%s":[%s]}' % (name, elements), other_places)


def normalise_body(
    format: str, body: bytes, *, options: ReadOptions, hold: Hold = reserve_nothing
) -> Generator[None, None, NormalisedBody]:
    """
    Normalise a body. OTLP is accepted under any format name, because OpenRouter, Cloudflare and other senders
    send it to any configured address. Raises BadPayload if the body cannot be read as a whole. A bad item is
    rejected, and the other items still count. `hold` is called before memory is used: with the size of data
    unpacked from the body, and with the memory that items need in addition to this data.
    """
    allowance = BodyReadLimits(options.max_items, hold)
    format_name = format if format in OTLP_SIGNALS else recognise_otlp_signal(body) or format
    if format_name in OTLP_SIGNALS:
        return NormalisedBody((yield from _normalise_otlp_body(format_name, body, options, allowance)))
    named_format = BY_NAME.get(format_name)
    if named_format is None:
        raise BadPayload("unknown format")
    if isinstance(named_format, BatchFormat):
        return (yield from named_format.read(body, options, allowance))
    return NormalisedBody(
        (yield from driver.read_body_items(named_format, body, options=options, read_limits=allowance))
    )


def _normalise_otlp_body(
    format_name: str, body: bytes, options: ReadOptions, read_limits: BodyReadLimits
) -> Generator[None, None, ReadOutcome]:
    from gateway.normalise import (
        otlp,  # imported here, because it takes long and other formats do not need it
    )

    signal = cast(Literal["traces", "metrics", "logs"], format_name.removeprefix("otlp/"))
    if not is_json_body(body):
        return (
            yield from otlp.normalise_otlp(signal, body, json=False, options=options, hold=read_limits.hold)
        )
    request, other_places = yield from join_otlp_requests(
        format_name, body, read_limits.limits_for_next_pass()
    )
    outcome = yield from otlp.normalise_otlp(
        signal, request, json=True, options=options, hold=read_limits.hold
    )
    for index in other_places:
        outcome.reject_item(outcome.received, MALFORMED, f"request {index} is not an export request")
        outcome.received += 1
    return outcome
