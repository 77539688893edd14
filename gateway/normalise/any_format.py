"""A body of any format, OTLP or a gateway's, into records: the one entry for receivers, files and workers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Literal, cast

from gateway.errors import BadPayload
from gateway.normalise import export_requests, otlp
from gateway.normalise.formats.engine import driver
from gateway.normalise.formats.engine.declaration import OTLP_SIGNALS, BatchFormat, Normalised
from gateway.normalise.formats.list import BY_NAME
from gateway.normalise.options import Options
from gateway.normalise.outcome import MALFORMED, Outcome
from gateway.normalise.payload.body_limits import Allowance, Hold, unbounded


def normalise(
    format: str, body: bytes, *, options: Options, hold: Hold = unbounded
) -> Generator[None, None, Normalised]:
    """
    Read a body of one of FORMAT_NAMES; each `next` is one slice of work.

    OTLP is taken under any name: OpenRouter, Cloudflare and others push it to whatever address they are
    given. Raises BadPayload when the body as a whole cannot be read; a bad item is a reject, and its
    neighbours are kept. `hold` is called with the size of what unfolds inside the body, and with what its
    items take beyond it.
    """
    allowance = Allowance(options.max_items, hold)
    named = format if format in OTLP_SIGNALS else export_requests.recognise_signal(body) or format
    if named in OTLP_SIGNALS:
        return Normalised((yield from _otlp(named, body, options, allowance)))
    found = BY_NAME.get(named)
    if found is None:
        raise BadPayload("the format is not known")
    if isinstance(found, BatchFormat):
        return (yield from found.read(body, options, allowance))
    return Normalised((yield from driver.read(found, body, options=options, allowance=allowance)))


def _otlp(named: str, body: bytes, options: Options, allowance: Allowance) -> Generator[None, None, Outcome]:
    signal = cast(Literal["traces", "metrics", "logs"], named.removeprefix("otlp/"))
    if not export_requests.is_json(body):
        return (yield from otlp.normalise(signal, body, json=False, options=options, hold=allowance.hold))
    request, other_places = yield from export_requests.joined(named, body, allowance.again())
    outcome = yield from otlp.normalise(signal, request, json=True, options=options, hold=allowance.hold)
    for place in other_places:
        outcome.reject(outcome.received, MALFORMED, f"request {place} is not an export request")
        outcome.received += 1
    return outcome
