"""
Snowflake Cortex: rows of the usage views of its AI gateway, its REST API and its AI functions.

The views state credits. The price of a credit depends on the customer's contract, so credits become a tag and
not a cost. The view of the REST API excludes requests that went through the gateway. Rows of agents and of
Cortex Code are sums of requests, so they are not calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    RawMembers,
    ReadCall,
    set_normalised_counts,
)
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import model_without_prefix
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import (
    BadValue,
    Other,
    dict_or_empty,
    first_text,
    parse_amount,
    parse_count,
    struct_or_empty,
    text_or_none,
)
from spool.identity import call_identity
from spool.record import Inference

NAME = "snowflake"

_OF_GATEWAY, _OF_REST_API = "OPERATION_DETAILS", "TOKENS_GRANULAR"


class SnowflakeTokens(msgspec.Struct):
    """Tokens of one request to the REST API, by kind. Each token is counted in only one kind."""

    input: Any = None
    cache_read_input: Any = None
    cache_write_input: Any = None
    output: Any = None


class SnowflakeEvent(msgspec.Struct):
    # Columns of all views.
    REQUEST_ID: Any = None
    QUERY_ID: Any = None
    AGENT_ID: Any = None
    AGENT_NAME: Any = None
    START_TIME: Any = None
    USER_ID: Any = None
    # Columns of AI_GATEWAY_USAGE_HISTORY.
    GATEWAY_NAME: Any = None
    OPERATION_DETAILS: Any = None
    CREDITS: Any = None
    TOKEN_CREDITS: Any = None
    CREDITS_GRANULAR: Any = None
    METADATA: Any = None
    # Columns of CORTEX_REST_API_USAGE_HISTORY.
    END_TIME: Any = None
    MODEL_NAME: Any = None
    TOKENS_GRANULAR: SnowflakeTokens | Other = None
    INFERENCE_REGION: Any = None


def has_snowflake_fields(members: RawMembers) -> bool:
    of_gateway = "GATEWAY_NAME" in members and _OF_GATEWAY in members
    of_rest_api = "MODEL_NAME" in members and _OF_REST_API in members
    return ("REQUEST_ID" in members or "QUERY_ID" in members) and (of_gateway or of_rest_api)


def read_calls(event: SnowflakeEvent) -> Iterable[ReadCall | BadValue]:
    """Read a row of the gateway as one call for each model, and a row of the REST API as one call."""
    if first_text(event.AGENT_ID, event.AGENT_NAME) is not None:
        return
    if event.OPERATION_DETAILS is not None:
        yield from _read_gateway_row(event)
    elif text_or_none(event.MODEL_NAME) is not None:
        yield _read_rest_api_row(event)


def _read_gateway_row(event: SnowflakeEvent) -> Iterator[ReadCall | BadValue]:
    used = {model: dict_or_empty(counts) for model, counts in dict_or_empty(event.OPERATION_DETAILS).items()}
    used = {model: counts for model, counts in used.items() if counts}
    credits = dict_or_empty(event.CREDITS_GRANULAR)
    for model, counts in used.items():
        stated = credits.get(model, event.CREDITS if len(used) == 1 else None)
        try:
            tokens = Tokens(
                parse_count(counts.get("input_tokens"), "input_tokens"),
                parse_count(counts.get("output_tokens"), "output_tokens"),
                parse_count(counts.get("cache_read_input_tokens"), "cache_read_input_tokens"),
                parse_count(counts.get("cache_write_input_tokens"), "cache_write_input_tokens"),
            )
            if any(number is not None for number in tokens):
                yield _build_call(event, model, tokens, credits=parse_amount(stated, "CREDITS"))
        except BadValue as error:
            yield error


def _read_rest_api_row(event: SnowflakeEvent) -> ReadCall:
    kinds = struct_or_empty(event.TOKENS_GRANULAR, SnowflakeTokens)
    tokens = Tokens(
        parse_count(kinds.input, "TOKENS_GRANULAR.input"),
        parse_count(kinds.output, "TOKENS_GRANULAR.output"),
        parse_count(kinds.cache_read_input, "TOKENS_GRANULAR.cache_read_input"),
        parse_count(kinds.cache_write_input, "TOKENS_GRANULAR.cache_write_input"),
    )
    credits = parse_amount(event.CREDITS if event.TOKEN_CREDITS is None else event.TOKEN_CREDITS, "CREDITS")
    return _build_call(
        event, text_or_none(event.MODEL_NAME) or "", tokens, credits=credits, without_cache=True
    )


def _build_call(
    event: SnowflakeEvent,
    model: str,
    tokens: Tokens,
    *,
    credits: str | None = None,
    without_cache: bool = False,
) -> ReadCall:
    record = Inference(
        id=b"",
        source=NAME,
        request_id=first_text(event.REQUEST_ID, event.QUERY_ID),
        start_time=parse_instant(event.START_TIME),
        end_time=parse_instant(event.END_TIME),
        provider=NAME,
        request_model=model_without_prefix(model, NAME),
        region=region_of_call(event.INFERENCE_REGION),
    )
    set_normalised_counts(record, tokens, without_cache=without_cache)
    metadata = CallMetadata()
    metadata.add_caller_and_tags(dict_or_empty(event.METADATA))
    metadata.add_tag("route", text_or_none(event.GATEWAY_NAME))
    metadata.add_tag("credits", credits)
    metadata.fill_record(record, principal=text_or_none(event.USER_ID))
    own_id = None if record.request_id is None else f"{record.request_id}\0{model}"
    # a query without a request id may run for hours and has one row per hour, so the hour is part of its id
    if own_id is not None and text_or_none(event.REQUEST_ID) is None:
        own_id += f"\0{record.start_time}"
    return ReadCall(record, call_identity(record, own_id=own_id), metadata.left_out)


def example_body(call: ExampleCall) -> Any:
    return {
        "REQUEST_ID": call.uuid,
        "GATEWAY_NAME": "example-gateway",
        "USER_ID": "1",
        "SERVICE_TYPE": "AI_INFERENCE",
        "START_TIME": call.start_text,
        "CREDITS": call.cost,
        "OPERATION_DETAILS": {
            call.model: {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens}
        },
        "CREDITS_GRANULAR": {call.model: call.cost},
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_snowflake_fields,
    example=example_body,
    event=SnowflakeEvent,
    calls=read_calls,
    origins={
        "request_id": "REQUEST_ID, else QUERY_ID",
        "start_time": "START_TIME",
        "end_time": "END_TIME",
        "provider": "always Snowflake for these views",
        "region": "INFERENCE_REGION",
        "request_model": "a name in OPERATION_DETAILS (REST API: MODEL_NAME)",
        "input_tokens": "OPERATION_DETAILS.MODEL.input_tokens (REST API: TOKENS_GRANULAR.input + both cache counts)",
        "output_tokens": "OPERATION_DETAILS.MODEL.output_tokens (REST API: TOKENS_GRANULAR.output)",
        "cache_read_tokens": (
            "OPERATION_DETAILS.MODEL.cache_read_input_tokens (REST API: TOKENS_GRANULAR.cache_read_input)"
        ),
        "cache_write_tokens": (
            "OPERATION_DETAILS.MODEL.cache_write_input_tokens (REST API: TOKENS_GRANULAR.cache_write_input)"
        ),
        "user": "USER_ID",
        "team": "METADATA.team",
        "session": "METADATA.session_id",
    },
)
