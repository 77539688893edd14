"""
The gateway formats, in the order in which their signs are looked for: where an item shows two formats, the
first here wins.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from gateway.normalise.formats.engine.declaration import OTLP_SIGNALS, BatchFormat, ItemFormat
from gateway.normalise.formats.langfuse import format as langfuse

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
