"""OTLP in files or under another format's name: which signal it is, and several requests joined to one."""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain, islice
from typing import Final, NamedTuple

from gateway.errors import BadPayload
from gateway.normalise.formats.engine.declaration import OTLP_SIGNALS
from gateway.normalise.formats.engine.recognise import format_of, recognise
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import Allowance

_NEAR: Final = 4096  # an OTLP request has no other member that its name could stand behind


def recognise_signal(body: bytes) -> str | None:
    """The signal of a JSON body, whatever it was called."""
    if b"resource" not in body[:_NEAR]:
        return None
    found = recognise(body)
    return found if found in OTLP_SIGNALS else None


def is_json(body: bytes) -> bool:
    """True if a body is JSON; protobuf may begin with what JSON takes for a blank line and a brace."""
    text = payload.unmarked(body)
    if text[:1] != b"\n" and text.lstrip()[:1] in (b"{", b"["):
        return True
    return recognise(body) in OTLP_SIGNALS


class Joined(NamedTuple):
    """Several requests as one, and the places of those that are none."""

    request: bytes
    other_places: list[int]


def joined(named: str, body: bytes, allowance: Allowance) -> Generator[None, None, Joined]:
    """
    Join the requests of a JSON body: collectors write one a line, people put them into arrays. Each `next`
    works through a slice of them.

    BadPayload if one of them is of another signal; what is not JSON at all is left for the decoder to refuse.
    """
    text = payload.unmarked(body)
    try:
        requests = payload.items(text)
        start = list(islice(requests, 2))
    except BadPayload:
        return Joined(text, [])
    if len(start) == 1 and text.lstrip()[:1] == b"{":
        return Joined(text, [])
    resources: list[payload.Raw] = []
    other_places: list[int] = []
    for index, request in enumerate(chain(start, requests)):
        if not len(request):
            yield
            continue
        allowance.count(1, len(request))
        if allowance.is_due(len(request)):
            yield
        members = payload.peek(request)
        arrays = [members[name] for name in OTLP_SIGNALS[named] if name in members]
        if arrays:
            for resource in payload.array(arrays[0]):
                if not len(resource):
                    yield
                    continue
                allowance.count(1, len(resource))
                if allowance.is_due(len(resource)):
                    yield
                resources.append(resource)
        elif format_of(members) in OTLP_SIGNALS:
            raise BadPayload(f"request {index} is not of the signal {named}: send each signal by itself")
        elif bytes(request) not in (b"{}", b"null"):
            other_places.append(index)
    name, elements = OTLP_SIGNALS[named][0].encode(), b",".join(map(bytes, resources))
    return Joined(b'{"%s":[%s]}' % (name, elements), other_places)
