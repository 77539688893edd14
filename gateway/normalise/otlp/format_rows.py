"""Items that are rows of a gateway's own table or log, each column an attribute: read by the format."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import ItemFormat, explained
from gateway.normalise.formats.engine.driver import calls_of
from gateway.normalise.otlp.model import Attributes
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.values import BadValue

_METADATA = "metadata."


def take_row(
    format: ItemFormat,
    place: int,
    item: Any,
    outcome: Outcome,
    *,
    tags: Mapping[str, str],
    device: str | None,
) -> bool:
    """Add the calls of an item's row; False when it is not a call. `tags` and `device` are its resource's."""
    found = calls_of(format, _event(format.event, item.attributes))
    for call in found:
        if isinstance(call, BadValue):
            outcome.reject(place, call.reason, f"item {place}: {call.message}")
            continue
        record = call.record
        own = dict(record.tags)
        outcome.left_out += call.left_out + tag_rules.drop_free_texts(own, outcome.keep_tags)
        for name, value in tags.items():
            outcome.left_out += name not in own and not tag_rules.put(own, name, value)
        record.tags = own
        why = None if outcome.why is None else explained(format.origins, record)
        outcome.add(record, call.identity, why, device=device)
    return bool(found)


def _event(type: type[msgspec.Struct], attributes: Attributes) -> msgspec.Struct:
    columns = {field: attributes[column] for field, column in _columns(type) if column in attributes}
    if "metadata" in type.__struct_fields__:
        named = [name for name in attributes if name.startswith(_METADATA)]
        metadata = {name.removeprefix(_METADATA): attributes[name] for name in named}
        if metadata:
            columns["metadata"] = metadata
    return type(**columns)


@cache
def _columns(type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    fields = msgspec.structs.fields(type)
    return tuple((field.name, field.encode_name) for field in fields if field.name != "metadata")
