"""Calls of one row of a gateway's own table or log, which arrives as an item of a body or of OTLP."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ItemFormat,
    ReadCall,
    ReadTokenCount,
    is_model_call,
    origins_of_known_fields,
)
from gateway.normalise.outcome import ReadOutcome
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.values import BadValue
from spool.identity import AS_GATEWAY, RecordIdentity, build_relayed_report

_METADATA = "metadata."


def read_event_calls(format: ItemFormat, event: Any) -> list[ReadCall | ReadTokenCount | BadValue]:
    """
    Return the calls of one item, its token counts without a call, and the errors of its values that cannot be
    counted. An item without model and tokens is not a call.
    """
    try:
        return [
            call
            for call in format.calls(event)
            if not isinstance(call, ReadCall) or call.is_certain or is_model_call(call.record)
        ]
    except BadValue as error:
        return [error]


def identity_with_relay(call: ReadCall | ReadTokenCount) -> RecordIdentity:
    """
    Return the dedup key of a call. If the call names a session, the key gets a second id for the session's
    request, because the assistant that sent the call through the gateway may report it as well.
    """
    identity = call.identity
    if isinstance(call, ReadTokenCount) or call.record.session is None or identity.relay is not None:
        return identity
    session, names_request = call.record.session, call.names_request
    return identity._replace(
        relay=build_relayed_report(
            call.record, session, report_kind=AS_GATEWAY, states_request_id=names_request
        )
    )


def add_calls_of_gateway_row(
    format: ItemFormat,
    item_index: int,
    item: Any,
    outcome: ReadOutcome,
    *,
    tags: Mapping[str, str],
    device: str | None,
    version: str,
) -> bool:
    """
    Add the calls of an OTLP item that is a row of a gateway's own table or log. Each attribute of the item
    is a column.

    Return False if the item is not a call. `tags` and `device` come from the resource of the item.
    """
    calls = read_event_calls(format, _event_from_attributes(format.event, item.attributes))
    for call in calls:
        if isinstance(call, BadValue):
            outcome.reject_item(item_index, call.reason, f"item {item_index}: {call.message}")
            continue
        record = call.record
        own = dict(record.tags)
        outcome.left_out += call.left_out + tag_rules.remove_unknown_long_tags(own, outcome.keep_tags)
        for name, value in tags.items():
            outcome.left_out += name not in own and not tag_rules.put_tag_if_allowed(own, name, value)
        record.tags = own
        why = None if outcome.why is None else origins_of_known_fields(format.origins, record)
        outcome.add_record(record, identity_with_relay(call), why, device=device, version=version)
    return bool(calls)


def _event_from_attributes(type: type[msgspec.Struct], attributes: Mapping[str, Any]) -> msgspec.Struct:
    columns = {
        field: attributes[column]
        for field, column in _fields_with_encoded_names(type)
        if column in attributes
    }
    if "metadata" in type.__struct_fields__:
        metadata_names = [name for name in attributes if name.startswith(_METADATA)]
        metadata = {name.removeprefix(_METADATA): attributes[name] for name in metadata_names}
        if metadata:
            columns["metadata"] = metadata
    return type(**columns)


@cache
def _fields_with_encoded_names(type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    fields = msgspec.structs.fields(type)
    return tuple((field.name, field.encode_name) for field in fields if field.name != "metadata")
