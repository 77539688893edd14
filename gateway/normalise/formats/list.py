"""
The gateway formats, in the order in which they are recognized. If an item has members typical of two formats,
the earlier format in the list is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from gateway.core.errors import BadPayload
from gateway.normalise.formats import (
    agentgateway,
    aisix,
    apisix,
    azure_apim,
    bedrock,
    bifrost,
    cloudflare,
    databricks,
    envoy_ai_gateway,
    helicone,
    higress,
    kong,
    litellm,
    openmeter,
    openrouter,
    portkey,
    snowflake,
    vertex,
)
from gateway.normalise.formats.engine.declaration import (
    MAX_LOOKED_AT,
    OTLP_SIGNALS,
    BatchFormat,
    ItemFormat,
    RawMembers,
)
from gateway.normalise.formats.langfuse import format as langfuse
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.large_items import shorten_large_item

FORMATS: tuple[ItemFormat | BatchFormat, ...] = (
    litellm.FORMAT,
    langfuse.FORMAT,
    kong.FORMAT,
    portkey.FORMAT,
    bedrock.FORMAT,
    cloudflare.FORMAT,
    envoy_ai_gateway.FORMAT,
    helicone.FORMAT,
    bifrost.FORMAT,
    apisix.FORMAT,
    higress.FORMAT,
    agentgateway.FORMAT,
    vertex.FORMAT,
    azure_apim.FORMAT,
    openmeter.FORMAT,
    openrouter.FORMAT,
    databricks.FORMAT,
    aisix.FORMAT,
    snowflake.FORMAT,
)
BY_NAME: Mapping[str, ItemFormat | BatchFormat] = {format.name: format for format in FORMATS}
FORMAT_NAMES: tuple[str, ...] = (*BY_NAME, *OTLP_SIGNALS)


def recognise_format(body: bytes) -> str | None:
    """
    Return the format of a JSON body, or None. The first item with members typical of a format decides for the
    whole body.
    """
    try:
        for item in islice(payload.items_of_body(body), MAX_LOOKED_AT):
            if (
                recognised_format := recognise_item_format(
                    payload.undecoded_members(shorten_large_item(item, MAX_LOOKED_AT))
                )
            ) is not None:
                return recognised_format
    except BadPayload:
        pass
    return None


def recognise_format_or_refuse(body: bytes, *, how_to_name_format: str) -> str:
    """
    Return the format of a body. If there is none, raise BadPayload. Its message states why the body is
    unreadable, or contains `how_to_name_format`, the way to name a format.
    """
    if (recognised_format := recognise_format(body)) is not None:
        return recognised_format
    # check the body first: payload.items_of_body raises BadPayload if the body is not JSON
    payload.items_of_body(body)
    raise BadPayload(
        f"the format was not recognized; {how_to_name_format}; known formats: {', '.join(FORMAT_NAMES)}"
    )


def recognise_item_format(members: RawMembers) -> str | None:
    """
    Return the format of an item, or None. It is recognized by top-level names, and some formats also by names
    one level down.
    """
    for signal, names in OTLP_SIGNALS.items():
        if any(name in members for name in names):
            return signal
    return next((format.name for format in FORMATS if format.has_sign(members)), None)
