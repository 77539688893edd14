"""The format of a payload by the names in it, so that a sender need not name its own."""

from __future__ import annotations

from itertools import islice

from gateway.errors import BadPayload
from gateway.normalise.formats.engine.declaration import MAX_LOOKED_AT, OTLP_SIGNALS, Members
from gateway.normalise.formats.list import FORMAT_NAMES, FORMATS
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.outline import outlined


def recognise(body: bytes) -> str | None:
    """The format of a JSON body, or None; the first item that shows a sign decides for all."""
    try:
        for item in islice(payload.items(body), MAX_LOOKED_AT):
            if (found := format_of(payload.peek(outlined(item, MAX_LOOKED_AT)))) is not None:
                return found
    except BadPayload:
        pass
    return None


def recognised(body: bytes, *, how: str) -> str:
    """The format of a body. BadPayload states why it cannot be read, or how to name one of the formats."""
    if (found := recognise(body)) is not None:
        return found
    payload.items(body)  # raises for what is not JSON
    raise BadPayload(f"the format was not recognised; {how}; known are {', '.join(FORMAT_NAMES)}")


def format_of(members: Members) -> str | None:
    """Recognise a format by the top-level names of one item, and by names one level down if the format needs them."""
    for signal, names in OTLP_SIGNALS.items():
        if any(name in members for name in names):
            return signal
    return next((format.name for format in FORMATS if format.has_sign(members)), None)
