"""A body of any format, OTLP or a gateway's, into records: the one entry for doors, files and workers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Literal, cast

from gateway.errors import BadPayload
from gateway.normalise import otlp
from gateway.normalise.formats import (
    agentgateway,
    apisix,
    azure_apim,
    bedrock,
    bifrost,
    cloudflare,
    driver,
    envoy_ai_gateway,
    helicone,
    higress,
    kong,
    litellm,
    openmeter,
    openrouter,
    portkey,
    vertex,
)
from gateway.normalise.formats.call import Format
from gateway.normalise.formats.langfuse import events as langfuse
from gateway.normalise.options import Options
from gateway.normalise.outcome import MALFORMED, Outcome
from gateway.normalise.payload import export_requests
from gateway.normalise.payload.unfolding import Hold

_BY_ITEM: Mapping[str, Format] = {
    module.NAME: module.FORMAT
    for module in (
        litellm, openrouter, kong, portkey, bedrock, cloudflare, envoy_ai_gateway, helicone, bifrost, apisix, higress,
        agentgateway, vertex, azure_apim, openmeter,
    )
}  # fmt: skip
OTLP = export_requests.SIGNALS
FORMATS: tuple[str, ...] = (*_BY_ITEM, langfuse.NAME, *OTLP)


def _unbounded(_: int) -> None:
    """Nobody else shares the memory."""


def normalise(format: str, body: bytes, *, options: Options, hold: Hold = _unbounded) -> Generator[None, None, Outcome]:
    """
    A body of one of FORMATS to its Outcome; each `next` is one slice of work.

    OTLP is taken under any name: OpenRouter, Cloudflare and others push it where they are told to. Raises BadPayload
    when the body as a whole cannot be read; a bad item is a reject, and its neighbours are kept. `hold` hears of what
    unfolds inside the body.
    """
    named = format if format in OTLP else export_requests.shown(body) or format
    if named in OTLP:
        return (yield from _otlp(named, body, options))
    if named == langfuse.NAME:
        return (yield from langfuse.normalise(body, options=options))
    if named not in _BY_ITEM:
        raise BadPayload("the format is not known")
    return (yield from driver.read(_BY_ITEM[named], body, options=options, hold=hold))


def _otlp(named: str, body: bytes, options: Options) -> Generator[None, None, Outcome]:
    signal = cast(Literal["traces", "metrics", "logs"], named.removeprefix("otlp/"))
    if not export_requests.is_json(body):
        return (yield from otlp.normalise(signal, body, json=False, options=options))
    request, strangers = yield from export_requests.joined(named, body)
    outcome = yield from otlp.normalise(signal, request, json=True, options=options)
    for place in strangers:
        outcome.reject(outcome.received, MALFORMED, f"request {place} is no export request")
        outcome.received += 1
    return outcome
