"""
Ids that a provider gives to an HTTP request, in the headers of its response. They identify reports of one
call, as response ids do. Failed calls have them as well.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.normalise.reading.values import text_or_none
from spool.identity import dedup_keys_of_request_id
from spool.record import Inference

# Form of ids that the provider gave. Any other id in these headers may be from a caller or a proxy, because
# servers repeat it.
_FORM = "req_"
_BEDROCK = "aws.bedrock"  # provider whose request ids are UUIDs


def _declare_header_field(name: str) -> Any:
    return msgspec.field(name=name, default=None)


class RequestIdHeaders(msgspec.Struct):
    request_id: Any = _declare_header_field("request-id")  # Anthropic
    x_request_id: Any = _declare_header_field("x-request-id")  # OpenAI
    of_amazon: Any = _declare_header_field("x-amzn-requestid")
    of_azure: Any = _declare_header_field("x-ms-request-id")


def dedup_keys_from_headers(record: Inference, headers: RequestIdHeaders) -> tuple[bytes, ...]:
    """Return further dedup keys of a call, from the headers of the provider's response."""
    names = dedup_keys_from_ids(record, headers.request_id, headers.x_request_id)
    for id in (headers.of_amazon, headers.of_azure):
        if id is not None:
            names += dedup_keys_of_request_id(record, text_or_none(id))
    return names


def dedup_keys_from_field(record: Inference, id: Any) -> tuple[bytes, ...]:
    """
    Return further dedup keys of a call, from a log field that the operator fills with a header of the
    provider.
    """
    names = dedup_keys_from_ids(record, id)
    return (
        names if names or record.provider != _BEDROCK else dedup_keys_of_request_id(record, text_or_none(id))
    )


def dedup_keys_from_ids(record: Inference, *ids: Any) -> tuple[bytes, ...]:
    stated = dict.fromkeys(id for id in map(text_or_none, ids) if id is not None and id.startswith(_FORM))
    return tuple([name for id in stated for name in dedup_keys_of_request_id(record, id)])
